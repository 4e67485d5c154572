#include "client/transfers/copy_crew.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/random.h"

namespace flyt::client {
namespace {

std::vector<std::uint8_t> noise(std::size_t bytes, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint8_t> out(bytes);
  for (std::uint8_t& byte : out) byte = static_cast<std::uint8_t>(random.next());
  return out;
}

std::ptrdiff_t threads_here() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads));
}

TEST(CopyCrew, CopiesEverySizeExactly) {
  CopyCrew crew(3);
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4095}, std::size_t{262144}, std::size_t{262145},
        std::size_t{1048576}, std::size_t{3145727}}) {
    const auto from = noise(bytes, bytes + 1);
    std::vector<std::uint8_t> to(bytes + 16, 0xee);
    crew.copy(to.data() + 8, from.data(), bytes);
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin() + 8)) << bytes;
    EXPECT_EQ(0xee, to[7]);
    EXPECT_EQ(0xee, to[bytes + 8]);
  }
}

TEST(CopyCrew, ServesSeveralThreadsAtOnce) {
  CopyCrew crew(3);
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([&crew, seed] {
      const auto from = noise(1'500'000, seed);
      for (int round = 0; round < 20; ++round) {
        std::vector<std::uint8_t> to(from.size());
        crew.copy(to.data(), from.data(), from.size());
        EXPECT_EQ(from, to);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CopyCrew, WakesAgainAfterARest) {
  CopyCrew crew(2);
  const auto from = noise(2'000'000, 9);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::uint8_t> to(from.size());
    crew.copy(to.data(), from.data(), from.size());
    EXPECT_EQ(from, to);
    // Longer than helpers look for more.
    system_clock().sleep_for(std::chrono::milliseconds(1));  // lint: allow(sleep): the rest itself
  }
}

TEST(CopyCrew, EndsWithItsHelpers) {
  const std::ptrdiff_t before = threads_here();
  {
    CopyCrew crew(3);
    EXPECT_EQ(before, threads_here());  // None before there is work.
    const auto from = noise(2'000'000, 10);
    std::vector<std::uint8_t> to(from.size());
    crew.copy(to.data(), from.data(), from.size());
    EXPECT_EQ(before + 3, threads_here());
  }
  EXPECT_EQ(before, threads_here());
}

TEST(CopyCrew, EndsWithoutEverHavingWorked) {
  const std::ptrdiff_t before = threads_here();
  { const CopyCrew crew(3); }
  EXPECT_EQ(before, threads_here());
}

}  // namespace
}  // namespace flyt::client
