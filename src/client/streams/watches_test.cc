#include "client/streams/watches.h"

#include <gtest/gtest.h>

#include "wire/limits.h"

namespace flyt::client {
namespace {

using Known = Watches::Known;
constexpr std::uint64_t kEvent = 77;

TEST(Watches, SaysNotReadyUntilTheServerTellsTheEnd) {
  Watches watches;
  const std::uint64_t token = watches.begin(kEvent, 1);
  ASSERT_NE(token, 0u);
  EXPECT_EQ(watches.look(token, kEvent, 1), Known::kNotReady);
  EXPECT_EQ(watches.look(token, kEvent, 1), Known::kNotReady);
  watches.on_completed(token, 0);
  EXPECT_EQ(watches.look(token, kEvent, 1), Known::kDone);
  // Told once.
  EXPECT_EQ(watches.look(token, kEvent, 1), Known::kNothing);
}

TEST(Watches, HasTheServerAskedAboutAnEndThatIsAnError) {
  Watches watches;
  const std::uint64_t token = watches.begin(kEvent, 1);
  watches.on_completed(token, 700);
  EXPECT_EQ(watches.look(token, kEvent, 1), Known::kNothing);
}

TEST(Watches, SaysNothingAboutAnotherRecordOrAnotherEvent) {
  Watches watches;
  std::uint64_t token = watches.begin(kEvent, 1);
  watches.on_completed(token, 0);
  EXPECT_EQ(watches.look(token, kEvent, 2), Known::kNothing);
  token = watches.begin(kEvent, 1);
  watches.on_completed(token, 0);
  EXPECT_EQ(watches.look(token, kEvent + 1, 1), Known::kNothing);
}

TEST(Watches, IsNotSureOnceTheProgramMayKnowMore) {
  Watches watches;
  const std::uint64_t token = watches.begin(kEvent, 1);
  watches.note_revelation();
  EXPECT_EQ(watches.look(token, kEvent, 1), Known::kMayBeDone);
  watches.renew(token, watches.revelations());
  EXPECT_EQ(watches.look(token, kEvent, 1), Known::kNotReady);
  // The end of another is such a thing, too.
  const std::uint64_t other = watches.begin(kEvent + 1, 1);
  watches.on_completed(other, 0);
  EXPECT_EQ(watches.look(token, kEvent, 1), Known::kMayBeDone);
}

TEST(Watches, TakesNoNoticeOfTokensThatNoWatchHas) {
  Watches watches;
  const std::uint64_t token = watches.begin(kEvent, 1);
  for (const std::uint64_t unknown : {std::uint64_t{0}, token + 1, ~std::uint64_t{0}}) {
    watches.on_completed(unknown, 0);
    EXPECT_EQ(watches.look(unknown, kEvent, 1), Known::kNothing);
  }
  watches.drop(token);
  watches.on_completed(token, 0);
  EXPECT_EQ(watches.look(token, kEvent, 1), Known::kNothing);
}

TEST(Watches, HasOneEndOnly) {
  Watches watches;
  const std::uint64_t token = watches.begin(kEvent, 1);
  watches.on_completed(token, 700);
  watches.on_completed(token, 0);
  EXPECT_EQ(watches.look(token, kEvent, 1), Known::kNothing);
}

TEST(Watches, AreBoundedAndThoseThatAreOverMakeRoom) {
  Watches watches;
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < wire::kWatchesMax; ++i) {
    last = watches.begin(i, 1);
    ASSERT_NE(last, 0u);
  }
  EXPECT_EQ(watches.begin(kEvent, 1), 0u);
  watches.on_completed(last, 0);
  EXPECT_NE(watches.begin(kEvent, 1), 0u);
  EXPECT_EQ(watches.begin(kEvent, 1), 0u);
}

}  // namespace
}  // namespace flyt::client
