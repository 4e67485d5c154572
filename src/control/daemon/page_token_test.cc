#include "control/daemon/page_token.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace flyt::control {
namespace {

class PageToken : public ::testing::Test {
 protected:
  void TearDown() override { ::unlink(path_.c_str()); }
  void write(const std::string& text) { std::ofstream(path_) << text; }
  bool admits(const std::string& bearer, const std::string& path = "/metrics") {
    const Status status = admit_({.path = path, .query = {}, .certificate = {}, .bearer = bearer});
    EXPECT_TRUE(status || status.error().code == ErrorCode::kDenied);
    return status.ok();
  }
  const std::string path_ = ::testing::TempDir() + "flyt-page-token-" + std::to_string(::getpid());
  const PageAdmission admit_ = admit_token(path_);
};

TEST_F(PageToken, AdmitsWhoSendsWhatTheFileHas) {
  write("0123456789abcdef\n");
  EXPECT_TRUE(admits("0123456789abcdef"));
  for (const char* other : {"", "0123456789abcde", "0123456789abcdef\n", "0123456789abcdeg"}) {
    EXPECT_FALSE(admits(other)) << other;
  }
}

TEST_F(PageToken, HealthIsForEverybody) {
  EXPECT_TRUE(admits("", "/healthz"));
  EXPECT_FALSE(admits("", "/healthz/"));
  EXPECT_FALSE(admits("", "/readyz"));
}

TEST_F(PageToken, AFileThatIsReplacedHoldsAtOnce) {
  write("0123456789abcdef");
  EXPECT_TRUE(admits("0123456789abcdef"));
  write("fedcba9876543210");
  EXPECT_FALSE(admits("0123456789abcdef"));
  EXPECT_TRUE(admits("fedcba9876543210"));
}

TEST_F(PageToken, NoTokenAdmitsNobody) {
  for (const std::string& text : {std::string(), std::string("\n"), std::string("short"),
                                  std::string(kPageTokenBytesMax + 1, 'x')}) {
    write(text);
    EXPECT_FALSE(admits(text));
    EXPECT_FALSE(admits(""));
  }
  EXPECT_FALSE(admit_token("")({.path = "/metrics", .query = {}, .certificate = {}, .bearer = {}}));
  EXPECT_FALSE(
      admit_token("/nowhere")({.path = "/metrics", .query = {}, .certificate = {}, .bearer = {}}));
}

}  // namespace
}  // namespace flyt::control
