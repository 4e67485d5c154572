// PageRequest: what a browser asks for, as far as pages look at it.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace flyt::control {

struct PageRequest {
  std::string path;
  std::map<std::string, std::string, std::less<>> query;  // The first of each name, decoded.
  std::string certificate;                                // The peer's, as PEM; empty in the clear.
  std::string bearer;                                     // "Authorization: Bearer ..."
};

// The head of a request: its line, its fields and the empty line behind them.
inline constexpr std::size_t kPageRequestBytesMax = 64 << 10;

// GET, and HEAD, which wants the answer without its text.
struct PageAsk {
  PageRequest request;
  bool head_only = false;
};

// How many bytes the head has, if all of it is there.
std::optional<std::size_t> page_head_in(std::string_view bytes);
// Of a whole head. What is not HTTP/1, or has no path, is 400, another method 405.
struct PageParsed {
  PageAsk ask;
  int status = 200;
};
PageParsed parse_page_request(std::string_view head);

}  // namespace flyt::control
