// Controller: what it answers, and that nothing a peer sends harms the server.
#include "server/admin/controller.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <thread>

#include "base/fd.h"
#include "commands/context.h"
#include "commands/lease.h"
#include "commands/nvml_memory.h"
#include "rpc/testing/session.h"
#include "server/admin/request.h"
#include "wire/hello.h"

namespace flyt::server::admin {
namespace {

nvml::Fleet one_gpu() {
  nvml::Fleet fleet{.driver_kind = "soft", .cuda_version = 13000, .only = true};
  fleet.sms = {132, 8, 15, 12};
  fleet.context_bytes = 77;
  flyt::nvml::Gpu gpu;
  gpu.name = "GPU of a test";
  gpu.memory_bytes = 1000;
  fleet.gpus.push_back(gpu);
  return fleet;
}

// A controller on a thread of its own, and a peer's channel to it.
class Served {
 public:
  explicit Served(nvml::Fleet fleet = one_gpu()) : fleet_(std::move(fleet)) {
    lease_.id = "vm";
    auto board = UsageBoard::create(4);
    EXPECT_TRUE(board.ok());
    board_ = std::move(board).value();
    auto [client, server] = rpc::testing::make_pair(rpc::testing::PairKind::kUnix);
    thread_ = std::thread([this, end = std::move(server)]() mutable { serve(std::move(end)); });
    wire::ClientHello hello;
    hello.role = wire::ConnectionRole::kAdmin;
    auto opened = rpc::Channel::open(std::move(client), hello, rpc::testing::soon(), pushes_, {});
    if (opened) channel_ = std::move(opened).value();
  }
  ~Served() {
    if (channel_ != nullptr) channel_->shut_down("the test ends");
    thread_.join();
  }

  // The result; lost connections have none.
  template <class Command>
  std::optional<FlytAdminResult> ask(const Command& command, typename Command::Reply& reply) {
    std::vector<std::byte> bytes(wire::encoded_size(command));
    Writer writer(bytes);
    wire::encode(writer, command);
    if (!send(Command::kOp, bytes)) return std::nullopt;
    EXPECT_TRUE(answer_.fields().empty() || wire::decode(answer_.fields(), reply));
    return static_cast<FlytAdminResult>(answer_.result());
  }
  // Whether it was answered.
  bool send(std::uint16_t op, Bytes payload) {
    rpc::Post post = channel_->begin(op, payload.size(), 0, rpc::Answer::kReply);
    if (!post) return false;
    post.writer().write_bytes(payload);
    return channel_->call(std::move(post), answer_).ok();
  }
  rpc::Channel& channel() { return *channel_; }
  UsageBoard& board() { return *board_; }
  // Within so many milliseconds.
  bool woken(int ms) {
    pollfd wanted{wake_.get(), POLLIN, 0};
    if (::poll(&wanted, 1, ms) != 1) return false;
    std::uint64_t count = 0;
    return ::read(wake_.get(), &count, sizeof count) == static_cast<ssize_t>(sizeof count);
  }

 private:
  void serve(std::unique_ptr<transport::Connection> connection) {
    const auto hello = rpc::receive_hello(*connection, rpc::testing::soon());
    ASSERT_TRUE(hello.ok());
    ASSERT_TRUE(rpc::send_welcome(*connection, {}, rpc::testing::soon()).ok());
    rpc::HeapBufferPool pool;
    rpc::Endpoint endpoint(std::move(connection), wire::Limits{}, pool);
    Controller controller({.endpoint = endpoint,
                           .log = log_,
                           .lease = lease_,
                           .fleet = fleet_,
                           .board = *board_,
                           .sessions_max = 4,
                           .wake = wake_.get()});
    controller.run();
  }

  const Log log_{"test", LogLevel::kOff};
  LeaseOptions lease_;
  const nvml::Fleet fleet_;
  std::unique_ptr<UsageBoard> board_;
  const Fd wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  rpc::testing::TestPushes pushes_;
  std::unique_ptr<rpc::Channel> channel_;
  rpc::Reply answer_;
  std::thread thread_;
};

TEST(Controller, DescribesTheLease) {
  Served served;
  EXPECT_TRUE(served.board().set_quota(500, UsageBoard::Shrink::kRefuse));
  served.board().set_grant({9, 16, {2, 5}});
  const UsageSlot slot = served.board().slot(served.board().claim());
  slot.publish({.process = 7, .machine = "here", .name = "prog"});
  EXPECT_TRUE(slot.reserve(0, 100));
  commands::LeaseDescribe::Reply reply;
  EXPECT_EQ(served.ask(commands::LeaseDescribe{}, reply), FLYT_ADMIN_SUCCESS);
  EXPECT_EQ(reply.lease, "vm");
  EXPECT_EQ(reply.memory_limit, 500U);
  EXPECT_EQ(reply.memory_used, 100U);
  EXPECT_EQ(reply.context_bytes, 77U);
  EXPECT_EQ(reply.gpu_sms, 132U);
  EXPECT_EQ(reply.sms_asked, 9U);
  EXPECT_EQ(reply.sms_granted, 16U);
  EXPECT_EQ(reply.groups.to_vector(), (std::vector<std::uint32_t>{2, 5}));
  EXPECT_EQ(reply.sessions, 1U);
  EXPECT_FALSE(reply.tokens);
  commands::LeaseSessions::Reply sessions;
  EXPECT_EQ(served.ask(commands::LeaseSessions{}, sessions), FLYT_ADMIN_SUCCESS);
  ASSERT_EQ(sessions.sessions.size(), 1U);
  EXPECT_EQ(sessions.sessions[0].memory_bytes, 100U);
  EXPECT_EQ(served.ask(commands::LeaseSessions{~std::uint64_t{0}}, sessions), FLYT_ADMIN_SUCCESS);
  EXPECT_EQ(sessions.sessions.size(), 0U);
}

TEST(Controller, TellsHowMuchTheLeaseIsUsed) {
  Served served;
  const UsageSlot slot = served.board().slot(served.board().claim());
  slot.count({.launches = 4, .busy_ns = 3000, .queued_ns = 2000});
  commands::LeaseUse::Reply use;
  EXPECT_EQ(served.ask(commands::LeaseUse{}, use), FLYT_ADMIN_SUCCESS);
  EXPECT_GT(use.measured_ns, 0U);
  EXPECT_EQ(use.busy_ns, 3000U);
  EXPECT_EQ(use.queued_ns, 2000U);
  EXPECT_EQ(use.launches, 4U);
}

TEST(Controller, TellsWhatHoldsWithARefusal) {
  Served served;
  EXPECT_TRUE(served.board().slot(served.board().claim()).reserve(0, 100));
  commands::LeaseSetMemory::Reply reply;
  EXPECT_EQ(served.ask(commands::LeaseSetMemory{99, false}, reply), FLYT_ADMIN_IN_USE);
  EXPECT_EQ(reply.used, 100U);
  EXPECT_EQ(reply.limit, 0U);
  EXPECT_EQ(served.ask(commands::LeaseSetMemory{99, true}, reply), FLYT_ADMIN_SUCCESS);
  EXPECT_EQ(reply.limit, 99U);
  EXPECT_EQ(served.ask(commands::LeaseSetMemory{1001, true}, reply), FLYT_ADMIN_INVALID);
  EXPECT_EQ(reply.limit, 99U);
}

TEST(Controller, HasAQuotaOfOneGpuOnly) {
  nvml::Fleet two = one_gpu();
  two.gpus.push_back(two.gpus.front());
  Served served(two);
  commands::LeaseSetMemory::Reply reply;
  EXPECT_EQ(served.ask(commands::LeaseSetMemory{99, false}, reply), FLYT_ADMIN_UNSUPPORTED);
}

TEST(Controller, LeavesToTheParentWhatOnlyThatCanDo) {
  Served served;
  served.board().slot(served.board().claim()).publish({.process = 7});
  commands::LeaseEndSession::Reply nothing;
  EXPECT_EQ(served.ask(commands::LeaseEndSession{2}, nothing), FLYT_ADMIN_NOT_FOUND);
  EXPECT_FALSE(served.woken(0));
  EXPECT_EQ(served.ask(commands::LeaseEndSession{1}, nothing), FLYT_ADMIN_SUCCESS);
  EXPECT_TRUE(served.woken(10000));
  EXPECT_TRUE(served.board().takes_end_request(0));
  commands::LeaseDrain::Reply drained;
  EXPECT_EQ(served.ask(commands::LeaseDrain{86401}, drained), FLYT_ADMIN_INVALID);
  EXPECT_FALSE(served.board().draining());
  EXPECT_EQ(served.ask(commands::LeaseDrain{5}, drained), FLYT_ADMIN_SUCCESS);
  EXPECT_TRUE(served.woken(10000));
  EXPECT_TRUE(served.board().draining());
}

TEST(Controller, HasNoCommandsOfOthers) {
  for (const std::uint16_t op : {commands::RetainPrimary::kOp, commands::NvmlMemory::kOp,
                                 std::uint16_t{0}, std::uint16_t{15}, std::uint16_t{65535}}) {
    Served served;
    EXPECT_FALSE(served.send(op, {}));
    EXPECT_TRUE(served.channel().lost());
  }
}

// A payload that is too short, too long, or says more than it has, ends the connection.
TEST(Controller, EndsForMalformedCommands) {
  const std::vector<std::byte> none;
  const std::vector<std::byte> nine(9, std::byte{2});
  const std::vector<std::byte> many(8, std::byte{0xff});
  const std::vector<std::byte> long_list(8 + 4 * 257, std::byte{1});
  const std::vector<std::pair<std::uint16_t, Bytes>> bad = {
      {commands::LeaseDescribe::kOp, nine},    {commands::LeaseSessions::kOp, none},
      {commands::LeaseSessions::kOp, nine},    {commands::LeaseSetMemory::kOp, many},
      {commands::LeaseSetMemory::kOp, nine},   {commands::LeaseSetSms::kOp, many},
      {commands::LeaseSetSms::kOp, long_list}, {commands::LeaseEndSession::kOp, none},
      {commands::LeaseDrain::kOp, none},       {commands::LeaseNewToken::kOp, nine},
      {commands::LeaseUse::kOp, nine}};
  for (const auto& [op, payload] : bad) {
    Served served;
    EXPECT_FALSE(served.send(op, payload)) << op << " with " << payload.size();
    EXPECT_TRUE(served.channel().lost());
  }
}

TEST(Controller, RefusesWhatThisServerCannotDo) {
  Served served;
  commands::LeaseNewToken::Reply token;
  EXPECT_EQ(served.ask(commands::LeaseNewToken{60, 1}, token), FLYT_ADMIN_UNSUPPORTED);
}

TEST(Controller, TellsHowTheChipIsCut) {
  Served served;
  commands::LeaseChip::Reply reply;
  EXPECT_EQ(served.ask(commands::LeaseChip{}, reply), FLYT_ADMIN_SUCCESS);
  EXPECT_EQ(reply.sms, 132U);
  EXPECT_EQ(reply.group_sms, 8U);
  EXPECT_EQ(reply.groups, 15U);
  EXPECT_EQ(reply.last_sms, 12U);
}

TEST(Controller, GrantsMultiprocessors) {
  Served served;
  commands::LeaseSetSms command;
  commands::LeaseSetSms::Reply reply;
  command.sms = 20;
  EXPECT_EQ(served.ask(command, reply), FLYT_ADMIN_SUCCESS);
  EXPECT_EQ(reply.sms_granted, 20U);
  EXPECT_EQ(reply.group_sms, 8U);
  EXPECT_EQ(served.board().grant(), (SmGrant{20, 20, {0, 15}}));
  const std::vector<std::uint32_t> named = {14, 3};
  command.sms = 0;
  command.groups = wire::List<std::uint32_t>(named);
  EXPECT_EQ(served.ask(command, reply), FLYT_ADMIN_SUCCESS);
  EXPECT_EQ(served.board().grant(), (SmGrant{16, 16, {3, 14}}));
  command.sms = 133;
  EXPECT_EQ(served.ask(command, reply), FLYT_ADMIN_INVALID);
  EXPECT_EQ(reply.sms_granted, 16U);
  EXPECT_EQ(served.board().grant().granted, 16U);
}

}  // namespace
}  // namespace flyt::server::admin
