// The codec behind every command: limits, views and what is not a value.
#include "wire/fields.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "wire/describe.h"

namespace flyt::wire {
namespace {

struct Sample {
  static constexpr std::string_view kName = "sample";
  bool flag{};
  std::optional<std::uint16_t> maybe{};
  std::string_view name{};
  List<std::uint32_t> values{};

  template <class Self, class Visitor>
  static void each(Self& self, Visitor&& visit) {
    visit("flag", self.flag);
    visit("maybe", self.maybe);
    visit("name", self.name, 8U);
    visit("values", self.values, 3U);
  }
};

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

TEST(Fields, AreEncodedAsTheFormatSays) {
  const std::array<std::uint32_t, 2> values{1, 0x01020304};
  const Sample sample{.flag = true,
                      .maybe = std::uint16_t{0x0506},
                      .name = "ab",
                      .values = List<std::uint32_t>(values)};
  std::vector<std::byte> out(encoded_size(sample));
  Writer writer(out);
  encode(writer, sample);
  EXPECT_EQ(out, bytes({1, 1, 6, 5, 2, 0, 0, 0, 'a', 'b', 2, 0, 0, 0, 1, 0, 0, 0, 4, 3, 2, 1}));
}

TEST(Fields, ListsAreReadWhereTheyStandInTheFrame) {
  const auto frame = bytes({0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4, 3, 2, 1});
  Sample sample;
  ASSERT_TRUE(decode(frame, sample));
  EXPECT_EQ(sample.values.size(), 2U);
  EXPECT_EQ(sample.values[1], 0x01020304U);
  EXPECT_EQ(sample.values.to_vector(), (std::vector<std::uint32_t>{1, 0x01020304}));
  EXPECT_EQ(static_cast<const void*>(sample.values.bytes().data()), &frame[10]);
}

TEST(Fields, AFlagOtherThanZeroOrOneIsRefused) {
  Sample sample;
  EXPECT_TRUE(decode(bytes({1, 0, 0, 0, 0, 0, 0, 0, 0, 0}), sample));
  EXPECT_FALSE(decode(bytes({2, 0, 0, 0, 0, 0, 0, 0, 0, 0}), sample));
  EXPECT_FALSE(decode(bytes({1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}), sample));
}

TEST(Fields, ALengthThatWouldOverflowIsRefused) {
  Sample sample;
  EXPECT_FALSE(decode(bytes({0, 0, 255, 255, 255, 255, 0, 0, 0, 0}), sample));
  EXPECT_FALSE(decode(bytes({0, 0, 0, 0, 0, 0, 0, 0, 0, 64}), sample));
}

TEST(Fields, ListsCopyNoMoreThanThereIsRoomFor) {
  const std::array<std::uint32_t, 3> values{1, 2, 3};
  std::array<std::uint32_t, 2> room{};
  List<std::uint32_t>(values).copy_to(room);
  EXPECT_EQ(room[1], 2U);
}

TEST(Fields, DescribeThemselves) {
  const auto frame = bytes({1, 1, 6, 5, 2, 0, 0, 0, 'a', 7, 0, 0, 0, 0});
  EXPECT_EQ(describe<Sample>(frame), "sample(flag=1, maybe=2 bytes, name=\"a?\", values=0 values)");
  EXPECT_EQ(describe<Sample>({}), "sample(malformed)");
}

}  // namespace
}  // namespace flyt::wire
