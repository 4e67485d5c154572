#include "server/memory/driver_ranges.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <vector>

#include "base/bytes.h"

namespace flyt::server {
namespace {

constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;
// 32 MiB at a multiple of 32 MiB are in it, wherever it lies.
constexpr std::size_t kBytes = 64 * kMiB - 4096;

std::uint64_t reserve(std::size_t bytes, int flags = kPrivate) {
  return address_of(map_memory(nullptr, bytes, PROT_NONE, flags, -1, 0));
}

void let_go(std::uint64_t address, std::size_t bytes) { ::munmap(pointer_at(address), bytes); }

#ifdef __SANITIZE_THREAD__
constexpr bool kPlaceable = false;  // It allows no memory there.
#else
constexpr bool kPlaceable = true;
#endif

TEST(DriverRangesTest, HaveSlotsOfTheirSize) {
  EXPECT_EQ(DriverRanges::slots_of(32 * kMiB - 1), 0u);
  EXPECT_EQ(DriverRanges::slots_of(32 * kGiB + 1), 0u);
  std::uint64_t end = DriverRanges::kBase;
  for (std::uint64_t bytes = 32 * kMiB; bytes <= 32 * kGiB; bytes *= 2) {
    EXPECT_GE(DriverRanges::slots_of(bytes), end);
    EXPECT_EQ(DriverRanges::slots_of(bytes / 2 + 1),
              bytes == 32 * kMiB ? 0 : DriverRanges::slots_of(bytes));
    end = DriverRanges::slots_of(bytes) + DriverRanges::kSlots * bytes;
  }
  // Far below where programs and their libraries are.
  EXPECT_LE(end, 0x500000000000u);
}

TEST(DriverRangesTest, TakeTheFirstSlotThatIsFree) {
  if (!kPlaceable) GTEST_SKIP();
  const std::uint64_t slots = DriverRanges::slots_of(kBytes);
  errno = 0;
  const std::uint64_t first = reserve(kBytes);
  const std::uint64_t second = reserve(kBytes, kPrivate | MAP_NORESERVE);
  EXPECT_EQ(first, slots);
  EXPECT_EQ(errno, 0);
  EXPECT_EQ(second, slots + 64 * kMiB);
  // As a driver does: what it does not need goes, and the rest stands for the slot.
  let_go(first + 32 * kMiB, kBytes - 32 * kMiB);
  EXPECT_EQ(reserve(kBytes), slots + 128 * kMiB);
  let_go(first, 32 * kMiB);
  EXPECT_EQ(reserve(kBytes), first);
  for (std::uint64_t i = 0; i < 3; ++i) let_go(slots + i * 64 * kMiB, kBytes);
}

TEST(DriverRangesTest, AreTheSystemsWhereNoSlotIsFree) {
  if (!kPlaceable) GTEST_SKIP();
  std::vector<std::uint64_t> all;
  for (std::uint64_t i = 0; i < DriverRanges::kSlots; ++i) all.push_back(reserve(kBytes));
  EXPECT_EQ(all.back(), DriverRanges::slots_of(kBytes) + 255 * 64 * kMiB);
  all.push_back(reserve(kBytes));
  EXPECT_GT(all.back(), 0x500000000000u);
  for (const std::uint64_t one : all) let_go(one, kBytes);
}

TEST(DriverRangesTest, LeaveAllOtherMemoryToTheSystem) {
  const auto elsewhere = [](std::uint64_t address) { return address > 0x500000000000u; };
  void* const usable =
      map_memory(nullptr, kBytes, PROT_READ | PROT_WRITE, kPrivate | MAP_NORESERVE, -1, 0);
  EXPECT_TRUE(elsewhere(address_of(usable)));
  // The same pages, if they are told where.
  EXPECT_EQ(map_memory(usable, kBytes, PROT_NONE, kPrivate | MAP_FIXED, -1, 0), usable);
  let_go(address_of(usable), kBytes);
  const std::uint64_t small = reserve(4 * kMiB);
  EXPECT_TRUE(elsewhere(small));
  let_go(small, 4 * kMiB);
  EXPECT_EQ(map_memory(nullptr, 0, PROT_NONE, kPrivate, -1, 0), MAP_FAILED);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace flyt::server
