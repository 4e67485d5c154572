#include "control/cli/config/ancestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/client/config.h"
#include "control/cluster/config.h"
#include "control/node/config.h"

namespace flyt::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCluster[] = R"([vm-resource-db]
host = "db"
port = 27017
user = "adminUser"
password = "hunter2"
dbname = "flyt"

[ports]
node = 12401
client = 12402

[virt-server-auto-deallocate]
enabled = true
grace-period = 90

[ipc]
mqueue-path = "/tmp/q"
frontend-socket = "/tmp/s"

[migration]
ckp-path = "/tmp/c"
)";
constexpr char kNode[] = R"([resource-manager]
address = "10.0.0.1"
port = 12401
[virt-server]
program-path = "/opt/cricket-rpc-server"
thread-mode = 0
[ipc]
mqueue-path = "/tmp/q"
)";
constexpr char kClient[] = R"([resource-manager]
address = "fe80::1"
port = 12402
[vcuda-client]
process-monitor-period = 5
[ipc]
mqueue-path = "/tmp/q"
)";

const ImportPlace kPlace{.port = 7700, .host = "gpu-1", .folder = "/etc/flyt"};

std::string refusal(const std::string& text) {
  const auto made = import_ancestor(text, "f.toml", kPlace);
  EXPECT_FALSE(made);
  return made ? "" : made.error().message;
}

TEST(Ancestor, AClustersFileBecomesOurs) {
  const auto made = import_ancestor(kCluster, "/old/cluster-mgr.toml", kPlace);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->program, "cluster");
  const auto config = cluster::parse_config(made->toml, "new");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->api_tcp, "0.0.0.0:7700");
  EXPECT_EQ(config->cert, "/etc/flyt/cluster.crt");
  EXPECT_TRUE(config->free_unused);
  EXPECT_EQ(config->grace_seconds, 90u);
  EXPECT_EQ(config->mongodb, "mongodb://adminUser@db:27017/");
  EXPECT_EQ(config->mongodb_database, "flyt");
  EXPECT_EQ(config->mongodb_password_file, "/etc/flyt/mongodb.password");
}

TEST(Ancestor, ADatabaseIsWrittenAsAUriCanHaveIt) {
  const auto made = import_ancestor(
      "[vm-resource-db]\nhost = \"fe80::7\"\nport = 1\nuser = \"a@b/c\\\"d\"\n"
      "auth-source = \"x&y\"\ndbname = \"d\"\n",
      "f.toml", kPlace);
  ASSERT_TRUE(made) << made.error().message;
  const auto config = cluster::parse_config(made->toml, "new");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->mongodb, "mongodb://a%40b%2Fc%22d@[fe80::7]:1/?authSource=x%26y");
  EXPECT_EQ(config->mongodb_database, "d");
  EXPECT_THAT(refusal("[vm-resource-db]\nhost = \"h\\\"\"\n"), HasSubstr("vm-resource-db.host"));
  EXPECT_THAT(refusal("[vm-resource-db]\nhost = \"h\"\ndbname = \"a\\\"\"\n"),
              HasSubstr("vm-resource-db.dbname"));
}

TEST(Ancestor, WhatIsNotCarriedOverIsNamedWithItsLineAndAReason) {
  const auto made = import_ancestor(kCluster, "f.toml", kPlace);
  ASSERT_TRUE(made);
  ASSERT_EQ(made->left.size(), 6u);
  EXPECT_EQ(made->left[0].line, 5u);
  EXPECT_EQ(made->left[0].key, "vm-resource-db.password");
  EXPECT_THAT(made->left[0].why, HasSubstr("requirements.password_file"));
  EXPECT_EQ(made->left[5].line, 21u);
  EXPECT_EQ(made->left[5].key, "migration.ckp-path");
}

TEST(Ancestor, PasswordsGoNowhere) {
  const auto made = import_ancestor(kCluster, "f.toml", kPlace);
  ASSERT_TRUE(made);
  EXPECT_THAT(made->toml, Not(HasSubstr("hunter2")));
  for (const NotCarried& one : made->left) EXPECT_THAT(one.why, Not(HasSubstr("hunter2")));
}

TEST(Ancestor, ANodesFileBecomesOurs) {
  const auto made = import_ancestor(kNode, "f.toml", kPlace);
  ASSERT_TRUE(made) << made.error().message;
  auto config = node::parse_config(made->toml, "new");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->cluster, "10.0.0.1:7700");
  EXPECT_EQ(config->cluster_advertise, "gpu-1:7701");
  EXPECT_EQ(config->api_tcp, "0.0.0.0:7701");
  const Status status = node::finish(*config, "/usr/bin", {});
  EXPECT_TRUE(status) << status.error().message;
}

TEST(Ancestor, ANodeThatToldItsAddressKeepsIt) {
  const auto made = import_ancestor(
      std::string(kNode) + "[network]\nadvertise-address = \"10.0.0.9\"\n", "f.toml", kPlace);
  ASSERT_TRUE(made);
  EXPECT_EQ(node::parse_config(made->toml, "new")->cluster_advertise, "10.0.0.9:7701");
}

TEST(Ancestor, AClientsFileBecomesOurs) {
  const auto made = import_ancestor(kClient, "f.toml", kPlace);
  ASSERT_TRUE(made) << made.error().message;
  const auto config = vm::parse_config(made->toml, "new");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->addresses, std::vector<std::string>{"[fe80::1]:7700"});
}

TEST(Ancestor, AGraceOfNothingIsTheShortest) {
  const auto made = import_ancestor(
      "[ports]\nnode = 1\n[virt-server-auto-deallocate]\nenabled = false\ngrace-period = 0\n",
      "f.toml", kPlace);
  ASSERT_TRUE(made);
  const auto config = cluster::parse_config(made->toml, "new");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_FALSE(config->free_unused);
  EXPECT_EQ(config->grace_seconds, 1u);
}

TEST(Ancestor, WhatIsMalformedIsRefusedWithFileAndLineAndWhatWasExpected) {
  EXPECT_THAT(refusal("[ports]\nnode = 12401\nclient = \"x\"\n"),
              HasSubstr("f.toml:3: ports.client: expected a number from 1 to 65535"));
  EXPECT_THAT(refusal("[ports]\nnode = 0\n"), HasSubstr("f.toml:2: ports.node: expected"));
  EXPECT_THAT(refusal("[ports\nnode = 1\n"), HasSubstr("f.toml:1: "));
  EXPECT_THAT(refusal("[ports]\nnode = 1\nnode = 2\n"), HasSubstr("f.toml:3: "));
  EXPECT_THAT(refusal("[ports]\n[virt-server-auto-deallocate]\nenabled = 1\n"),
              HasSubstr("f.toml:3: virt-server-auto-deallocate.enabled: expected true or false"));
}

TEST(Ancestor, AFileOfNobodyIsRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("f.toml: expected a configuration"));
  EXPECT_THAT(refusal("[ipc]\nmqueue-path = \"/tmp/q\"\n"), HasSubstr("expected a configuration"));
  EXPECT_THAT(refusal("[ports]\nnode = 1\n[vcuda-client]\nx = 1\n"), HasSubstr("both"));
}

TEST(Ancestor, UnknownKeysAreNamed) {
  const auto made =
      import_ancestor("speed = 3\n[ports]\nnode = 1\ncolour = [1, 2]\n", "f.toml", kPlace);
  ASSERT_TRUE(made);
  ASSERT_EQ(made->left.size(), 3u);
  EXPECT_EQ(made->left[0].key, "speed");
  EXPECT_EQ(made->left[2].key, "ports.colour");
  EXPECT_EQ(made->left[2].line, 4u);
  EXPECT_THAT(made->left[2].why, HasSubstr("unknown"));
}

// What is written between quotes cannot end them.
TEST(Ancestor, AHostIsAHost) {
  EXPECT_THAT(refusal("[resource-manager]\naddress = 'a\"\\nx = 1'\n[vcuda-client]\nx = 1\n"),
              HasSubstr("resource-manager.address: expected a host"));
  EXPECT_THAT(refusal("[vcuda-client]\nx = 1\n"), HasSubstr("resource-manager.address"));
}

}  // namespace
}  // namespace flyt::cli
