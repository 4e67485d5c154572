// Green contexts and resources that a client has not got, or ends in the wrong order.
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "commands/all.h"
#include "cuda/types.h"
#include "tests/sim/hostile.h"
#include "wire/handle.h"

namespace flyt::sim {
namespace {

using wire::HandleKind;

template <class T>
T handle_as(HandleKind kind, std::uint32_t index) {
  return static_cast<T>(pointer_at(wire::Handle::make(kind, 1, index).value));
}

class HostileGreen : public HostileTest {
 protected:
  static constexpr std::uint32_t kPrimary = 1;
  static constexpr std::uint32_t kConverted = 2;

  void SetUp() override {
    HostileTest::SetUp();
    peer_ = std::make_unique<Peer>(attacker());
    ASSERT_EQ(ask(commands::RetainPrimary{.context = context(kPrimary)}), CUDA_SUCCESS);
  }
  void TearDown() override {
    peer_.reset();
    HostileTest::TearDown();
  }

  static CUcontext context(std::uint32_t index) {
    return handle_as<CUcontext>(HandleKind::kContext, index);
  }
  template <class Command>
  void send(const Command& command, std::uint32_t context = 0) {
    std::vector<std::byte> bytes(wire::encoded_size(command));
    Writer writer(bytes);
    wire::encode(writer, command);
    EXPECT_TRUE(peer_->send_command(Command::kOp, bytes, Command::kWaits, context).ok());
  }
  template <class Command>
  CUresult ask(const Command& command, std::uint32_t context = 0) {
    send(command, context);
    const Heard heard = peer_->read_until(wire::FrameKind::kReply);
    if (!heard.is(wire::FrameKind::kReply)) {
      ADD_FAILURE() << "no reply: " << heard.text() << "\n" << server().log();
      return CUDA_ERROR_UNKNOWN;
    }
    answered_ = heard.payload;
    Reader reader(heard.payload);
    return static_cast<CUresult>(wire::decode_reply_prefix(reader).result);
  }
  // The numbers of the first `count` of the device's groups.
  std::vector<std::uint64_t> groups(std::uint32_t count) {
    EXPECT_EQ(ask(commands::DeviceResource{.type = CU_DEV_RESOURCE_TYPE_SM}), CUDA_SUCCESS);
    commands::DeviceResource::Reply device;
    EXPECT_TRUE(wire::decode(Bytes(answered_).subspan(sizeof(wire::ReplyPrefix)), device));
    EXPECT_EQ(ask(commands::SplitResource{.resource = device.resource, .groups = count}),
              CUDA_SUCCESS);
    commands::SplitResource::Reply split;
    EXPECT_TRUE(wire::decode(Bytes(answered_).subspan(sizeof(wire::ReplyPrefix)), split));
    return split.resources.to_vector();
  }
  CUresult describe(const std::vector<std::uint64_t>& resources, std::uint32_t index = 1) {
    return ask(commands::DescribeResources{
        .description = handle_as<CUdevResourceDesc>(HandleKind::kResourceDescription, index),
        .resources = wire::List<std::uint64_t>(std::span<const std::uint64_t>(resources))});
  }
  static commands::CreateGreenContext creation(std::uint32_t converted = kConverted) {
    return {.green = handle_as<CUgreenCtx>(HandleKind::kGreenContext, converted),
            .context = context(converted),
            .description = handle_as<CUdevResourceDesc>(HandleKind::kResourceDescription, 1),
            .device = 0,
            .flags = CU_GREEN_CTX_DEFAULT_STREAM};
  }
  void make_green() {
    ASSERT_EQ(describe(groups(1)), CUDA_SUCCESS);
    ASSERT_EQ(ask(creation()), CUDA_SUCCESS);
  }

  std::unique_ptr<Peer> peer_;
  std::vector<std::byte> answered_;  // The payload of the last reply.
};

TEST_F(HostileGreen, NumbersThatNameNoResourceAreRefused) {
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{77}, ~std::uint64_t{0}}) {
    EXPECT_EQ(ask(commands::SplitResource{.resource = number, .groups = 1}),
              CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    EXPECT_EQ(describe({number}), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  }
  EXPECT_EQ(describe({}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(commands::DeviceResource{.device = -1, .type = CU_DEV_RESOURCE_TYPE_SM}),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(ask(commands::DeviceResource{.type = 0xffffffff}), CUDA_ERROR_INVALID_RESOURCE_TYPE);
  EXPECT_EQ(ask(commands::ContextResource{.context = context(9)}), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(HostileGreen, AsksForMoreGroupsThanThereCanBeAndGetsWhatThereIs) {
  const auto got = groups(0xffffffff);
  EXPECT_GE(got.size(), 1u);
  EXPECT_LE(got.size(), std::size_t{commands::SplitResource::Reply::kResourcesCountMax});
}

TEST_F(HostileGreen, NothingIsCreatedFromNothing) {
  EXPECT_EQ(ask(creation()), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(describe(groups(1)), CUDA_SUCCESS);
  auto elsewhere = creation();
  elsewhere.device = 1 << 20;
  EXPECT_EQ(ask(elsewhere), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(commands::DestroyGreenContext{.green = creation().green}),
            CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_EQ(ask(commands::ReleasePrimary{.context = context(kPrimary)}), CUDA_SUCCESS);
  EXPECT_EQ(ask(creation()), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostileGreen, AHandleInUseEndsTheSession) {
  make_green();
  send(creation());
  const auto ending = peer_->ended();
  EXPECT_TRUE(ending.in_order) << ending.reason;
}

TEST_F(HostileGreen, AHandleOfAnotherKindEndsTheSession) {
  ASSERT_EQ(describe(groups(1)), CUDA_SUCCESS);
  auto twisted = creation();
  twisted.green = handle_as<CUgreenCtx>(HandleKind::kStream, 5);
  send(twisted);
  const auto ending = peer_->ended();
  EXPECT_TRUE(ending.in_order) << ending.reason;
}

TEST_F(HostileGreen, ItsContextEndsWithItAndInNoOtherWay) {
  make_green();
  const auto legacy = static_cast<CUstream>(pointer_at(wire::kStreamLegacy));
  EXPECT_EQ(ask(commands::DestroyContext{.context = context(kConverted)}),
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(ask(commands::ResetPrimary{.context = context(kConverted)}),
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(ask(commands::StreamQuery{.stream = legacy}, kConverted), CUDA_SUCCESS);
  EXPECT_EQ(ask(commands::DestroyGreenContext{.green = creation().green}), CUDA_SUCCESS);
  EXPECT_EQ(ask(commands::DestroyGreenContext{.green = creation().green}),
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(ask(commands::StreamQuery{.stream = legacy}, kConverted), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(ask(commands::StreamQuery{.stream = legacy}, kPrimary), CUDA_SUCCESS);
}

TEST_F(HostileGreen, ItMayEndWhileItsStreamsAreUsed) {
  make_green();
  const auto stream = handle_as<CUstream>(HandleKind::kStream, 1);
  const auto event = handle_as<CUevent>(HandleKind::kEvent, 1);
  send(commands::StreamCreate{.stream = stream, .flags = CU_STREAM_NON_BLOCKING}, kConverted);
  send(commands::EventCreate{.event = event}, kConverted);
  send(commands::DestroyGreenContext{.green = creation().green});
  constexpr int kRounds = 50;
  for (int i = 0; i < kRounds; ++i) {
    send(commands::EventRecord{.event = event, .stream = stream}, kConverted);
    send(commands::ContextRecordEvent{.context = context(kConverted), .event = event}, kPrimary);
    send(commands::StreamSynchronize{.stream = stream}, kConverted);
  }
  for (int i = 0; i < 1 + kRounds; ++i) {
    EXPECT_TRUE(peer_->read_until(wire::FrameKind::kReply).is(wire::FrameKind::kReply));
  }
  EXPECT_EQ(ask(commands::StreamQuery{.stream = stream}, kPrimary), CUDA_ERROR_INVALID_HANDLE);
  // The event is the primary context's.
  EXPECT_EQ(ask(commands::EventQuery{.event = event}, kPrimary), CUDA_SUCCESS);
}

TEST_F(HostileGreen, ThePrimaryContextTakesItAlong) {
  make_green();
  const auto stream = handle_as<CUstream>(HandleKind::kStream, 1);
  send(commands::StreamCreate{.stream = stream, .flags = CU_STREAM_NON_BLOCKING}, kConverted);
  EXPECT_EQ(ask(commands::ReleasePrimary{.context = context(kPrimary)}), CUDA_SUCCESS);
  EXPECT_EQ(ask(commands::StreamQuery{.stream = stream}), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(ask(commands::DestroyGreenContext{.green = creation().green}),
            CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(HostileGreen, EventsOfContextsAreOfContextsAndEvents) {
  const auto event = handle_as<CUevent>(HandleKind::kEvent, 1);
  send(commands::EventCreate{.event = event}, kPrimary);
  send(commands::ContextRecordEvent{.context = context(7), .event = event}, kPrimary);
  send(commands::ContextWaitEvent{.context = context(kPrimary),
                                  .event = handle_as<CUevent>(HandleKind::kEvent, 2)},
       kPrimary);
  EXPECT_EQ(ask(commands::EventQuery{.event = event}, kPrimary), CUDA_SUCCESS);
}

TEST_F(HostileGreen, PoolsAreOpenedByTheirOwnHandlesOnly) {
  EXPECT_EQ(ask(commands::SharePool{.pool = 0x1234567}, kPrimary), CUDA_ERROR_INVALID_VALUE);
  std::array<std::byte, 64> forged{};
  EXPECT_EQ(ask(commands::OpenPool{.handle = forged}, kPrimary), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(commands::OpenPool{.handle = Bytes(forged).subspan(1)}, kPrimary),
            CUDA_ERROR_INVALID_VALUE);
  // A pool's handle is no memory's.
  constexpr std::uint64_t kDefaultPool = 1;
  ASSERT_EQ(ask(commands::SharePool{.pool = kDefaultPool}, kPrimary), CUDA_SUCCESS);
  commands::SharePool::Reply shared;
  ASSERT_TRUE(wire::decode(Bytes(answered_).subspan(sizeof(wire::ReplyPrefix)), shared));
  const std::vector<std::byte> handle(shared.handle.begin(), shared.handle.end());
  EXPECT_EQ(ask(commands::OpenPool{.handle = handle}, kPrimary), CUDA_SUCCESS);
  EXPECT_EQ(ask(commands::OpenShared{.allocation =
                                         wire::Handle::make(HandleKind::kMemAllocation, 1, 1).value,
                                     .handle = handle},
                kPrimary),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace flyt::sim
