// Bytes as what programs and client managers say to each other: what is accepted must survive being
// written and read again, and nothing is taken off the front that was not used.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/assert.h"
#include "base/bytes.h"
#include "wire/desk.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const flyt::Bytes bytes = flyt::bytes_at(data, size);
  std::vector<std::byte> stream(bytes.begin(), bytes.end());
  for (;;) {
    const std::size_t before = stream.size();
    const auto message = flyt::wire::take_desk_message(stream);
    if (!message.ok() || !message->has_value()) {
      FLYT_ASSERT(stream.size() == before);
      return 0;
    }
    auto again = flyt::wire::encode(**message);
    FLYT_ASSERT(again.size() == before - stream.size());
    const auto same = flyt::wire::take_desk_message(again);
    FLYT_ASSERT(same.ok() && same->has_value() && **same == **message && again.empty());
  }
}
