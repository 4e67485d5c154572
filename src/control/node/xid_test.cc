#include "control/node/xid.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace flyt::node {
namespace {

TEST(Xid, IsKnownOnceAndFound) {
  const auto all = known_xids();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](const XidFacts& a, const XidFacts& b) {
    return a.number < b.number;
  }));
  for (const XidFacts& facts : all) {
    EXPECT_EQ(kind_of_xid(facts.number), facts.kind) << facts.number;
    EXPECT_EQ(xid_number(facts.number), facts.number);
    EXPECT_NE(xid_text(facts.number).find(facts.meaning), std::string::npos);
    EXPECT_EQ(std::count_if(all.begin(), all.end(),
                            [&](const XidFacts& other) { return other.number == facts.number; }),
              1)
        << facts.number;
  }
}

// A tenant would else take a GPU from all others.
TEST(Xid, OfAProgramNeverFailsAGpu) {
  for (const std::uint32_t number : {8u, 13u, 31u, 32u, 43u, 45u, 68u, 69u, 109u, 137u}) {
    EXPECT_EQ(kind_of_xid(number), XidKind::kProgram) << number;
  }
  // Nor one of which nobody here knows.
  EXPECT_EQ(kind_of_xid(37), XidKind::kProgram);
  EXPECT_EQ(kind_of_xid(kOtherXids), XidKind::kProgram);
}

TEST(Xid, AfterWhichAGpuIsOfNoUseFailsIt) {
  for (const std::uint32_t number : {62u, 64u, 79u, 95u, 110u, 119u, 120u, 140u, 143u}) {
    EXPECT_EQ(kind_of_xid(number), XidKind::kFatal) << number;
  }
  for (const std::uint32_t number : {46u, 48u, 63u, 74u, 92u, 94u, 121u, 154u, 158u}) {
    EXPECT_EQ(kind_of_xid(number), XidKind::kMachine) << number;
  }
}

TEST(Xid, BeyondTheLastIsOneOfTheOthers) {
  EXPECT_EQ(xid_number(kXidMax), kXidMax);
  EXPECT_EQ(xid_number(kXidMax + 1), kOtherXids);
  EXPECT_EQ(xid_number(999), kOtherXids);
  EXPECT_EQ(xid_number(~std::uint64_t{0}), kOtherXids);
}

TEST(Xid, IsToldWithWhatItMeansAndHowOften) {
  EXPECT_EQ(xids_text({{79, 1}}), "Xid 79 (the GPU has fallen off the bus)");
  EXPECT_EQ(xids_text({{kOtherXids, 1}, {37, 2}, {92, 3}}),
            "an Xid beyond 255; Xid 37, 2 times; Xid 92 (many ECC errors of one bit), 3 times");
}

}  // namespace
}  // namespace flyt::node
