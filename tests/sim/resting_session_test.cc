// A session that nobody has asked for anything for long.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "driver/load.h"
#include "rpc/endpoint.h"
#include "server/session.h"
#include "server/transfers/pinned_memory.h"
#include "tests/support/server_process.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace flyt::sim {
namespace {

// This machine's, and later if a test says so.
class LaterClock final : public Clock {
 public:
  Instant now() const override { return system_clock().now() + ahead_.load(); }
  // lint: allow(sleep): for the session, which waits for nothing here.
  void sleep_for(Duration) const override {}
  void pass(Duration duration) { ahead_.store(ahead_.load() + duration); }

 private:
  std::atomic<Duration> ahead_{Duration{0}};
};

// One command that is answered.
void ping(transport::Connection& client) {
  std::array<std::byte, wire::kHeaderBytes> bytes;
  Writer writer(bytes);
  wire::CommandHeader header;
  header.op = static_cast<std::uint16_t>(wire::ProtocolOp::kPing);
  header.flags = wire::kWantsReply;
  header.sequence = 1;
  wire::encode(header, writer);
  const Bytes frame(bytes);
  ASSERT_TRUE(client.write({&frame, 1}, transport::Patience::kWait).ok());
  std::array<std::byte, 64> answer;
  const MutableBytes into(answer);
  ASSERT_TRUE(client.read({&into, 1}, transport::Patience::kWait).ok());
}

TEST(RestingSession, GivesBackTheMemoryThatCopiesHaveHad) {
  auto driver = driver::load(tests::built_library("libflyt-softgpu.so"));
  ASSERT_TRUE(driver.ok());
  auto pair = transport::connection_pair();
  ASSERT_TRUE(pair.ok());
  LaterClock clock;
  const Log log("server", LogLevel::kOff);
  server::HostBuffers buffers(driver->table);
  rpc::Endpoint endpoint(std::move(pair->first), wire::Limits{}, buffers.received, clock);
  server::Session session({.endpoint = endpoint,
                           .driver = driver->table,
                           .buffers = buffers,
                           .log = log,
                           .clock = clock});
  server::PinnedStock& stock = buffers.staging.stock();
  std::thread serving([&session] { static_cast<void>(session.run()); });
  ping(*pair->second);
  const auto block = stock.take(1);
  ASSERT_TRUE(block.has_value());
  *stock.bytes(*block).data() = std::byte{7};
  stock.give(*block);
  ASSERT_TRUE(stock.may_rest());
  EXPECT_TRUE(tests::eventually(60, [&] {
    // It sleeps by the machine's clock.
    clock.pass(std::chrono::seconds(10));
    endpoint.wake();
    return !stock.may_rest();
  }));
  pair->second->shut_down();
  serving.join();
  EXPECT_EQ(*stock.bytes(*block).data(), std::byte{0});
}

}  // namespace
}  // namespace flyt::sim
