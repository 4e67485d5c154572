#include "control/client/config.h"

#include <gtest/gtest.h>

namespace flyt::vm {
namespace {

std::string error_of(std::string_view text) {
  const auto config = parse_config(text, "client.toml");
  return config ? "" : config.error().message;
}

constexpr std::string_view kLocal = "[cluster]\naddresses = [\"unix:///run/flyt/cluster.sock\"]\n";

TEST(ClientConfig, ReadsWhatIsSetAndHasDefaults) {
  const auto config = parse_config(
      "[vm]\nname = \"vm-7\"\nhost = \"host-1\"\n"
      "[cluster]\naddresses = [\"one:7700\", \"two:7700\"]\n"
      "cert = \"/c.crt\"\nkey = \"/c.key\"\nca = \"/ca.crt\"\n"
      "[programs]\nusers = [\"root\", \"1000\"]\n[lease]\ngrace = \"2m\"\n",
      "client.toml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->addresses.size(), 2u);
  EXPECT_EQ(config->grace_seconds, 120u);
  EXPECT_EQ(config->socket, "/run/flyt/client.sock");
  const auto users = users_of(*config);
  ASSERT_TRUE(users);
  EXPECT_EQ(*users, (std::vector<std::uint32_t>{0, 1000}));
}

TEST(ClientConfig, NeedsNoCertificateForASocketOfThisMachine) { EXPECT_EQ(error_of(kLocal), ""); }

TEST(ClientConfig, SaysWhatIsWrongAndWhere) {
  EXPECT_NE(error_of("").find("client.toml: cluster.addresses is missing"), std::string::npos);
  EXPECT_NE(error_of("[cluster]\naddresses = [\"one:7700\"]\n").find("cluster.cert"),
            std::string::npos);
  EXPECT_NE(error_of("[cluster]\naddresses = [\"one\"]\n").find("\"one\""), std::string::npos);
  const std::string local(kLocal);
  EXPECT_NE(error_of(local + "crl = \"/crl.pem\"\n").find("cluster.crl needs cluster.ca"),
            std::string::npos);
  EXPECT_NE(error_of(local + "[programs]\nmax = 0\n").find("client.toml:4: programs.max"),
            std::string::npos);
  EXPECT_NE(error_of(local + "[lease]\ngrase = 1\n").find("client.toml:4: unknown key lease.grase"),
            std::string::npos);
  EXPECT_NE(error_of(local + "[programs]\nsocket = \"/" + std::string(120, 'x') + "\"\n")
                .find("programs.socket"),
            std::string::npos);
}

TEST(ClientConfig, SaysWhichUserIsNotKnown) {
  const auto config =
      parse_config(std::string(kLocal) + "[programs]\nusers = [\"nobody-of-that-name\"]\n", "c");
  ASSERT_TRUE(config);
  EXPECT_NE(users_of(*config).error().message.find("nobody-of-that-name"), std::string::npos);
}

}  // namespace
}  // namespace flyt::vm
