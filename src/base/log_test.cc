#include "base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/fd.h"

namespace flyt {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    read_end_ = Fd(ends[0]);
    write_end_ = Fd(ends[1]);
  }
  std::string written() {
    write_end_.close();
    char buffer[512];
    const ssize_t got = ::read(read_end_.get(), buffer, sizeof buffer);
    return got > 0 ? std::string(buffer, static_cast<std::size_t>(got)) : std::string();
  }
  Fd read_end_;
  Fd write_end_;
};

TEST_F(LogTest, WritesFieldsBehindTheMessage) {
  Log("server", LogLevel::kInfo, write_end_.get())
      .warn("peer lost", {{"peer", "unix"}, {"after_ns", 12}});
  const std::string line = written();
  EXPECT_NE(line.find(" warn server: peer lost peer=unix after_ns=12\n"), std::string::npos)
      << line;
}

TEST_F(LogTest, EscapesControlCharactersOfAPeersText) {
  Log("server", LogLevel::kInfo, write_end_.get()).info("hello", {{"name", "a\x1b[31m\"\n"}});
  const std::string line = written();
  EXPECT_NE(line.find("name=\"a\\x1b[31m\\\"\\n\""), std::string::npos) << line;
}

TEST_F(LogTest, EscapesWhatIsNotAscii) {
  Log("server", LogLevel::kInfo, write_end_.get())
      .info("hello", {{"name",
                       "\xc2\x9b"
                       "31m"}});
  const std::string line = written();
  EXPECT_NE(line.find("name=\"\\xc2\\x9b31m\""), std::string::npos) << line;
}

TEST_F(LogTest, KeepsSilentBelowItsLevel) {
  Log("server", LogLevel::kWarn, write_end_.get()).info("unseen");
  EXPECT_EQ(written(), "");
}

}  // namespace
}  // namespace flyt
