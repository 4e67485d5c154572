#include "client/transfers/upload_room.h"

#include <gtest/gtest.h>

#include <thread>

namespace flyt::client {
namespace {

constexpr std::uint64_t kHalf = UploadRoom::kBytesMax / 2;
CUstream stream(std::uint64_t number) { return reinterpret_cast<CUstream>(number); }

TEST(UploadRoomTest, WhoHasSentAllThatThereIsRoomForWaits) {
  UploadRoom room;
  EXPECT_TRUE(room.take(1, stream(100), kHalf));
  EXPECT_TRUE(room.take(1, stream(100), kHalf));
  EXPECT_FALSE(room.take(1, stream(100), 1));
  EXPECT_EQ(UploadRoom::kBytesMax, room.taken());
  room.give(1, stream(100));
  EXPECT_EQ(0u, room.taken());
  EXPECT_TRUE(room.take(1, stream(100), kHalf));
}

TEST(UploadRoomTest, AStreamThatHasNothingGetsAPieceWhateverOthersHave) {
  UploadRoom room;
  EXPECT_TRUE(room.take(1, stream(100), UploadRoom::kBytesMax));
  EXPECT_TRUE(room.take(1, stream(200), 10));
  EXPECT_FALSE(room.take(1, stream(200), 10));
  EXPECT_TRUE(room.take(2, stream(100), 10));
  room.give(1, stream(200));
  EXPECT_TRUE(room.take(1, stream(200), 10));
}

TEST(UploadRoomTest, APieceLargerThanTheRoomIsSentOnItsOwn) {
  UploadRoom room;
  EXPECT_TRUE(room.take(1, stream(100), 2 * UploadRoom::kBytesMax));
  EXPECT_FALSE(room.take(1, stream(100), 1));
}

TEST(UploadRoomTest, EachLaneHasRoomForSomeBlocks) {
  UploadRoom room;
  constexpr UploadRoom::LaneRoom kLanes{8, wire::kLaneBlocksKept};
  for (unsigned i = 0; i < wire::kLaneBlocksKept / kLanes.lanes; ++i) {
    EXPECT_TRUE(room.lanes_have_room(kLanes));
    EXPECT_TRUE(room.take_block(1, stream(100), 3, kLanes));
  }
  EXPECT_FALSE(room.lanes_have_room(kLanes));
  EXPECT_FALSE(room.take_block(1, stream(100), 3, kLanes));
  EXPECT_TRUE(room.take_block(1, stream(100), 4, kLanes));
  room.give(1, stream(100));
  EXPECT_TRUE(room.lanes_have_room(kLanes));
  EXPECT_TRUE(room.take_block(1, stream(100), 3, kLanes));
}

TEST(UploadRoomTest, AllLanesHaveRoomForWhatIsReady) {
  UploadRoom room;
  constexpr UploadRoom::LaneRoom kLanes{8, 5};
  for (unsigned i = 0; i < kLanes.blocks; ++i) {
    EXPECT_TRUE(room.lanes_have_room(kLanes));
    EXPECT_TRUE(room.take_block(1, stream(100), i, kLanes));
  }
  EXPECT_EQ(kLanes.blocks, room.blocks());
  EXPECT_FALSE(room.lanes_have_room(kLanes));
  EXPECT_FALSE(room.take_block(1, stream(100), 7, kLanes));
  EXPECT_TRUE(room.take_block(1, stream(100), 7, {8, 6}));
  room.give(1, stream(100));
  EXPECT_EQ(0u, room.blocks());
}

TEST(UploadRoomTest, NoMoreIsUnderWayThanIsReady) {
  UploadRoom room;
  EXPECT_TRUE(room.take(1, stream(100), 10, 20));
  EXPECT_TRUE(room.take(1, stream(100), 10, 20));
  EXPECT_FALSE(room.take(1, stream(100), 10, 20));
  EXPECT_TRUE(room.take(1, stream(100), 10, 30));
}

TEST(UploadRoomTest, ThreadsHaveDefaultStreamsOfTheirOwn) {
  UploadRoom room;
  EXPECT_TRUE(room.take(1, CU_STREAM_PER_THREAD, UploadRoom::kBytesMax));
  std::thread([&] {
    room.give(1, CU_STREAM_PER_THREAD);
    EXPECT_TRUE(room.take(1, CU_STREAM_PER_THREAD, 10));
    EXPECT_EQ(UploadRoom::kBytesMax + 10, room.taken());
    room.on_thread_ends();
  }).join();
  EXPECT_EQ(UploadRoom::kBytesMax, room.taken());
  EXPECT_FALSE(room.take(1, CU_STREAM_PER_THREAD, 10));
}

TEST(UploadRoomTest, WhatAContextHadIsForgottenWithIt) {
  UploadRoom room;
  EXPECT_TRUE(room.take(1, stream(100), kHalf));
  EXPECT_TRUE(room.take(2, stream(100), kHalf));
  room.on_context_destroyed(1);
  EXPECT_EQ(kHalf, room.taken());
  EXPECT_TRUE(room.take(2, stream(100), kHalf));
  EXPECT_FALSE(room.take(2, stream(100), kHalf));
}

}  // namespace
}  // namespace flyt::client
