#include "server/handles.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

namespace flyt::server {
namespace {

using wire::Handle;
using wire::HandleKind;

constexpr std::uint64_t kFirst = Handle::make(HandleKind::kEvent, 1, 5).value;
constexpr std::uint64_t kSecond = Handle::make(HandleKind::kEvent, 2, 5).value;

class HandlesTest : public testing::Test {
 protected:
  Handles handles_;
  int object_ = 0;
};

TEST_F(HandlesTest, FindsWhatWasPut) {
  ASSERT_TRUE(handles_.put(HandleKind::kEvent, kFirst, &object_));
  EXPECT_EQ(handles_.find(HandleKind::kEvent, kFirst), &object_);
  EXPECT_EQ(handles_.find_index(HandleKind::kEvent, 5), &object_);
}

TEST_F(HandlesTest, RefusesAHandleOfAnotherKind) {
  EXPECT_FALSE(handles_.put(HandleKind::kStream, kFirst, &object_));
  ASSERT_TRUE(handles_.put(HandleKind::kEvent, kFirst, &object_));
  EXPECT_EQ(handles_.find(HandleKind::kStream, kFirst), nullptr);
}

TEST_F(HandlesTest, RefusesGarbage) {
  EXPECT_FALSE(handles_.put(HandleKind::kEvent, 0, &object_));
  EXPECT_FALSE(handles_.put(HandleKind::kEvent, ~0ULL, &object_));
  EXPECT_EQ(handles_.find(HandleKind::kEvent, 0), nullptr);
  EXPECT_EQ(handles_.find(HandleKind::kEvent, ~0ULL), nullptr);
  EXPECT_FALSE(handles_.drop(HandleKind::kEvent, 12345));
}

TEST_F(HandlesTest, RefusesATakenSlot) {
  ASSERT_TRUE(handles_.put(HandleKind::kEvent, kFirst, &object_));
  EXPECT_FALSE(handles_.put(HandleKind::kEvent, kFirst, &object_));
  EXPECT_FALSE(handles_.put(HandleKind::kEvent, kSecond, &object_));
}

TEST_F(HandlesTest, ForgetsTheOldGeneration) {
  ASSERT_TRUE(handles_.put(HandleKind::kEvent, kFirst, &object_));
  EXPECT_TRUE(handles_.drop(HandleKind::kEvent, kFirst));
  EXPECT_FALSE(handles_.drop(HandleKind::kEvent, kFirst));
  ASSERT_TRUE(handles_.put(HandleKind::kEvent, kSecond, &object_));
  EXPECT_EQ(handles_.find(HandleKind::kEvent, kFirst), nullptr);
  EXPECT_EQ(handles_.all(HandleKind::kEvent).size(), 1U);
}

TEST_F(HandlesTest, TheHighestIndexIsAsGoodAsAny) {
  const std::uint64_t last = Handle::make(HandleKind::kEvent, 1, wire::kHandleIndexMax).value;
  EXPECT_EQ(handles_.find(HandleKind::kEvent, last), nullptr);
  ASSERT_TRUE(handles_.put(HandleKind::kEvent, last, &object_));
  ASSERT_TRUE(handles_.put(HandleKind::kEvent, kFirst, &object_));
  EXPECT_EQ(handles_.find(HandleKind::kEvent, last), &object_);
  EXPECT_EQ(handles_.find_index(HandleKind::kEvent, wire::kHandleIndexMax - 1), nullptr);
  EXPECT_EQ(handles_.all(HandleKind::kEvent).size(), 2U);
  EXPECT_TRUE(handles_.drop(HandleKind::kEvent, last));
  EXPECT_EQ(handles_.find(HandleKind::kEvent, last), nullptr);
}

TEST_F(HandlesTest, AHandleIsNeverFoundToBeAnotherOnesObject) {
  std::array<int, wire::kHandleGenerationMax + 1> objects{};
  std::atomic<bool> done{false};
  const auto of = [](std::uint32_t generation) {
    return Handle::make(HandleKind::kEvent, generation, 5).value;
  };
  // One slot, used again and again.
  std::thread owner([&] {
    constexpr std::uint32_t kRounds = 100;
    for (std::uint32_t i = 0; i < kRounds * wire::kHandleGenerationMax; ++i) {
      const std::uint32_t generation = i % wire::kHandleGenerationMax + 1;
      ASSERT_TRUE(handles_.put(HandleKind::kEvent, of(generation), &objects[generation]));
      ASSERT_TRUE(handles_.drop(HandleKind::kEvent, of(generation)));
    }
    done.store(true);
  });
  while (!done.load()) {
    const std::uint64_t seen = handles_.handle_at(HandleKind::kEvent, 5);
    void* const found = handles_.find(HandleKind::kEvent, seen);
    if (found != nullptr) {
      EXPECT_EQ(found, &objects[Handle{seen}.generation()]);
    }
  }
  owner.join();
}

}  // namespace
}  // namespace flyt::server
