// A client that goes on with its session and says itself what it has had.
#include "client/exchange.h"
#include "commands/array.h"
#include "commands/context.h"
#include "rpc/channel.h"
#include "tests/recovery/recovery_fixture.h"
#include "transport/transport.h"
#include "wire/handle.h"

namespace flyt::tests {
namespace {

constexpr std::uint32_t kContext = 1;
constexpr std::uint64_t kArrayMiB = 16;
constexpr std::uint64_t kLeaseMiB = 64;

class NoPushes final : public rpc::PushHandler {
 public:
  void on_host_call(std::uint64_t, std::uint64_t, Bytes) override {}
  void on_output(std::uint32_t, Bytes) override {}
  void on_delivered(std::uint64_t, bool) override {}
  void on_lost(const Error&) override {}
};

template <class Native>
Native handle(wire::HandleKind kind, std::uint32_t index) {
  return static_cast<Native>(pointer_at(wire::Handle::make(kind, 1, index).value));
}

class GreedyTest : public RecoveryTest {
 protected:
  // A session with a context, nothing else made again.
  void open(const wire::SessionToken& goes_on) {
    channel_.reset();
    const auto url = transport::parse_url(server_->url());
    const Instant deadline = system_clock().now() + std::chrono::seconds(30);
    auto connection = transport::connect(*url, deadline);
    ASSERT_TRUE(connection.ok()) << connection.error().message;
    wire::ClientHello hello;
    hello.recoverable = true;
    hello.recovers = goes_on;
    auto channel = rpc::Channel::open(std::move(*connection), hello, deadline, pushes_);
    ASSERT_TRUE(channel.ok()) << channel.error().message << server_->log();
    channel_ = std::move(*channel);
    commands::RetainPrimary::Reply reply;
    rpc::Reply answer;
    const auto context = handle<CUcontext>(wire::HandleKind::kContext, kContext);
    ASSERT_TRUE(
        client::exchange(*channel_, 0, commands::RetainPrimary{.context = context}, reply, answer));
    ASSERT_EQ(answer.result(), static_cast<std::uint32_t>(CUDA_SUCCESS));
  }
  CUresult make_array(std::uint32_t index) {
    commands::CreateArray create{.array = handle<CUarray>(wire::HandleKind::kArray, index)};
    create.descriptor.Width = 4096;
    create.descriptor.Height = kArrayMiB * kMiB / (4096 * 4);
    create.descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT32;
    create.descriptor.NumChannels = 1;
    commands::CreateArray::Reply reply;
    rpc::Reply answer;
    if (!client::exchange(*channel_, kContext, create, reply, answer)) return CUDA_ERROR_UNKNOWN;
    return static_cast<CUresult>(answer.result());
  }

  NoPushes pushes_;
  std::unique_ptr<rpc::Channel> channel_;
};

TEST_P(GreedyTest, ASessionThatGoesOnGetsNoMoreThanItsLease) {
  start({"--recover", "10", "--memory", std::to_string(kLeaseMiB) + "M"});
  ASSERT_NO_FATAL_FAILURE(open({}));
  ASSERT_EQ(CUDA_SUCCESS, make_array(1));
  kill_idle();
  const wire::SessionToken token = channel_->welcome().recovery;
  ASSERT_NO_FATAL_FAILURE(open(token));
  // What it has had, though nobody has written to it, and what else there is room for.
  EXPECT_EQ(CUDA_SUCCESS, make_array(1)) << server_->log();
  std::uint64_t arrays = 1;
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && arrays * kArrayMiB <= kLeaseMiB) {
    result = make_array(static_cast<std::uint32_t>(arrays) + 1);
    if (result == CUDA_SUCCESS) ++arrays;
  }
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, result);
  EXPECT_LE(arrays * kArrayMiB, kLeaseMiB) << "without a word that all is as it was";
}

INSTANTIATE_TEST_SUITE_P(Unix, GreedyTest, ::testing::Values("unix"));

}  // namespace
}  // namespace flyt::tests
