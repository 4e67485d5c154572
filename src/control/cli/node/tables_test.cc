#include "control/cli/node/tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/cli/node/commands.h"
#include "control/cli/node/completion.h"
#include "control/json/message_json.h"

namespace flyt::cli {
namespace {

using control::json_of;
using ::testing::HasSubstr;
namespace v1 = node::v1;

v1::Lease lease(const std::string& name) {
  v1::Lease lease;
  lease.set_id("0123456789abcdef");
  lease.set_name(name);
  lease.set_sms_asked(10);
  lease.set_sms_granted(16);
  lease.add_groups(2);
  lease.add_groups(3);
  lease.set_mode(v1::MODE_SHARED);
  lease.set_memory_bytes(2ull << 30);
  lease.set_memory_used_bytes(512ull << 20);
  lease.set_expires_at(1090);
  lease.set_state("running");
  (*lease.mutable_labels())["team"] = "blue";
  return lease;
}

TEST(Tables, ShowGrantedAgainstAsked) {
  v1::ListLeasesResponse leases;
  *leases.add_leases() = lease("train");
  const std::string text = table_of(leases, 1000);
  EXPECT_NE(text.find("NAME   ID                GPU  MODE    SMS       MEMORY USED"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("train  0123456789abcdef  0    shared  16 of 10  512 MiB / 2 GiB"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("in 1m 30s"), std::string::npos) << text;
}

TEST(Tables, DrawTheGroupMap) {
  v1::NodeDescription node;
  node.set_name("host");
  v1::Gpu& gpu = *node.add_gpus();
  gpu.set_sms(32);
  gpu.set_sms_free(8);
  for (const char* holder : {"x", "x", "", "y"}) gpu.add_groups()->set_lease_id(holder);
  const std::string text = table_of(node, {});
  EXPECT_NE(text.find("AA.B"), std::string::npos) << text;
  EXPECT_NE(text.find("A    -     -   x\nB    -     -   y\n"), std::string::npos) << text;
}

TEST(Tables, NameTheLeasesOfTheGroupMap) {
  v1::NodeDescription node;
  v1::Gpu& gpu = *node.add_gpus();
  // In the order of the map, not of the ids.
  for (const char* holder : {"9", "1", "5"}) gpu.add_groups()->set_lease_id(holder);
  v1::ListLeasesResponse leases;
  for (const auto& [id, name] : {std::pair("1", "vm-a.77"), std::pair("9", "train")}) {
    v1::Lease& one = *leases.add_leases() = lease(name);
    one.set_id(id);
  }
  (*leases.mutable_leases(0)->mutable_labels())["flyt/vm"] = "vm-a";
  const std::string text = table_of(node, leases);
  EXPECT_NE(text.find("\n\nMAP  NAME     VM    ID\nA    train    -     9\n"
                      "B    vm-a.77  vm-a  1\nC    -        -     5\n"),
            std::string::npos)
      << text;
}

TEST(Tables, TellHowManySessionsAGpuTakesAndHas) {
  v1::NodeDescription node;
  v1::Gpu& gpu = *node.add_gpus();
  gpu.set_name("card");
  EXPECT_EQ(table_of(node, {}).find(" of 46"), std::string::npos);
  gpu.set_sessions_max(46);
  gpu.set_sessions(12);
  EXPECT_NE(table_of(node, {}).find("  12 of 46  "), std::string::npos) << table_of(node, {});
  gpu.set_sessions_ready(3);
  EXPECT_NE(table_of(node, {}).find("  12 of 46, 3 ready  "), std::string::npos)
      << table_of(node, {});
}

TEST(Tables, TellOfALastGroupOfAnotherSize) {
  v1::NodeDescription node;
  v1::Gpu& gpu = *node.add_gpus();
  gpu.set_sms(28);
  for (const std::uint32_t sms : {8u, 8u}) gpu.add_groups()->set_sms(sms);
  EXPECT_EQ(table_of(node, {}).find("last group"), std::string::npos);
  gpu.add_groups()->set_sms(12);
  gpu.set_rest_is_group(true);
  EXPECT_NE(
      table_of(node, {}).find("GPU 0: its last group has 12 multiprocessors, the others 8; it is"
                              " leased with others\n"),
      std::string::npos)
      << table_of(node, {});
  gpu.set_rest_is_group(false);
  EXPECT_NE(table_of(node, {}).find("whoever has all has it"), std::string::npos);
}

TEST(Tables, ShowWhatSeveralHave) {
  v1::NodeDescription node;
  v1::Gpu& gpu = *node.add_gpus();
  gpu.set_sms(32);
  gpu.set_sms_free(24);
  gpu.set_sm_percent(200);
  for (const std::uint32_t leases : {2u, 2u, 1u, 0u}) {
    v1::Group& group = *gpu.add_groups();
    group.set_sms(8);
    group.set_leases(leases);
    if (leases != 0) group.set_lease_id("x");
  }
  EXPECT_EQ(sms_leased(gpu), 40u);
  EXPECT_EQ(sms_given_out(gpu), 64u);
  const std::string text = table_of(node, {});
  EXPECT_NE(text.find("**A."), std::string::npos) << text;
  EXPECT_NE(text.find("24 of 64"), std::string::npos) << text;
  EXPECT_NE(top_of(node, {}, 0).find("40 of 64"), std::string::npos);
}

TEST(Tables, LeaveNothingThatATerminalWouldObey) {
  v1::Event event;
  event.set_text("\x1b[2Jgone");
  EXPECT_EQ(line_of(event).find('\x1b'), std::string::npos);
}

TEST(Tables, WriteTheDateOfAnEvent) {
  v1::Event event;
  event.set_at_ms(1'582'979'696'000);
  EXPECT_EQ(line_of(event).substr(0, 20), "2020-02-29T12:34:56Z");
  event.set_at_ms(1'735'689'599'000);
  EXPECT_EQ(line_of(event).substr(0, 20), "2024-12-31T23:59:59Z");
}

TEST(Json, HasEveryFieldAsTheApiNamesIt) {
  const std::string text = json_of(lease("a"));
  for (const char* part :
       {"\"name\":\"a\"", "\"memory_bytes\":2147483648", "\"groups\":[2,3]", "\"mode\":\"shared\"",
        "\"labels\":{\"team\":\"blue\"}", "\"priority\":0", "\"urls\":[]"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " not in " << text;
  }
}

TEST(Exports, AreForAShell) {
  v1::Token token;
  token.set_token("flyt1.abc");
  token.add_urls("unix:///run/a.sock");
  token.add_urls("tcp://host:7710");
  EXPECT_EQ(*exports_of(token, false),
            "export FLYT_SERVER='unix:///run/a.sock'\nexport FLYT_TOKEN='flyt1.abc'\n");
  EXPECT_NE(exports_of(token, true)->find("'tcp://host:7710'"), std::string::npos);
}

TEST(Exports, AreRefusedForOtherMachinesWhereTheLeaseHasNoAddressForThem) {
  v1::Token token;
  token.set_token("flyt1.abc");
  token.add_urls("unix:///run/a.sock");
  const auto exports = exports_of(token, true);
  ASSERT_FALSE(exports);
  EXPECT_NE(exports.error().message.find("leases.tcp_host"), std::string::npos);
}

TEST(ExitStatus, TellsKindsOfFailureApart) {
  EXPECT_EQ(exit_status_of(ErrorCode::kInvalid), 2);
  EXPECT_EQ(exit_status_of(ErrorCode::kLost), 3);
  EXPECT_EQ(exit_status_of(ErrorCode::kNotFound), 4);
  EXPECT_EQ(exit_status_of(ErrorCode::kLimit), 5);
  EXPECT_EQ(exit_status_of(ErrorCode::kUnsupported), 6);
}

TEST(Completion, IsThereForThreeShells) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = ctl_completion_script(shell, {});
    for (const char* word : {"undrain", "expires-in", "sessions"}) {
      EXPECT_NE(script.find(word), std::string::npos) << shell;
    }
  }
  EXPECT_EQ(ctl_completion_script("csh", {}), "");
}

TEST(Completion, KnowsTheValuesOfOptionsThatTakeFew) {
  const Choices choices = {{"create", {{"--mode", {"red", "blue"}}}}};
  EXPECT_THAT(ctl_completion_script("bash", choices),
              HasSubstr("\"create --mode\") COMPREPLY=($(compgen -W \"red blue\" -- \"$word\"))"));
  EXPECT_THAT(ctl_completion_script("zsh", choices),
              HasSubstr("\"create --mode\") compadd -- red blue; return ;;"));
  const std::string fish = ctl_completion_script("fish", choices);
  EXPECT_THAT(fish, HasSubstr("from create\" -l mode -x -a \"red blue\"\n"));
  EXPECT_THAT(fish, HasSubstr("from vm\" -l mode\n"));
}

}  // namespace
}  // namespace flyt::cli
