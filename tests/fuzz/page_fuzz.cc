// Bytes as what a browser asks a daemon for: a head is found whole or not at all, and what is made
// of it is no larger than it was.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/assert.h"
#include "base/bytes.h"
#include "control/daemon/page_request.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = flyt::text_of(flyt::bytes_at(data, size));
  const auto head = flyt::control::page_head_in(bytes);
  if (!head) return 0;
  FLYT_ASSERT(*head <= size && bytes.substr(0, *head).ends_with("\r\n\r\n"));
  const auto parsed = flyt::control::parse_page_request(bytes.substr(0, *head));
  FLYT_ASSERT(parsed.status == 200 || parsed.status == 400 || parsed.status == 405);
  const flyt::control::PageRequest& request = parsed.ask.request;
  std::size_t told = request.path.size() + request.bearer.size();
  for (const auto& [name, value] : request.query) told += name.size() + value.size();
  FLYT_ASSERT(told <= *head && request.certificate.empty());
  return 0;
}
