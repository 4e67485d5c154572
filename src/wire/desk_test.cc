#include "wire/desk.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace flyt::wire {
namespace {

std::vector<DeskMessage> all_messages() {
  return {DeskAsk{DeskPurpose::kAwait, 4711, "python3"}, DeskWaiting{2, "all GPUs are taken"},
          DeskGranted{9, "tcp://gpu-host:7710", "token"},
          DeskRefused{ErrorCode::kDenied, "not for you"}, DeskStatus{"{\"phase\": \"ready\"}"}};
}

TEST(Desk, MessagesSurviveARoundTrip) {
  std::vector<std::byte> stream;
  for (const DeskMessage& message : all_messages()) {
    const auto bytes = encode(message);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  }
  for (const DeskMessage& message : all_messages()) {
    const auto taken = take_desk_message(stream);
    ASSERT_TRUE(taken);
    ASSERT_TRUE(taken->has_value());
    EXPECT_EQ(**taken, message);
  }
  EXPECT_TRUE(stream.empty());
}

TEST(Desk, WaitsForTheRestOfAMessage) {
  for (const DeskMessage& message : all_messages()) {
    const auto bytes = encode(message);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      std::vector<std::byte> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
      const auto taken = take_desk_message(part);
      ASSERT_TRUE(taken) << size;
      EXPECT_FALSE(taken->has_value()) << size;
      EXPECT_EQ(part.size(), size);
    }
  }
}

TEST(Desk, RefusesABodyThatEndsElsewhere) {
  for (const DeskMessage& message : all_messages()) {
    for (const int by : {-1, 1}) {
      auto bytes = encode(message);
      bytes.resize(bytes.size() + static_cast<std::size_t>(by));
      const auto size = static_cast<std::uint32_t>(bytes.size() - kDeskHeaderBytes);
      Writer(MutableBytes(bytes).subspan(12)).write(size);
      EXPECT_FALSE(take_desk_message(bytes));
    }
  }
}

TEST(Desk, RefusesWhatIsOutOfRange) {
  const auto changed = [](const DeskMessage& message, std::size_t offset, std::uint16_t value) {
    auto bytes = encode(message);
    Writer(MutableBytes(bytes).subspan(offset)).write(value);
    const auto taken = take_desk_message(bytes);
    return taken ? ErrorCode::kLost : taken.error().code;
  };
  const DeskAsk ask;
  EXPECT_EQ(changed(ask, 0, 0), ErrorCode::kInvalid);
  EXPECT_EQ(changed(ask, 8, 2), ErrorCode::kUnsupported);
  EXPECT_EQ(changed(ask, 10, 0), ErrorCode::kInvalid);
  EXPECT_EQ(changed(ask, 10, 6), ErrorCode::kInvalid);
  EXPECT_EQ(changed(ask, 16, 0), ErrorCode::kInvalid);
  EXPECT_EQ(changed(ask, 16, 5), ErrorCode::kInvalid);
  EXPECT_EQ(changed(DeskRefused{}, 16, 8), ErrorCode::kInvalid);
  EXPECT_EQ(changed(DeskGranted{}, 10, 3), ErrorCode::kInvalid);
  auto bytes = encode(ask);
  Writer(MutableBytes(bytes).subspan(12)).write(static_cast<std::uint32_t>(kDeskBodyBytesMax + 1));
  EXPECT_EQ(take_desk_message(bytes).error().code, ErrorCode::kInvalid);
  bytes = encode(DeskStatus{std::string(100, 'x')});
  Writer(MutableBytes(bytes).subspan(16)).write(static_cast<std::uint16_t>(kDeskTextBytesMax + 1));
  EXPECT_EQ(take_desk_message(bytes).error().code, ErrorCode::kInvalid);
}

TEST(Desk, CutsTextsThatAreTooLong) {
  auto bytes = encode(DeskGranted{1, std::string(5000, 'u'), std::string(5000, 't')});
  const auto taken = take_desk_message(bytes);
  ASSERT_TRUE(taken && taken->has_value());
  EXPECT_EQ(std::get<DeskGranted>(**taken).url.size(), kDeskTextBytesMax);
}

TEST(Desk, SurvivesRandomBytes) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const auto messages = all_messages();
  for (int run = 0; run < 20000; ++run) {
    auto bytes = encode(messages[random.below(messages.size())]);
    for (std::uint64_t i = 0; i <= random.below(4); ++i) {
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.next());
    }
    if (random.one_in(3)) bytes.resize(random.below(bytes.size() + 8));
    const auto taken = take_desk_message(bytes);
    if (!taken || !taken->has_value()) continue;
    auto again = encode(**taken);
    const auto same = take_desk_message(again);
    ASSERT_TRUE(same && same->has_value());
    EXPECT_EQ(**same, **taken);
  }
}

}  // namespace
}  // namespace flyt::wire
