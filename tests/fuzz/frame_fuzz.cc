// Bytes as what a peer sends after the hello. First byte even: to a server's Endpoint; odd: to a
// client's Inbox that waits for some data and a reply. Whatever comes, the session ends with a
// reason and nothing is written beside the memory that was named.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/assert.h"
#include "base/bytes.h"
#include "rpc/endpoint.h"
#include "rpc/inbox.h"
#include "rpc/no_pushes.h"
#include "transport/transport.h"

namespace flyt {
namespace {

// What a socket pair takes without anybody reading.
constexpr std::size_t kInputBytesMax = 64 * kKiB;

class Handler final : public rpc::CommandHandler {
 public:
  explicit Handler(rpc::Endpoint*& endpoint) : endpoint_(endpoint) {}

  Status on_command(const rpc::Command& command) override {
    for (const std::byte byte : command.payload) sum_ += std::to_integer<unsigned>(byte);
    if (command.wants_reply()) endpoint_->reply(command.header.sequence, sum_);
    return {};
  }

 private:
  rpc::Endpoint*& endpoint_;
  unsigned sum_ = 0;
};

// The end of a connection on which `bytes` and then the end of the stream are waiting.
transport::ConnectionPair fed_with(Bytes bytes) {
  auto pair = transport::connection_pair();
  FLYT_ASSERT(pair.ok());
  while (!bytes.empty()) {
    const auto sent = pair->second->write({&bytes, 1}, transport::Patience::kNow);
    FLYT_ASSERT(sent.ok() && *sent > 0);
    bytes = bytes.subspan(*sent);
  }
  return std::move(*pair);
}

void to_server(Bytes bytes) {
  transport::ConnectionPair pair = fed_with(bytes);
  pair.second.reset();
  rpc::HeapBufferPool pool(wire::kFrameBytesMax, 2);
  rpc::Endpoint* at = nullptr;
  rpc::Endpoint endpoint(std::move(pair.first), {}, pool);
  at = &endpoint;
  Handler handler(at);
  while (endpoint.receive(handler, Instant{}) != rpc::Received::kClosed) {
  }
  FLYT_ASSERT(!endpoint.error().message.empty());
}

void to_client(Bytes bytes) {
  transport::ConnectionPair pair = fed_with(bytes);
  pair.second.reset();
  rpc::NoPushes pushes;
  rpc::Loss loss(*pair.first, pushes);
  rpc::Ledger ledger({});
  ledger.posted_sequence.store(4);
  ledger.posted_bytes.store(400);
  rpc::Deliveries deliveries;
  rpc::Inbox inbox(*pair.first, ledger, deliveries, pushes, loss, system_clock(), Duration{0});
  // 3 rows of 7 bytes, 16 apart, between guards.
  std::array<std::byte, 64> memory{};
  deliveries.expect({memory.data() + 8, 7, 3, 16}, true);
  rpc::Reply reply;
  rpc::Waiter waiter;
  waiter.sequence = 4;
  waiter.reply = &reply;
  if (inbox.enroll(waiter, true)) {
    inbox.wait(waiter);
    inbox.read_if_nobody_does();
  }
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const bool named = i >= 8 && i < 8 + 2 * 16 + 7 && (i - 8) % 16 < 7;
    FLYT_ASSERT(named || memory[i] == std::byte{0});
  }
}

}  // namespace
}  // namespace flyt

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const flyt::Bytes bytes = flyt::bytes_at(data + 1, std::min(size - 1, flyt::kInputBytesMax));
  if (data[0] % 2 == 0) {
    flyt::to_server(bytes);
  } else {
    flyt::to_client(bytes);
  }
  return 0;
}
