#include "client/handle_table.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace flyt::client {
namespace {

struct Thing {
  int value = 0;
  void reset() { value = 0; }
};

using Table = HandleTable<Thing>;

TEST(HandleTable, FindsWhatWasPublished) {
  Table table(wire::HandleKind::kEvent);
  const auto made = table.make();
  ASSERT_TRUE(made);
  EXPECT_EQ(table.find(made.handle), nullptr);
  made.state->value = 7;
  table.publish(made.handle);
  ASSERT_NE(table.find(made.handle), nullptr);
  EXPECT_EQ(table.find(made.handle)->value, 7);
}

TEST(HandleTable, RefusesOtherKindsAndGarbage) {
  Table table(wire::HandleKind::kEvent);
  const auto made = table.make();
  table.publish(made.handle);
  const wire::Handle handle{made.handle};
  const auto other =
      wire::Handle::make(wire::HandleKind::kStream, handle.generation(), handle.index());
  EXPECT_EQ(table.find(other.value), nullptr);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(made.handle + 16), nullptr);
  EXPECT_EQ(table.find(~0ULL), nullptr);
}

TEST(HandleTable, DropsOnce) {
  Table table(wire::HandleKind::kEvent);
  const auto made = table.make();
  table.publish(made.handle);
  EXPECT_TRUE(table.drop(made.handle));
  EXPECT_FALSE(table.drop(made.handle));
  EXPECT_EQ(table.find(made.handle), nullptr);
}

TEST(HandleTable, GivesAUsedSlotAnotherGeneration) {
  Table table(wire::HandleKind::kEvent);
  std::vector<std::uint64_t> first;
  for (int i = 0; i < 100; ++i) {
    const auto made = table.make();
    table.publish(made.handle);
    first.push_back(made.handle);
  }
  for (const std::uint64_t handle : first) table.drop(handle);
  for (int i = 0; i < 100; ++i) {
    const auto made = table.make();
    table.publish(made.handle);
    for (const std::uint64_t old : first) EXPECT_NE(made.handle, old);
  }
  for (const std::uint64_t handle : first) EXPECT_EQ(table.find(handle), nullptr);
}

TEST(HandleTable, VisitsTheLiveOnesAlone) {
  Table table(wire::HandleKind::kEvent);
  const auto kept = table.make();
  const auto gone = table.make();
  table.publish(kept.handle);
  table.publish(gone.handle);
  table.drop(gone.handle);
  std::vector<std::uint64_t> seen;
  table.for_each([&](std::uint64_t handle, const Thing&) { seen.push_back(handle); });
  EXPECT_EQ(seen, std::vector<std::uint64_t>{kept.handle});
}

TEST(HandleTable, ServesSeveralThreads) {
  Table table(wire::HandleKind::kEvent);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&table] {
      for (int i = 0; i < 2000; ++i) {
        const auto made = table.make();
        made.state->value = i;
        table.publish(made.handle);
        ASSERT_NE(table.find(made.handle), nullptr);
        ASSERT_TRUE(table.drop(made.handle));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int live = 0;
  table.for_each([&](std::uint64_t, const Thing&) { ++live; });
  EXPECT_EQ(live, 0);
}

}  // namespace
}  // namespace flyt::client
