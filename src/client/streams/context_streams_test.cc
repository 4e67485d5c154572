#include "client/streams/context_streams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"

namespace flyt::client {
namespace {

CUstream named(std::uint64_t number) { return static_cast<CUstream>(pointer_at(number)); }

std::vector<CUstream> all(ContextStreams& streams) {
  ContextStreams::Room room{};
  const Lock lock(streams.mutex());
  const auto found = streams.all(room);
  return {found.begin(), found.end()};
}

void end(ContextStreams& streams, CUstream stream) {
  const Lock lock(streams.mutex());
  streams.end(stream);
}

TEST(ContextStreamsTest, TheDefaultStreamIsThereFromTheBeginning) {
  ContextStreams streams;
  EXPECT_EQ(std::vector<CUstream>{CU_STREAM_LEGACY}, all(streams));
}

TEST(ContextStreamsTest, IndependentStreamsAreNamedUntilThereAreTooMany) {
  ContextStreams streams;
  for (std::uint64_t i = 0; i < ContextStreams::kIndependentMax; ++i) {
    streams.add(named(100 + i), CU_STREAM_NON_BLOCKING);
    const auto found = all(streams);
    ASSERT_EQ(i + 2, found.size());
    EXPECT_NE(found.end(), std::find(found.begin(), found.end(), named(100 + i)));
    EXPECT_EQ(CU_STREAM_LEGACY, found.back());
  }
  streams.add(named(200), CU_STREAM_NON_BLOCKING);
  EXPECT_TRUE(all(streams).empty());
}

TEST(ContextStreamsTest, StreamsThatTheDefaultOneWaitsForAreTheServers) {
  ContextStreams streams;
  streams.add(named(100), CU_STREAM_DEFAULT);
  EXPECT_TRUE(all(streams).empty());
}

TEST(ContextStreamsTest, AnEndedStreamIsTheServersUntilItsWorkIsKnownDone) {
  ContextStreams streams;
  streams.add(named(100), CU_STREAM_NON_BLOCKING);
  streams.add(named(101), CU_STREAM_DEFAULT);
  end(streams, named(100));
  const std::uint64_t one = streams.ended();
  end(streams, named(101));
  EXPECT_TRUE(all(streams).empty());
  streams.note_done(one);
  EXPECT_TRUE(all(streams).empty());
  streams.note_done(streams.ended());
  EXPECT_EQ(std::vector<CUstream>{CU_STREAM_LEGACY}, all(streams));
  // What was known before is known still.
  streams.note_done(one);
  EXPECT_FALSE(all(streams).empty());
}

TEST(ContextStreamsTest, WhatHasNoNameIsTheServersForGood) {
  ContextStreams streams;
  streams.note_unnamed();
  streams.note_done(streams.ended());
  EXPECT_TRUE(all(streams).empty());
  streams.reset();
  EXPECT_FALSE(all(streams).empty());
}

}  // namespace
}  // namespace flyt::client
