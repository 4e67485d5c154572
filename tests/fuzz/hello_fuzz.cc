// Bytes as a hello, either way: what is accepted must survive being written and read again.
#include <cstddef>
#include <cstdint>

#include "base/assert.h"
#include "base/bytes.h"
#include "wire/hello.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const flyt::Bytes bytes = flyt::bytes_at(data, size);
  const auto hello = flyt::wire::decode_client_hello(bytes);
  if (hello.ok()) {
    const auto again = flyt::wire::decode_client_hello(flyt::wire::encode(*hello));
    FLYT_ASSERT(again.ok() && *again == *hello);
  }
  const auto welcome = flyt::wire::decode_answer(bytes);
  if (welcome.ok()) {
    const auto again = flyt::wire::decode_answer(flyt::wire::encode(*welcome));
    FLYT_ASSERT(again.ok() && *again == *welcome);
  }
  return 0;
}
