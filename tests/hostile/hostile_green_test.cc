// Green contexts and resources that a client has not got, or ends in the wrong order.
#include <array>
#include <span>
#include <vector>

#include "tests/hostile/hostile_session.h"

namespace flyt::sim {
namespace {

using wire::HandleKind;

class HostileGreen : public HostileSession {
 protected:
  static constexpr std::uint32_t kConverted = 2;

  // The numbers of the first `count` of the device's groups.
  std::vector<std::uint64_t> groups(std::uint32_t count) {
    EXPECT_EQ(ask(commands::DeviceResource{.type = CU_DEV_RESOURCE_TYPE_SM}), CUDA_SUCCESS);
    commands::DeviceResource::Reply device;
    EXPECT_TRUE(wire::decode(fields(), device));
    EXPECT_EQ(ask(commands::SplitResource{.resource = device.resource, .groups = count}),
              CUDA_SUCCESS);
    commands::SplitResource::Reply split;
    EXPECT_TRUE(wire::decode(fields(), split));
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
  expect_ended();
}

TEST_F(HostileGreen, AHandleOfAnotherKindEndsTheSession) {
  ASSERT_EQ(describe(groups(1)), CUDA_SUCCESS);
  auto twisted = creation();
  twisted.green = handle_as<CUgreenCtx>(HandleKind::kStream, 5);
  send(twisted);
  expect_ended();
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
  // The event is the primary context's. What it stands for may still be on its way.
  EXPECT_EQ(ask(commands::EventSynchronize{.event = event}, kPrimary), CUDA_SUCCESS);
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

// It is made while the primary context's end waits for the work there is.
TEST_F(HostileGreen, ThePrimaryContextTakesOneAlongThatComesLate) {
  const auto busy = handle_as<CUstream>(HandleKind::kStream, 1);
  const auto other = handle_as<CUstream>(HandleKind::kStream, 2);
  ASSERT_EQ(describe(groups(1)), CUDA_SUCCESS);
  ASSERT_EQ(ask(commands::MemAlloc{.bytes = 4096}, kPrimary), CUDA_SUCCESS);
  commands::MemAlloc::Reply word;
  ASSERT_TRUE(wire::decode(fields(), word));
  for (const CUstream stream : {busy, other}) {
    send(commands::StreamCreate{.stream = stream, .flags = CU_STREAM_NON_BLOCKING}, kPrimary);
  }
  const auto put = [&](std::uint64_t value) {
    send(commands::StreamMemOp{.stream = other,
                               .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                               .address = word.address,
                               .value = value},
         kPrimary);
  };
  put(0);
  ASSERT_EQ(ask(commands::StreamSynchronize{.stream = other}, kPrimary), CUDA_SUCCESS);
  send(commands::StreamMemOp{.stream = busy,
                             .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                             .address = word.address,
                             .value = 1,
                             .flags = CU_STREAM_WAIT_VALUE_EQ},
       kPrimary);
  send(commands::ReleasePrimary{.context = context(kPrimary)});
  EXPECT_EQ(ask(creation()), CUDA_SUCCESS);
  put(1);
  EXPECT_EQ(answer(), CUDA_SUCCESS);
  const auto legacy = static_cast<CUstream>(pointer_at(wire::kStreamLegacy));
  EXPECT_EQ(ask(commands::StreamQuery{.stream = legacy}, kConverted), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(ask(commands::DestroyGreenContext{.green = creation().green}),
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(ask(commands::RetainPrimary{.context = context(3)}), CUDA_SUCCESS);
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
  ASSERT_TRUE(wire::decode(fields(), shared));
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
