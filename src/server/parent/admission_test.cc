#include "server/parent/admission.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

namespace flyt::server {
namespace {

constexpr std::int64_t kNow = 1800000000;
using For = Admission::For;

wire::TokenKey some_key(unsigned char first = 1) {
  wire::TokenKey key{};
  key[0] = std::byte{first};
  return key;
}

std::unique_ptr<Admission> make(const std::string& lease = "vm", unsigned char key = 1,
                                const std::string& book = "") {
  auto made = Admission::create(lease, some_key(key), book);
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

std::string why(const Status& status) { return status.ok() ? "" : status.error().message; }

TEST(Admission, OfWhoWaitsTakesNothingAndNeedsWhatIsLeft) {
  const auto admission = make();
  const std::string token = *admission->new_token(60, 1, kNow);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(why(admission->admit(token, "a", For::kWaiting, kNow)), "");
  }
  EXPECT_EQ(why(admission->admit(token, "b", For::kWaiting, kNow)),
            "the token is used from elsewhere");
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow)), "");
  EXPECT_EQ(why(admission->admit(token, "a", For::kWaiting, kNow)), "the token is used up");
}

TEST(Admission, AdmitsAsManySessionsAsTheTokenSays) {
  const auto admission = make();
  const std::string token = *admission->new_token(60, 2, kNow);
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow)), "");
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow + 59)), "");
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow + 59)), "the token is used up");
  EXPECT_EQ(why(admission->admit(token, "a", For::kMonitor, kNow + 59)), "");
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow + 60)), "the token has expired");
}

TEST(Admission, DoesNotCountWhatIsGivenBack) {
  const auto admission = make();
  const std::string token = *admission->new_token(60, 1, kNow);
  const std::string other = *admission->new_token(60, 1, kNow);
  std::optional<wire::TokenNonce> charged;
  EXPECT_EQ(why(admission->admit(token, "a", For::kMonitor, kNow, &charged)), "");
  EXPECT_EQ(why(admission->admit(token, "a", For::kWaiting, kNow, &charged)), "");
  EXPECT_FALSE(charged);
  EXPECT_EQ(why(admission->admit(other, "a", For::kSession, kNow)), "");
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow, &charged)), "");
  ASSERT_TRUE(charged);
  admission->give_back(*charged);
  // No more than was taken.
  admission->give_back(*charged);
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow)), "");
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow)), "the token is used up");
  EXPECT_EQ(why(admission->admit(other, "a", For::kSession, kNow)), "the token is used up");
}

TEST(Admission, DoesNotCountMonitors) {
  const auto admission = make();
  const std::string token = *admission->new_token(60, 1, kNow);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(why(admission->admit(token, "a", For::kMonitor, kNow)), "");
  }
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow)), "");
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow)), "the token is used up");
}

TEST(Admission, BindsATokenToWhoUsesItFirst) {
  const auto admission = make();
  const std::string token = *admission->new_token(60, 9, kNow);
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow)), "");
  EXPECT_EQ(why(admission->admit(token, "b", For::kSession, kNow)),
            "the token is used from elsewhere");
  EXPECT_EQ(why(admission->admit(token, "b", For::kMonitor, kNow)),
            "the token is used from elsewhere");
}

TEST(Admission, RefusesForeignTokens) {
  const auto admission = make();
  EXPECT_EQ(why(admission->admit("", "a", For::kSession, kNow)), "a token is needed");
  EXPECT_EQ(why(admission->admit("garbage", "a", For::kSession, kNow)),
            "the credential is no token");
  EXPECT_EQ(why(admission->admit(std::string(1024, 'f'), "a", For::kSession, kNow)),
            "the credential is no token");
  const std::string foreign = *make("vm", 2)->new_token(60, 1, kNow);
  EXPECT_EQ(why(admission->admit(foreign, "a", For::kSession, kNow)),
            "the token is not of this server");
  const std::string other = *make("vm-2")->new_token(60, 1, kNow);
  EXPECT_EQ(why(admission->admit(other, "a", For::kSession, kNow)),
            "the token is of another lease");
  const wire::Token late{.lease = "vm", .expiry = kNow + Admission::kTokenSecondsMax + 1};
  EXPECT_EQ(why(admission->admit(wire::sign(late, some_key()), "a", For::kSession, kNow)),
            "the token is valid for too long");
}

TEST(Admission, RemembersABoundedNumberUntilTheyExpire) {
  const auto admission = make();
  for (std::size_t i = 0; i < Admission::kTokensMax; ++i) {
    const std::string token = *admission->new_token(i == 0 ? 10 : 60, 1, kNow);
    ASSERT_EQ(why(admission->admit(token, "a", For::kSession, kNow)), "");
  }
  const std::string more = *admission->new_token(60, 1, kNow);
  EXPECT_EQ(why(admission->admit(more, "a", For::kSession, kNow)), "too many tokens are in use");
  EXPECT_EQ(why(admission->admit(more, "a", For::kSession, kNow + 10)), "");
}

TEST(Admission, IsSharedByProcesses) {
  const auto admission = make();
  const std::string token = *admission->new_token(60, 1, kNow);
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(admission->admit(token, "a", For::kSession, kNow).ok() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow)), "the token is used up");
}

class AdmissionInAFile : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/tokens"; }
  std::string refusal() const {
    const auto made = Admission::create("vm", some_key(), path());
    return made ? "" : made.error().message;
  }

  std::string folder_ = "/tmp/flyt-book-XXXXXX";
};

TEST_F(AdmissionInAFile, RemembersWhoUsesATokenAndHowOftenForTheNextServer) {
  auto admission = make("vm", 1, path());
  const std::string token = *admission->new_token(60, 2, kNow);
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow)), "");
  admission = make("vm", 1, path());
  EXPECT_EQ(why(admission->admit(token, "b", For::kSession, kNow)),
            "the token is used from elsewhere");
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow)), "");
  admission = make("vm", 1, path());
  EXPECT_EQ(why(admission->admit(token, "a", For::kSession, kNow)), "the token is used up");
}

// Whatever it is doing: it is killed between two stores, or behind the door.
TEST_F(AdmissionInAFile, IsNotLockedByAServerThatWasKilled) {
  const std::string token = *make("vm", 1, path())->new_token(60, 60000, kNow);
  for (int i = 0; i < 20; ++i) {
    std::array<int, 2> admitted{};
    ASSERT_EQ(::pipe(admitted.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto admission = Admission::create("vm", some_key(), path());
      while (admission && (*admission)->admit(token, "a", For::kMonitor, kNow).ok()) {
        if (::write(admitted[1], "", 1) != 1) break;
      }
      ::_exit(1);
    }
    ::close(admitted[1]);
    char one = 0;
    EXPECT_EQ(::read(admitted[0], &one, 1), 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(admitted[0]);
    EXPECT_EQ(why(make("vm", 1, path())->admit(token, "b", For::kMonitor, kNow)),
              "the token is used from elsewhere");
  }
}

TEST_F(AdmissionInAFile, RefusesABookThatIsNone) {
  const auto put = [this](std::size_t at, const std::string& bytes) {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  };
  constexpr std::size_t kEntry = sizeof(TokenBook::Entry);
  const std::string all_ones(8, '\xff');
  make("vm", 1, path());
  // An expiry, and how often a token was used: the last 8 bytes, and those at 48, behind the head.
  for (const std::size_t field : {kEntry - 8, std::size_t{48}}) {
    put(kEntry + 7 * kEntry + field, all_ones);
    EXPECT_EQ(refusal(), path() +
                             " is a damaged token book; remove it: then the tokens in use are"
                             " nobody's again");
    put(kEntry + 7 * kEntry + field, std::string(8, '\0'));
  }
  EXPECT_EQ(refusal(), "");
  put(0, all_ones);
  EXPECT_NE(refusal().find("of another version; remove it"), std::string::npos) << refusal();
  std::filesystem::remove(path());
  std::filesystem::create_directory(path());
  EXPECT_NE(refusal(), "");
}

TEST(Admission, MakesNoTokensWithoutItsKey) {
  const auto admission = make();
  EXPECT_FALSE(admission->new_token(0, 1, kNow).ok());
  EXPECT_FALSE(admission->new_token(86401, 1, kNow).ok());
  EXPECT_FALSE(admission->new_token(1, 0, kNow).ok());
  EXPECT_FALSE(admission->new_token(1, 65536, kNow).ok());
  const std::string token = *admission->new_token(60, 1, kNow);
  admission->forget_key();
  EXPECT_FALSE(make()->admit(*admission->new_token(60, 1, kNow), "a", For::kSession, kNow).ok());
  EXPECT_FALSE(admission->admit(token, "a", For::kSession, kNow).ok());
}

TEST(Admission, TakesAKeyThatNobodyElseCanRead) {
  std::string folder = "/tmp/flyt-key-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/key";
  const auto write = [&](std::size_t bytes, mode_t mode) {
    std::ofstream(path, std::ios::trunc) << std::string(bytes, 'k');
    ::chmod(path.c_str(), mode);
    return Admission::read_key(path).ok();
  };
  EXPECT_FALSE(Admission::read_key(path).ok());
  EXPECT_TRUE(write(32, 0600));
  EXPECT_TRUE(write(32, 0400));
  ::chmod(path.c_str(), 0600);
  EXPECT_FALSE(write(31, 0600));
  EXPECT_FALSE(write(33, 0600));
  EXPECT_FALSE(write(32, 0640));
  ::chmod(path.c_str(), 0600);
  EXPECT_FALSE(write(32, 0604));
  EXPECT_FALSE(Admission::read_key(folder).ok());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace flyt::server
