#include "transport/sim.h"

#include <gtest/gtest.h>

#include <vector>

namespace flyt::transport {
namespace {

// The sizes of the reads that take `total` bytes through a fresh pair.
std::vector<std::size_t> read_sizes(std::uint64_t seed, std::size_t total) {
  Result<ConnectionPair> pair = sim_pair({.seed = seed});
  std::vector<std::byte> data(total);
  Bytes out(data);
  while (!out.empty()) {
    const Result<std::size_t> sent = pair->first->write({&out, 1}, Patience::kNow);
    out = out.subspan(*sent);
  }
  std::vector<std::size_t> sizes;
  for (std::size_t got = 0; got < total;) {
    const MutableBytes into(data);
    const Result<std::size_t> part = pair->second->read({&into, 1}, Patience::kNow);
    sizes.push_back(*part);
    got += *part;
  }
  return sizes;
}

TEST(Sim, CutsReadsAndWritesTheSameWayForTheSameSeed) {
  EXPECT_EQ(read_sizes(7, 10'000), read_sizes(7, 10'000));
  EXPECT_NE(read_sizes(7, 10'000), read_sizes(8, 10'000));
  EXPECT_GT(read_sizes(7, 10'000).size(), 2u);
}

TEST(Sim, BreaksTheConnectionRightAfterTheChosenByte) {
  for (std::uint64_t cut = 0; cut < 20; ++cut) {
    Result<ConnectionPair> pair = sim_pair({.seed = cut, .to_second = {.cut_after = cut}});
    const std::vector<std::byte> data(20);
    Bytes out(data);
    std::uint64_t sent = 0;
    while (true) {
      const Result<std::size_t> part = pair->first->write({&out, 1}, Patience::kNow);
      if (!part) break;
      out = out.subspan(*part);
      sent += *part;
    }
    EXPECT_EQ(sent, cut);
    std::vector<std::byte> in(64);
    std::uint64_t got = 0;
    while (true) {
      const MutableBytes into(in);
      const Result<std::size_t> part = pair->second->read({&into, 1}, Patience::kWait);
      if (!part) break;
      got += *part;
    }
    EXPECT_EQ(got, cut);
  }
}

TEST(Sim, TakesItsDelaysFromItsClock) {
  const SimClock clock;
  Result<ConnectionPair> pair =
      sim_pair({.to_second = {.delay_max = std::chrono::hours(1)}, .clock = &clock});
  const Bytes out = bytes_of("x");
  ASSERT_TRUE(pair->first->write({&out, 1}, Patience::kNow).ok());
  std::vector<std::byte> in(1);
  const MutableBytes into(in);
  ASSERT_TRUE(pair->second->read({&into, 1}, Patience::kWait).ok());
  EXPECT_GT(clock.now().ns, 0);
}

}  // namespace
}  // namespace flyt::transport
