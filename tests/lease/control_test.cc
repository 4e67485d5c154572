// A server's control: who may use it, what it tells and what it changes.
#include <signal.h>

#include "base/text.h"
#include "rpc/endpoint.h"
#include "tests/lease/tenant.h"
#include "transport/transport.h"

namespace flyt::tests {
namespace {

using control::ControlClient;
using control::Shrink;

class Control : public LeaseTest {};

TEST_F(Control, TellsOfSessions) {
  start({"--lease", "vm-1", "--memory", "256M"});
  const auto client = control();
  ASSERT_NE(client, nullptr);
  EXPECT_TRUE(client->sessions()->empty());
  const auto a = tenant();
  EXPECT_EQ(ask(a, "alloc", 10), "0");
  const auto b = tenant();
  const auto sessions = client->sessions();
  ASSERT_TRUE(sessions.ok());
  ASSERT_EQ(sessions->size(), 2U);
  EXPECT_LT(sessions->at(0).number, sessions->at(1).number);
  EXPECT_EQ(sessions->at(0).client_process, static_cast<std::uint32_t>(a->pid()));
  EXPECT_EQ(sessions->at(1).client_process, static_cast<std::uint32_t>(b->pid()));
  EXPECT_EQ(sessions->at(0).memory_bytes, 10 * kMiB);
  EXPECT_EQ(sessions->at(1).memory_bytes, 0U);
  EXPECT_EQ(sessions->at(0).contexts, 1U);
  EXPECT_EQ(sessions->at(0).name, "flyt_kill");
  EXPECT_FALSE(sessions->at(0).monitor);
  EXPECT_GT(sessions->at(0).age.count(), 0);
  EXPECT_TRUE(eventually(kSeconds, [&] { return client->sessions()->at(0).waited > 0; }));
  EXPECT_GT(client->sessions()->at(0).received_bytes, 0U);
}

TEST_F(Control, GrowsAndShrinksTheMemory) {
  start({"--memory", "64M"});
  const auto client = control();
  const auto a = tenant();
  EXPECT_EQ(ask(a, "alloc", 60), "0");
  EXPECT_EQ(ask(a, "alloc", 30), "2");
  auto set = client->set_memory(128 * kMiB);
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_EQ(set->limit, 128 * kMiB);
  EXPECT_EQ(set->used, 60 * kMiB);
  EXPECT_EQ(ask(a, "info"), "68 128 64");
  EXPECT_EQ(ask(a, "alloc", 30), "0");
  set = client->set_memory(80 * kMiB);
  ASSERT_FALSE(set.ok());
  EXPECT_EQ(set.error().code, ErrorCode::kLimit);
  EXPECT_EQ(set.error().message,
            size_text(90 * kMiB) + " are used, which is more than " + size_text(80 * kMiB));
  EXPECT_EQ(client->describe()->memory_limit, 128 * kMiB);
  EXPECT_TRUE(client->set_memory(90 * kMiB).ok());
  EXPECT_EQ(ask(a, "alloc", 2), "2");
}

TEST_F(Control, ShrinksWhenMemoryIsFreed) {
  start({"--memory", "128M"});
  const auto client = control();
  const auto a = tenant();
  EXPECT_EQ(ask(a, "alloc", 30), "0");
  const auto b = tenant();
  EXPECT_EQ(ask(b, "alloc", 60), "0");
  const auto set = client->set_memory(40 * kMiB, Shrink::kWhenFree);
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->limit, 40 * kMiB);
  EXPECT_EQ(set->used, 90 * kMiB);
  EXPECT_EQ(ask(b, "info"), "0 90 128");
  EXPECT_EQ(ask(a, "alloc", 2), "2");
  EXPECT_EQ(ask(b, "free"), "0");
  EXPECT_EQ(ask(a, "alloc", 12), "2");
  // The other process gives up what lies idle there as soon as it comes to that.
  EXPECT_TRUE(eventually(kSeconds, [&] { return ask(a, "alloc", 10) == "0"; }));
}

TEST_F(Control, RefusesWhatMakesNoSense) {
  start({"--memory", "64M"});
  const auto client = control();
  EXPECT_EQ(client->set_memory(64 * kGiB).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(client->set_memory(~std::uint64_t{0}, Shrink::kWhenFree).error().code,
            ErrorCode::kInvalid);
  EXPECT_EQ(client->end_session(4711).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(client->drain(~std::uint32_t{0}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(client->set_groups({}).error().code, ErrorCode::kInvalid);
  EXPECT_TRUE(client->describe().ok());
}

TEST_F(Control, EndsASession) {
  start({"--memory", "64M"});
  const auto client = control();
  const auto a = tenant();
  const auto b = tenant();
  EXPECT_EQ(ask(a, "alloc", 50), "0");
  ASSERT_TRUE(client->end_session(client->sessions()->front().number).ok());
  EXPECT_TRUE(eventually(kSeconds, [&] { return client->sessions()->size() == 1; }));
  EXPECT_NE(ask(a, "alloc", 1), "0");
  EXPECT_TRUE(eventually(kSeconds, [&] { return ask(b, "alloc", 60) == "0"; }));
}

TEST_F(Control, DrainsAndEndsTheServer) {
  start({"--memory", "64M"});
  const auto client = control();
  const auto a = tenant();
  ASSERT_TRUE(client->drain(600).ok());
  EXPECT_TRUE(eventually(kSeconds, [&] { return client->describe()->draining; }));
  EXPECT_EQ(ask(a, "alloc", 50), "0");
  const auto late = tenant(true);
  EXPECT_TRUE(late->wrote("no ", kSeconds));
  a->close_stdin();
  EXPECT_TRUE(eventually(kSeconds, [&] { return !server_.running(); }));
}

TEST_F(Control, DrainTellsWhoWaitsForAPlace) {
  start({"--max-sessions", "1"});
  const auto first = tenant();
  const auto late = tenant(true);
  ASSERT_TRUE(server_.logged("client waits for a place", kSeconds)) << server_.log();
  ASSERT_TRUE(control()->drain(600).ok());
  EXPECT_TRUE(server_.logged("takes nobody any more", kSeconds)) << server_.log();
  EXPECT_EQ(ask(first, "alloc", 1), "0");
}

TEST_F(Control, EndsWhoDoesNotLeaveInTime) {
  start({"--memory", "64M"});
  const auto client = control();
  const auto a = tenant();
  ASSERT_TRUE(client->drain(0).ok());
  EXPECT_TRUE(eventually(kSeconds, [&] { return !server_.running(); }));
  EXPECT_EQ(client->describe().error().code, ErrorCode::kLost);
  EXPECT_TRUE(client->lost());
}

TEST_F(Control, IsNotAnsweredWhereClientsAre) {
  start({"--memory", "64M"});
  const auto refused = ControlClient::connect(server_.url());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kDenied);
  EXPECT_EQ(ControlClient::connect("unix:///nowhere/at/all").ok(), false);
}

// A session's hello, or none at all, on the control socket.
TEST_F(Control, TakesNoSessions) {
  start({"--memory", "64M"});
  kill::Child child("tenant", 0, control_url());
  EXPECT_TRUE(child.wrote("no ", kSeconds));
  EXPECT_TRUE(control()->describe().ok());
}

TEST_F(Control, ServesSeveralUpToALimit) {
  start({"--memory", "64M"});
  std::vector<std::unique_ptr<ControlClient>> clients;
  for (int i = 0; i < 16; ++i) {
    auto client = ControlClient::connect(control_url());
    ASSERT_TRUE(client.ok()) << client.error().message;
    clients.push_back(std::move(client).value());
  }
  EXPECT_FALSE(ControlClient::connect(control_url()).ok());
  clients.clear();
  EXPECT_TRUE(eventually(kSeconds, [&] { return ControlClient::connect(control_url()).ok(); }));
}

}  // namespace
}  // namespace flyt::tests
