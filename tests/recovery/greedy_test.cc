// A client that goes on with its session and says itself what it has had.
#include <sys/resource.h>

#include "client/exchange.h"
#include "commands/array.h"
#include "commands/context.h"
#include "commands/ops.h"
#include "commands/pinned.h"
#include "rpc/no_pushes.h"
#include "tests/recovery/recovery_fixture.h"
#include "transport/transport.h"
#include "wire/handle.h"
#include "wire/host_memory.h"

namespace flyt::tests {
namespace {

constexpr std::uint32_t kContext = 1;
constexpr std::uint64_t kArrayMiB = 16;
constexpr std::uint64_t kLeaseMiB = 64;

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
    hello.highest_op = static_cast<std::uint16_t>(commands::kOpMax);
    hello.recoverable = true;
    hello.shared_memory = shared();
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
  CUresult make_array(std::uint32_t index, std::uint64_t bytes = kArrayMiB * kMiB) {
    commands::CreateArray create{.array = handle<CUarray>(wire::HandleKind::kArray, index)};
    create.descriptor.Width = 1024;
    create.descriptor.Height = bytes / (1024 * 4);
    create.descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT32;
    create.descriptor.NumChannels = 1;
    return ask(create);
  }

  bool shared() const { return std::string(GetParam()) == "shm"; }
  CUresult map_managed(std::uint64_t number) {
    // Where nothing is.
    const std::uint64_t address = 0x5500'0000'0000 + number * kGiB;
    constexpr std::uint64_t kBytes = kArrayMiB * kMiB;
    if (shared()) {
      return ask(commands::ShareHost{.address = address,
                                     .bytes = kBytes,
                                     .offset = number * kGiB,
                                     .flags = wire::kMapManaged});
    }
    return ask(commands::MapHost{.address = address, .bytes = kBytes, .flags = wire::kMapManaged});
  }
  template <class Command>
  CUresult ask(const Command& command) {
    typename Command::Reply reply;
    rpc::Reply answer;
    if (!client::exchange(*channel_, kContext, command, reply, answer)) return CUDA_ERROR_UNKNOWN;
    return static_cast<CUresult>(answer.result());
  }

  rpc::NoPushes pushes_;
  std::unique_ptr<rpc::Channel> channel_;
};

TEST_P(GreedyTest, ASessionThatGoesOnGetsNoMoreThanItsLease) {
  start({"--recover", "10", "--memory", std::to_string(kLeaseMiB) + "M"});
  ASSERT_NO_FATAL_FAILURE(open({}));
  constexpr std::uint32_t kArrays = 3;
  for (std::uint32_t i = 1; i <= kArrays; ++i) ASSERT_EQ(CUDA_SUCCESS, make_array(i));
  kill_idle();
  const wire::SessionToken token = channel_->welcome().recovery;
  ASSERT_NO_FATAL_FAILURE(open(token));
  // What it has had, though nobody has written to it.
  for (std::uint32_t i = 1; i <= kArrays; ++i) {
    EXPECT_EQ(CUDA_SUCCESS, make_array(i)) << server_->log();
  }
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, make_array(kArrays + 1));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, make_array(kArrays + 2));
}

TEST_P(GreedyTest, ASessionThatGoesOnGetsNoMoreManagedMemoryThanItHad) {
  start({"--recover", "10", "--memory", std::to_string(kLeaseMiB) + "M"});
  ASSERT_NO_FATAL_FAILURE(open({}));
  constexpr std::uint64_t kRanges = 3;
  for (std::uint64_t i = 0; i < kRanges; ++i) ASSERT_EQ(CUDA_SUCCESS, map_managed(i));
  kill_idle();
  const wire::SessionToken token = channel_->welcome().recovery;
  ASSERT_NO_FATAL_FAILURE(open(token));
  for (std::uint64_t i = 0; i < kRanges; ++i) {
    EXPECT_EQ(CUDA_SUCCESS, map_managed(i)) << server_->log();
  }
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, map_managed(kRanges));
}

TEST_P(GreedyTest, ArraysBeyondTheFilesThatAProcessMayHaveAreMade) {
  rlimit files{};
  ASSERT_EQ(0, ::getrlimit(RLIMIT_NOFILE, &files));
  rlimit few = files;
  few.rlim_cur = 128;
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &few));
  start();
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &files));
  ASSERT_NO_FATAL_FAILURE(open({}));
  for (std::uint32_t index = 1; index <= 200; ++index) {
    ASSERT_EQ(CUDA_SUCCESS, make_array(index, 4096)) << index;
  }
}

INSTANTIATE_TEST_SUITE_P(Shm, GreedyTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Unix, GreedyTest, ::testing::Values("unix"));

}  // namespace
}  // namespace flyt::tests
