#include "control/node/config.h"

#include <gtest/gtest.h>

namespace flyt::node {
namespace {

std::string error_of(std::string_view text) {
  auto config = parse_config(text, "node.toml");
  if (config) {
    const Status status = finish(*config, "/opt/flyt/bin", {});
    return status ? "" : status.error().message;
  }
  return config.error().message;
}

TEST(Config, HasDefaultsForEverything) {
  auto config = parse_config("", "node.toml");
  ASSERT_TRUE(config);
  ASSERT_TRUE(finish(*config, "/opt/flyt/bin", control::system_folders("node")));
  EXPECT_EQ(config->server, "/opt/flyt/bin/flyt-server");
  EXPECT_EQ(config->api_unix, "/run/flyt/node.sock");
  EXPECT_EQ(config->state_folder, "/var/lib/flyt/node");
  EXPECT_FALSE(config->name.empty());
  EXPECT_EQ(config->overhead_per_lease(), 9 * (544ull << 20));
}

TEST(Config, KeepsThingsWhereItsUnitMay) {
  ::setenv("STATE_DIRECTORY", "/var/lib/flyt/here:/var/lib/flyt/there", 1);
  ::setenv("RUNTIME_DIRECTORY", "/run/here", 1);
  auto config = parse_config("", "node.toml");
  ASSERT_TRUE(config);
  ASSERT_TRUE(finish(*config, "/opt/flyt/bin", control::own_folders("node")));
  EXPECT_EQ(config->state_folder, "/var/lib/flyt/here");
  EXPECT_EQ(config->api_unix, "/run/here/node.sock");
  ::unsetenv("STATE_DIRECTORY");
  ::unsetenv("RUNTIME_DIRECTORY");
}

TEST(Config, KnowsThatSoftwareGpusHaveNoOverhead) {
  auto config = parse_config("[gpus]\nsoft = 2", "node.toml");
  ASSERT_TRUE(config);
  ASSERT_TRUE(finish(*config, "/opt/flyt/bin", {}));
  EXPECT_EQ(config->overhead_per_lease(), 0u);
  EXPECT_EQ(config->reserve_bytes, 0u);
}

TEST(Config, AllowsSoManySessionsOnAGpuAsTheModeTakes) {
  const auto sessions = [](std::string_view text) {
    auto config = parse_config(text, "node.toml");
    EXPECT_TRUE(config && finish(*config, "/opt/flyt/bin", {}));
    return config ? config->gpu_sessions : ~0U;
  };
  EXPECT_EQ(sessions(""), 0u);
  EXPECT_EQ(sessions("[gpus]\nmode = \"shared\""), kSharedGpuSessions);
  EXPECT_EQ(sessions("[gpus]\nmode = \"shared\"\nsessions = 0"), 0u);
  EXPECT_EQ(sessions("[gpus]\nsessions = 8"), 8u);
}

TEST(Config, ReadsEveryKey) {
  const auto config = parse_config(R"(
[node]
name = "gpu-host"
state = "/srv/state"
run = "/srv/run"
server = "/opt/flyt-server"
log_level = "debug"
[api]
unix = "/srv/node.sock"
tcp = "0.0.0.0:7701"
cert = "/c"
key = "/k"
ca = "/a"
[metrics]
listen = "127.0.0.1:9470"
[gpus]
mode = "shared"
soft = 3
reserve = "1G"
overhead_per_session = 1048576
sessions = 12
mps_control = "/opt/mps"
nvml = "/opt/libnvidia-ml.so.1"
[soft]
sms = 32
memory = "512M"
[leases]
max = 5
sessions = 6
warm = 0
recover_seconds = 0
tcp_host = "0.0.0.0"
tcp_ports = "7710-7720"
advertise = "gpu-host"
token_seconds = 60
token_seconds_max = 120
[events]
max = 100
)",
                                   "node.toml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->name, "gpu-host");
  EXPECT_EQ(config->mode, Mode::kShared);
  EXPECT_EQ(config->reserve_bytes, 1ull << 30);
  EXPECT_EQ(config->overhead_per_session_bytes, 1ull << 20);
  EXPECT_EQ(config->gpu_sessions, 12u);
  EXPECT_EQ(config->soft_memory_bytes, 512ull << 20);
  EXPECT_EQ(config->recover_seconds, 0u);
  EXPECT_EQ(config->tcp_port_first, 7710);
  EXPECT_EQ(config->tcp_port_last, 7720);
  EXPECT_EQ(config->token_seconds_max, 120u);
  EXPECT_EQ(config->events_max, 100u);
}

TEST(Config, NamesUnknownKeysWithTheirLine) {
  EXPECT_EQ(error_of("[node]\nname = \"a\"\ncolour = 3\n").substr(0, 46),
            "node.toml:3: unknown key node.colour; there ar");
  EXPECT_NE(error_of("[nodes]\n").find("node.toml:1: unknown section or key nodes"),
            std::string::npos);
  EXPECT_NE(error_of("colour = 1\n").find("node.toml:1: unknown"), std::string::npos);
  EXPECT_NE(error_of("[node\n").find("node.toml:1:"), std::string::npos);
  EXPECT_NE(error_of("node = 3\n").find("is a section"), std::string::npos);
}

TEST(Config, SaysWhatAValueShouldBe) {
  const auto expects = [](std::string_view text, std::string_view part) {
    const std::string error = error_of(text);
    EXPECT_NE(error.find(part), std::string::npos) << text << " gave " << error;
  };
  expects("[gpus]\nmode = \"fast\"", "node.toml:2: gpus.mode: expected \"isolated\" or");
  expects("[gpus]\nsoft = 65", "expected a number from 0 to 64");
  expects("[gpus]\nsoft = \"2\"", "expected a number");
  expects("[gpus]\nsessions = 1025", "expected a number from 0 to 1024");
  expects("[soft]\nmemory = \"1 apple\"", "expected a size");
  expects("[leases]\nrecover_seconds = 3601", "expected a number from 0 to 3600");
  expects("[soft]\nmemory = -1", "expected a size");
  expects("[node]\nstate = \"relative\"", "expected an absolute path");
  expects("[node]\nlog_level = \"loud\"", "expected one of \"debug\"");
  expects("[leases]\ntcp_ports = \"9-3\"", "expected \"FIRST-LAST\"");
  expects("[leases]\ntcp_ports = \"0-3\"", "expected \"FIRST-LAST\"");
  expects("[metrics]\nlisten = \"127.0.0.1\"", "expected \"HOST:PORT\"");
}

TEST(Config, RefusesWhatIsNotSafe) {
  EXPECT_NE(error_of("[api]\ntcp = \"0.0.0.0:7701\"").find("mutual TLS"), std::string::npos);
  EXPECT_NE(error_of("[metrics]\nlisten = \"0.0.0.0:9470\"").find("loopback"), std::string::npos);
  EXPECT_NE(error_of("[leases]\ntcp_host = \"0.0.0.0\"").find("belong together"),
            std::string::npos);
  EXPECT_NE(
      error_of("[leases]\ntoken_seconds = 600\ntoken_seconds_max = 300").find("token_seconds_max"),
      std::string::npos);
  EXPECT_NE(error_of("[node]\nrun = \"/" + std::string(70, 'a') + "\"").find("60"),
            std::string::npos);
}

TEST(Config, AListOfRevokedCertificatesHoldsForManagersOfTheSameAuthority) {
  const auto list_of = [](const std::string& more) {
    auto config = parse_config("[api]\ncert = \"/c\"\nkey = \"/k\"\nca = \"/a\"\n" + more, "f");
    EXPECT_TRUE(config) << more;
    EXPECT_TRUE(finish(*config, "/bin", {})) << more;
    return config->cluster_crl;
  };
  EXPECT_EQ(list_of(""), "");
  EXPECT_EQ(list_of("crl = \"/l\"\n"), "/l");
  EXPECT_EQ(list_of("crl = \"/l\"\n[cluster]\nca = \"/other\"\n"), "");
  EXPECT_EQ(list_of("crl = \"/l\"\n[cluster]\nca = \"/other\"\ncrl = \"/m\"\n"), "/m");
  EXPECT_NE(error_of("[cluster]\ncrl = \"/l\"\n").find("cluster.crl needs cluster.ca"),
            std::string::npos);
}

TEST(Config, SaysThatAFileIsNotThere) {
  const auto config = read_config("/nonexistent/node.toml");
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("/nonexistent/node.toml"), std::string::npos);
}

TEST(Config, AFolderIsNoFileWithoutAWord) {
  const auto config = read_config("/");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message, "cannot read /: Is a directory");
}

TEST(Address, IsAHostAndAPort) {
  EXPECT_EQ(parse_address("[::1]:80")->host, "::1");
  EXPECT_EQ(parse_address("localhost:65535")->port, 65535);
  for (const char* bad :
       {"", ":80", "a", "a:", "a:0", "a:65536", "a:x", "tcp://a:1", "unix:///a:1"}) {
    EXPECT_FALSE(parse_address(bad)) << bad;
  }
}

}  // namespace
}  // namespace flyt::node
