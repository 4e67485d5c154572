#include "control/cluster/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flyt::cluster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string error_of(const char* text) {
  auto config = parse_config(text, "cluster.toml");
  if (!config) return config.error().message;
  const Status status = finish(*config, {});
  return status ? "" : status.error().message;
}

TEST(ClusterConfig, EnrolsOnlyWithAKeyAndCertificates) {
  EXPECT_THAT(error_of("[enrol]\nlisten = \"0.0.0.0:7702\"\n"), HasSubstr("belong together"));
  EXPECT_THAT(error_of("[enrol]\nkey = \"/ca.key\"\n"), HasSubstr("belong together"));
  EXPECT_THAT(error_of("[enrol]\nlisten = \"0.0.0.0:7702\"\nkey = \"/ca.key\"\n"),
              HasSubstr("needs api.cert"));
  EXPECT_THAT(error_of("[enrol]\ntoken_lasts = \"8d\"\n"), HasSubstr("token_lasts"));
  EXPECT_EQ(error_of("[api]\ncert = \"/a\"\nkey = \"/b\"\nca = \"/c\"\n[enrol]\n"
                     "listen = \"0.0.0.0:7702\"\nkey = \"/ca.key\"\ndays = 30\n"),
            "");
}

TEST(ClusterConfig, TakesWhatIsWrittenAndDefaultsElsewhere) {
  auto config = parse_config(R"(
[api]
unix = "/run/c.sock"
[nodes]
report_every = 1
lost_after = "15s"
[vms]
grace = "5m"
free_unused = false
[placement]
policy = "spread"
[access]
operators = ["0"]
)",
                             "cluster.toml");
  ASSERT_TRUE(config.ok()) << config.error().message;
  ASSERT_TRUE(finish(*config, control::system_folders("cluster")).ok());
  EXPECT_EQ(config->api_unix, "/run/c.sock");
  EXPECT_EQ(config->lost_seconds, 15u);
  EXPECT_EQ(config->grace_seconds, 300u);
  EXPECT_FALSE(config->free_unused);
  EXPECT_EQ(config->policy, "spread");
  EXPECT_EQ(config->operators, std::vector<std::string>{"0"});
  EXPECT_EQ(config->state_folder, "/var/lib/flyt/cluster");
}

TEST(ClusterConfig, NamesFileLineAndWhatWasExpected) {
  EXPECT_THAT(error_of("[api]\n\ncolour = 1\n"),
              HasSubstr("cluster.toml:3: unknown key api.colour"));
  EXPECT_THAT(error_of("[colours]\n"), HasSubstr("cluster.toml:1: unknown section or key colours"));
  EXPECT_THAT(error_of("[vms]\ngrace = \"soon\"\n"), HasSubstr("cluster.toml:2: vms.grace"));
  EXPECT_THAT(error_of("[vms]\nfree_unused = 1\n"), HasSubstr("true or false"));
  EXPECT_THAT(error_of("[access]\nviewers = \"a\"\n"), HasSubstr("a list of texts"));
  EXPECT_THAT(error_of("[access]\nviewers = [1]\n"), HasSubstr("a list of texts"));
  EXPECT_THAT(error_of("[placement]\npolicy = \"best\"\n"), HasSubstr("\"host-first\""));
  EXPECT_THAT(error_of("[nodes\n"), HasSubstr("cluster.toml:"));
  EXPECT_THAT(error_of("[cluster]\nstore = \"mysql\"\n"),
              HasSubstr("cluster.store is \"sqlite\", or etcd:HOST:PORT, or more of them: etcd:A"));
}

TEST(ClusterConfig, TakesADatabaseOfRequirementsAndTellsNoSecret) {
  const auto config = parse_config(
      "[requirements]\nmongodb = \"mongodb://u:p@h/\"\npoll = \"1m\"\n", "cluster.toml");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->requirements_seconds, 60u);
  EXPECT_EQ(config->mongodb_collection, "vm_required_resources");
  for (const char* bad :
       {"[requirements]\nmongodb = \"http://u:hunter2@h/\"\n",
        "[requirements]\nmongodb = \"mongodb://u:hunter2@\"\n",
        "[requirements]\nmongodb = \"mongodb://u:hunter2@h\"\ndatabase = \"a b\"\n",
        "[requirements]\nmongodb = \"mongodb://u:hunter2@h\"\ncollection = \"$x\"\n",
        "[requirements]\npoll = 0\n", "[requirements]\npoll = 3601\n",
        "[requirements]\npassword_file = \"/x\"\n"}) {
    EXPECT_THAT(error_of(bad), HasSubstr("requirements.")) << bad;
    EXPECT_THAT(error_of(bad), Not(HasSubstr("hunter2")));
  }
}

TEST(ClusterConfig, RefusesWhatWouldNotBeSafe) {
  EXPECT_THAT(error_of("[api]\ntcp = \"0.0.0.0:7700\"\n"), HasSubstr("mutual TLS"));
  EXPECT_THAT(error_of("[metrics]\nlisten = \"0.0.0.0:1\"\n"), HasSubstr("loopback"));
  EXPECT_THAT(error_of("[nodes]\nreport_every = 10\nlost_after = 12\n"), HasSubstr("twice"));
  EXPECT_THAT(error_of("[scaling]\nwindow = 3\n"), HasSubstr("twice nodes.report_every"));
  EXPECT_THAT(error_of("[scaling]\ngrow_above = 70\n"), HasSubstr("grow and shrink in turn"));
  EXPECT_EQ(error_of("[scaling]\nwindow = 4\ngrow_above = 70\nshrink_below = 35\n"), "");
}

}  // namespace
}  // namespace flyt::cluster
