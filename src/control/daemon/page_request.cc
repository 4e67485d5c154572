#include "control/daemon/page_request.h"

#include <algorithm>
#include <cctype>

namespace flyt::control {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kBearer = "Bearer ";

int digit_of(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return -1;
}

// What is no such sequence stands for itself.
std::string decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? digit_of(text[i + 1]) : -1;
    const int low = high >= 0 ? digit_of(text[i + 2]) : -1;
    if (low >= 0) {
      out.push_back(static_cast<char>(high * 16 + low));
      i += 2;
    } else {
      out.push_back(plus_is_space && text[i] == '+' ? ' ' : text[i]);
    }
  }
  return out;
}

// Takes what comes before `end`, which goes as well; all of it where there is none.
std::string_view take_until(std::string_view& text, std::string_view end) {
  const std::size_t at = text.find(end);
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + end.size());
  return taken;
}

void read_query(std::string_view text, PageRequest& request) {
  while (!text.empty()) {
    std::string_view value = take_until(text, "&");
    const std::string_view name = take_until(value, "=");
    if (!name.empty()) request.query.emplace(decoded(name, true), decoded(value, true));
  }
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

void read_field(std::string_view line, PageRequest& request) {
  const std::string_view name = take_until(line, ":");
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos || !same_name(name, "authorization")) return;
  const std::string_view value = line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  if (value.starts_with(kBearer)) request.bearer = value.substr(kBearer.size());
}

}  // namespace

std::optional<std::size_t> page_head_in(std::string_view bytes) {
  constexpr std::string_view kHeadEnd = "\r\n\r\n";
  const std::size_t end = bytes.find(kHeadEnd);
  if (end == std::string_view::npos) return std::nullopt;
  return end + kHeadEnd.size();
}

PageParsed parse_page_request(std::string_view head) {
  PageParsed parsed;
  std::string_view line = take_until(head, kLineEnd);
  const std::string_view method = take_until(line, " ");
  std::string_view target = take_until(line, " ");
  if (method.empty() || !target.starts_with('/') || !line.starts_with("HTTP/1.")) {
    parsed.status = 400;
    return parsed;
  }
  parsed.ask.head_only = method == "HEAD";
  if (method != "GET" && !parsed.ask.head_only) {
    parsed.status = 405;
    return parsed;
  }
  target = take_until(target, "#");
  PageRequest& request = parsed.ask.request;
  request.path = decoded(take_until(target, "?"), false);
  read_query(target, request);
  while (!head.empty()) read_field(take_until(head, kLineEnd), request);
  return parsed;
}

}  // namespace flyt::control
