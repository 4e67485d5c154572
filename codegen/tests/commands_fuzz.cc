// Fuzz target: bytes from a peer as any command. An input is an op and a payload; what decodes must
// encode to the same bytes again.
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/assert.h"
#include "commands/all.h"
#include "commands/ops.h"

namespace {

template <class Message>
void try_one(flyt::Bytes payload) {
  Message message;
  if (!decode(payload, message)) return;
  std::vector<std::byte> again(encoded_size(message));
  flyt::Writer writer(again);
  encode(writer, message);
  FLYT_ASSERT(again.size() == payload.size());
  FLYT_ASSERT(payload.empty() || std::memcmp(again.data(), payload.data(), again.size()) == 0);
}

template <class Command>
void try_command(std::uint16_t op, flyt::Bytes payload) {
  if (Command::kOp != op) return;
  try_one<Command>(payload);
  try_one<typename Command::Reply>(payload);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  flyt::Reader reader(flyt::bytes_at(data, size));
  const auto op = reader.take<std::uint16_t>();
  const flyt::Bytes payload = reader.take_bytes(reader.remaining());
  flyt::commands::All::each([&]<class Command>() { try_command<Command>(op, payload); });
  static_cast<void>(flyt::commands::describe(op, payload));
  return 0;
}
