#include "control/client/server_info.h"

#include <gtest/gtest.h>

namespace flyt::control {
namespace {

TEST(ServerInfo, ShowsNoControlCharactersOfTheServers) {
  const ServerInfo info{.url = "tcp://a:1",
                        .server = "a\x1b[2J\nb",
                        .driver =
                            "\x9b"
                            "1m"};
  for (const bool json : {false, true}) {
    const std::string text = describe(info, json);
    EXPECT_NE(text.find("a?[2J b"), std::string::npos) << text;
    EXPECT_NE(text.find("?1m"), std::string::npos) << text;
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_EQ(text.find('\x9b'), std::string::npos);
  }
}

}  // namespace
}  // namespace flyt::control
