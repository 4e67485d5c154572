#include "server/exchange.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <thread>

namespace flyt::server {
namespace {

class ExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto door = make_door();
    ASSERT_TRUE(door.ok());
    outside_ = std::move(door->outside);
    keeper_ = std::thread(
        [inside = std::move(door->inside)]() mutable { run_exchange(std::move(inside)); });
  }
  void TearDown() override {
    outside_.close();
    if (keeper_.joinable()) keeper_.join();
  }
  int door() const { return outside_.get(); }

  static SharedObject event(std::uint8_t mark) {
    SharedObject object{.kind = SharedKind::kEvent};
    object.facts[0] = std::byte{mark};
    return object;
  }
  static SharedObject memory(const char* text) {
    SharedObject object;
    object.file = Fd(::memfd_create("exchange-test", MFD_CLOEXEC));
    EXPECT_EQ(static_cast<ssize_t>(std::strlen(text)),
              ::pwrite(object.file.get(), text, std::strlen(text), 0));
    return object;
  }
  static std::string text_of(const Fd& file) {
    char text[16] = {};
    EXPECT_LT(0, ::pread(file.get(), text, sizeof text - 1, 0));
    return text;
  }

 private:
  Fd outside_;
  std::thread keeper_;
};

TEST_F(ExchangeTest, HandsFilesAndFactsToSessionsOfTheSameUser) {
  Exchange giver(door(), 7);
  Exchange taker(door(), 7);
  const auto file = giver.share(memory("hello"));
  const auto fact = giver.share(event(42));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(fact.ok());
  EXPECT_NE(*file, *fact);
  const auto found = taker.find(*file, SharedKind::kMemory);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ("hello", text_of(found->file));
  const auto other = taker.find(*fact, SharedKind::kEvent);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(std::byte{42}, other->facts[0]);
}

TEST_F(ExchangeTest, ShowsNothingToOtherUsers) {
  Exchange giver(door(), 7);
  Exchange stranger(door(), 8);
  const auto token = giver.share(event(1));
  ASSERT_TRUE(token.ok());
  EXPECT_FALSE(stranger.find(*token, SharedKind::kEvent).ok());
  stranger.withdraw(*token);
  EXPECT_TRUE(giver.find(*token, SharedKind::kEvent).ok());
}

TEST_F(ExchangeTest, KnowsNoForgedTokenAndNoOtherKind) {
  Exchange giver(door(), 7);
  const auto token = giver.share(event(1));
  ASSERT_TRUE(token.ok());
  EXPECT_FALSE(giver.find(*token, SharedKind::kMemory).ok());
  EXPECT_FALSE(giver.find(Token{}, SharedKind::kEvent).ok());
  for (std::size_t i = 0; i < token->size(); ++i) {
    Token forged = *token;
    forged[i] ^= std::byte{1};
    EXPECT_FALSE(giver.find(forged, SharedKind::kEvent).ok()) << i;
  }
}

TEST_F(ExchangeTest, ForgetsWhatIsWithdrawnAndWhatASessionLeaves) {
  Exchange taker(door(), 7);
  std::optional<Exchange> giver(std::in_place, door(), 7);
  const auto first = giver->share(memory("first"));
  const auto second = giver->share(memory("second"));
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(second.ok());
  const auto held = taker.find(*second, SharedKind::kMemory);
  ASSERT_TRUE(held.ok());
  taker.withdraw(*first);  // Not its own.
  EXPECT_TRUE(taker.find(*first, SharedKind::kMemory).ok());
  giver->withdraw(*first);
  EXPECT_FALSE(taker.find(*first, SharedKind::kMemory).ok());
  giver.reset();
  // The exchange may see the question before the end of the session that it asks about.
  while (taker.find(*second, SharedKind::kMemory).ok()) std::this_thread::yield();
  EXPECT_EQ("second", text_of(held->file));
}

TEST_F(ExchangeTest, TakesOnlySoMuchFromOneSession) {
  Exchange giver(door(), 7);
  for (std::size_t i = 0; i < Exchange::kObjectsMax; ++i) {
    ASSERT_TRUE(giver.share(event(0)).ok()) << i;
  }
  EXPECT_FALSE(giver.share(event(0)).ok());
  Exchange other(door(), 7);
  EXPECT_TRUE(other.share(event(0)).ok());
}

TEST(Exchange, WithoutADoorSharesNothing) {
  Exchange nothing(-1, 0);
  EXPECT_FALSE(nothing.present());
  EXPECT_FALSE(nothing.share(SharedObject{.kind = SharedKind::kEvent}).ok());
}

}  // namespace
}  // namespace flyt::server
