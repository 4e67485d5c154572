// Green contexts: parts of a device's multiprocessors, and what runs on them.
#include "tests/conformance/green.h"

#include <algorithm>
#include <iterator>

#include "tests/conformance/graphs.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

constexpr auto kSm = CU_DEV_RESOURCE_TYPE_SM;

using GreenTest = ContextTest;

bool disjoint(const std::set<std::uint32_t>& one, const std::set<std::uint32_t>& other) {
  std::vector<std::uint32_t> both;
  std::set_intersection(one.begin(), one.end(), other.begin(), other.end(),
                        std::back_inserter(both));
  return both.empty();
}

CUresult read_word(CUdeviceptr from, std::uint32_t& word) {
  return cu().cuMemcpyDtoH_v2(&word, from, sizeof word);
}

TEST_F(GreenTest, ADeviceTellsItsMultiprocessors) {
  CUdevResource resource{};
  CU_OK(cu().cuDeviceGetDevResource(device, &resource, kSm));
  EXPECT_EQ(kSm, resource.type);
  EXPECT_EQ(static_cast<unsigned>(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)),
            resource.sm.smCount);
  EXPECT_GE(resource.sm.minSmPartitionSize, 1u);
  EXPECT_GE(resource.sm.smCoscheduledAlignment, 1u);
  CUdevResource same{};
  CU_OK(cu().cuCtxGetDevResource(context, &same, kSm));
  EXPECT_EQ(resource.sm.smCount, same.sm.smCount);
}

TEST_F(GreenTest, ResourcesOfNoKindOrDeviceAreRefused) {
  CUdevResource resource{};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGetDevResource(device, nullptr, kSm));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDeviceGetDevResource(77, &resource, kSm));
  CU_IS(CUDA_ERROR_INVALID_RESOURCE_TYPE,
        cu().cuDeviceGetDevResource(device, &resource, CU_DEV_RESOURCE_TYPE_INVALID));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxGetDevResource(context, nullptr, kSm));
}

TEST_F(GreenTest, ASplitMakesGroupsOfOneSizeAndARest) {
  const CUdevResource all = device_resource();
  CUdevResource rest{};
  const auto groups = smallest_groups(&rest);
  ASSERT_FALSE(groups.empty());
  unsigned sum = rest.sm.smCount;
  for (const CUdevResource& group : groups) {
    EXPECT_EQ(kSm, group.type);
    EXPECT_EQ(groups[0].sm.smCount, group.sm.smCount);
    EXPECT_GE(group.sm.smCount, all.sm.minSmPartitionSize);
    EXPECT_EQ(0u, group.sm.smCount % all.sm.smCoscheduledAlignment);
    sum += group.sm.smCount;
  }
  EXPECT_EQ(all.sm.smCount, sum);
}

TEST_F(GreenTest, ASplitMakesNoMoreGroupsThanAskedFor) {
  const CUdevResource all = device_resource();
  std::vector<CUdevResource> groups(2);
  CUdevResource rest{};
  unsigned count = 1;
  CU_OK(cu().cuDevSmResourceSplitByCount(groups.data(), &count, &all, &rest, 0, 1));
  EXPECT_EQ(1u, count);
  EXPECT_EQ(all.sm.smCount, groups[0].sm.smCount + rest.sm.smCount);
  EXPECT_EQ(CU_DEV_RESOURCE_TYPE_INVALID, groups[1].type);
}

TEST_F(GreenTest, ASplitWithoutCoschedulingMakesSmallerGroups) {
  const CUdevResource all = device_resource();
  unsigned coarse = 0;
  unsigned fine = 0;
  CU_OK(cu().cuDevSmResourceSplitByCount(nullptr, &coarse, &all, nullptr, 0, 1));
  CU_OK(cu().cuDevSmResourceSplitByCount(nullptr, &fine, &all, nullptr,
                                         CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 1));
  EXPECT_GE(fine, coarse);
}

TEST_F(GreenTest, ASplitRefusesWhatItCannotDo) {
  const CUdevResource all = device_resource();
  const CUdevResource nothing{};
  CUdevResource group{};
  unsigned count = 1;
  unsigned none = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuDevSmResourceSplitByCount(&group, nullptr, &all, nullptr, 0, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuDevSmResourceSplitByCount(&group, &count, nullptr, nullptr, 0, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuDevSmResourceSplitByCount(&group, &none, &all, nullptr, 0, 1));
  CU_IS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
        cu().cuDevSmResourceSplitByCount(&group, &count, &all, nullptr, 0, all.sm.smCount + 1));
  CU_IS(CUDA_ERROR_INVALID_RESOURCE_TYPE,
        cu().cuDevSmResourceSplitByCount(&group, &count, &nothing, nullptr, 0, 1));
  CUdevResource empty = all;
  empty.sm = {};
  CUdevResourceDesc description = nullptr;
  CU_IS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
        cu().cuDevSmResourceSplitByCount(&group, &count, &empty, nullptr, 0, 1));
  CU_IS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
        cu().cuDevResourceGenerateDesc(&description, &empty, 1));
}

TEST_F(GreenTest, APartIsNotSplitAgain) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  CUdevResource part{};
  unsigned count = 1;
  EXPECT_NE(CUDA_SUCCESS,
            cu().cuDevSmResourceSplitByCount(&part, &count, &groups[0], nullptr, 0, 1));
}

TEST_F(GreenTest, WhatAGreenContextHasCanBeSplit) {
  const auto groups = smallest_groups();
  ASSERT_GE(groups.size(), 2u);
  const GreenContext green({groups[0], groups[1]});
  CUdevResource own{};
  CU_OK(cu().cuGreenCtxGetDevResource(green, &own, kSm));
  EXPECT_EQ(groups[0].sm.smCount + groups[1].sm.smCount, own.sm.smCount);
  CUdevResource same{};
  CU_OK(cu().cuCtxGetDevResource(green.context(), &same, kSm));
  EXPECT_EQ(own.sm.smCount, same.sm.smCount);
  unsigned count = 0;
  CU_OK(cu().cuDevSmResourceSplitByCount(nullptr, &count, &own, nullptr, 0, groups[0].sm.smCount));
  EXPECT_EQ(2u, count);
}

TEST_F(GreenTest, DescriptionsAreOfParts) {
  CUdevResource all = device_resource();
  auto groups = smallest_groups();
  ASSERT_GE(groups.size(), 2u);
  CUdevResourceDesc description = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDevResourceGenerateDesc(nullptr, groups.data(), 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDevResourceGenerateDesc(&description, nullptr, 1));
  std::vector<CUdevResource> mixed{all, groups[0]};
  CU_OK(cu().cuDevResourceGenerateDesc(&description, mixed.data(), 2));
  std::vector<CUdevResource> nothing(1);
  CU_IS(CUDA_ERROR_INVALID_RESOURCE_TYPE,
        cu().cuDevResourceGenerateDesc(&description, nothing.data(), 1));
  CU_OK(cu().cuDevResourceGenerateDesc(&description, groups.data(), 2));
  CU_OK(cu().cuDevResourceGenerateDesc(&description, &all, 1));
}

TEST_F(GreenTest, CreationChecksItsArguments) {
  auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  CUdevResourceDesc description = nullptr;
  CU_OK(cu().cuDevResourceGenerateDesc(&description, groups.data(), 1));
  CUgreenCtx green = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuGreenCtxCreate(nullptr, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGreenCtxCreate(&green, description, device, 0x80));
  CU_IS(CUDA_ERROR_INVALID_DEVICE,
        cu().cuGreenCtxCreate(&green, description, 77, CU_GREEN_CTX_DEFAULT_STREAM));
  EXPECT_EQ(nullptr, green);
}

TEST_F(GreenTest, KernelsStayOnTheMultiprocessorsOfTheirStream) {
  const auto groups = smallest_groups();
  ASSERT_GE(groups.size(), 2u);
  const GreenContext one({groups[0]});
  const GreenContext other({groups[1]});
  const GreenStream first(one);
  const GreenStream second(other);
  const Places places;
  const auto seen_first = places.of(first);
  const auto seen_second = places.of(second);
  EXPECT_LE(seen_first.size(), groups[0].sm.smCount);
  EXPECT_LE(seen_second.size(), groups[1].sm.smCount);
  EXPECT_TRUE(disjoint(seen_first, seen_second));
  EXPECT_GT(places.of(nullptr).size(), groups[0].sm.smCount);
}

TEST_F(GreenTest, DefaultStreamsOfAGreenContextStayThereToo) {
  const auto groups = smallest_groups();
  ASSERT_GE(groups.size(), 2u);
  const GreenContext one({groups[0]});
  const GreenContext other({groups[1]});
  const GreenStream elsewhere(other);
  const Places places;
  const auto others = places.of(elsewhere);
  const CurrentContext current(one.context());
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    const auto seen = places.of(stream);
    EXPECT_LE(seen.size(), groups[0].sm.smCount);
    EXPECT_TRUE(disjoint(seen, others));
  }
}

TEST_F(GreenTest, AGreenContextOfSeveralGroupsHasAllTheirMultiprocessors) {
  const auto groups = smallest_groups();
  ASSERT_GE(groups.size(), 2u);
  const GreenContext green({groups[0], groups[1]});
  const GreenStream stream(green);
  const Places places;
  const auto seen = places.of(stream);
  EXPECT_GT(seen.size(), groups[0].sm.smCount);
  EXPECT_LE(seen.size(), groups[0].sm.smCount + groups[1].sm.smCount);
}

TEST_F(GreenTest, ACooperativeGridMustFitTheGreenContext) {
  const auto groups = smallest_groups();
  ASSERT_GE(groups.size(), 2u);
  const GreenContext green({groups[0]});
  const GreenStream stream(green);
  const Stream whole;
  const Module module(kBasicPtx);
  const CUfunction empty = module.function("empty");
  int each = 0;
  CU_OK(cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, empty, 256, 0));
  const unsigned fits = static_cast<unsigned>(each) * groups[0].sm.smCount;
  const auto launch_of = [&](unsigned blocks, CUstream where) {
    return cu().cuLaunchCooperativeKernel(empty, blocks, 1, 1, 256, 1, 1, 0, where, nullptr);
  };
  CU_OK(launch_of(fits + 1, whole));
  CU_IS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, launch_of(fits + 1, stream));
  CU_OK(launch_of(fits, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  CU_OK(cu().cuStreamSynchronize(whole));
}

TEST_F(GreenTest, StreamsTellTheirGreenContext) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  const GreenContext green({groups[0]});
  const GreenStream own(green);
  const Stream ordinary;
  CUgreenCtx told = nullptr;
  CUcontext of = nullptr;
  CU_OK(cu().cuStreamGetGreenCtx(own, &told));
  EXPECT_EQ(green, told);
  CU_OK(cu().cuStreamGetCtx(own, &of));
  EXPECT_EQ(green.context(), of);
  told = nullptr;
  CU_OK(cu().cuStreamGetCtx_v2(own, &of, &told));
  EXPECT_EQ(context, of);
  EXPECT_EQ(green, told);
  CU_OK(cu().cuStreamGetGreenCtx(ordinary, &told));
  EXPECT_EQ(nullptr, told);
  CU_OK(cu().cuStreamGetGreenCtx(nullptr, &told));
  EXPECT_EQ(nullptr, told);
  const CurrentContext current(green.context());
  CU_OK(cu().cuStreamGetGreenCtx(nullptr, &told));
  EXPECT_EQ(green, told);
  CU_OK(cu().cuStreamGetCtx(nullptr, &of));
  EXPECT_EQ(green.context(), of);
  const Stream made(CU_STREAM_DEFAULT);
  CU_OK(cu().cuStreamGetGreenCtx(made, &told));
  EXPECT_EQ(green, told);
}

TEST_F(GreenTest, StreamsOfAGreenContextDoNotBlock) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  const GreenContext green({groups[0]});
  CUstream stream = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuGreenCtxStreamCreate(nullptr, green, CU_STREAM_NON_BLOCKING, 0));
  const GreenStream made(green);
  unsigned flags = 0;
  CU_OK(cu().cuStreamGetFlags(made, &flags));
  EXPECT_EQ(CU_STREAM_NON_BLOCKING, flags);
}

TEST_F(GreenTest, EachHasADifferentNumber) {
  const auto groups = smallest_groups();
  ASSERT_GE(groups.size(), 2u);
  const GreenContext one({groups[0]});
  const GreenContext other({groups[1]});
  unsigned long long first = 0;
  unsigned long long second = 0;
  unsigned long long primary = 0;
  CU_OK(cu().cuGreenCtxGetId(one, &first));
  CU_OK(cu().cuGreenCtxGetId(other, &second));
  CU_OK(cu().cuCtxGetId(context, &primary));
  EXPECT_NE(first, second);
  EXPECT_NE(first, primary);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGreenCtxGetId(one, nullptr));
}

TEST_F(GreenTest, CodeAndMemoryOfThePrimaryContextWorkInIt) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  const Module module(kBasicPtx);
  const DeviceMemory memory(4);
  const GreenContext green({groups[0]});
  const GreenStream stream(green);
  CU_OK(launch(module.function("store_value"), 1, 1, stream, CUdeviceptr{memory}, 41u));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(41u, memory.read<std::uint32_t>()[0]);
  const CurrentContext current(green.context());
  CU_OK(launch(module.function("add_one"), 1, 32, nullptr, CUdeviceptr{memory}, 1u));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(42u, memory.read<std::uint32_t>()[0]);
}

TEST_F(GreenTest, WhatIsMadeInItOutlivesIt) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  GreenContext green({groups[0]});
  CUdeviceptr memory = 0;
  CUmodule module = nullptr;
  CUevent event = nullptr;
  {
    const CurrentContext current(green.context());
    CU_OK(cu().cuMemAlloc_v2(&memory, 4));
    CU_OK(cu().cuModuleLoadData(&module, kBasicPtx));
    CU_OK(cu().cuEventCreate(&event, 0));
    CU_OK(cu().cuEventRecord(event, nullptr));
  }
  CU_OK(green.destroy());
  CUfunction store = nullptr;
  CU_OK(cu().cuModuleGetFunction(&store, module, "store_value"));
  CU_OK(launch(store, 1, 1, nullptr, memory, 5u));
  CU_OK(cu().cuEventRecord(event, nullptr));
  CU_OK(cu().cuEventSynchronize(event));
  std::uint32_t word = 0;
  CU_OK(read_word(memory, word));
  EXPECT_EQ(5u, word);
  CU_OK(cu().cuEventDestroy_v2(event));
  CU_OK(cu().cuModuleUnload(module));
  CU_OK(cu().cuMemFree_v2(memory));
}

TEST_F(GreenTest, DestroyingItWaitsForNobodyElse) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  GreenContext green({groups[0]});
  const Stream other;
  Gate gate;
  gate.close(other);
  CU_OK(green.destroy());
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(other));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(other));
}

TEST_F(GreenTest, ItsContextIsNotDestroyedAsOneOfItsOwn) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  const GreenContext green({groups[0]});
  EXPECT_NE(CUDA_SUCCESS, cu().cuCtxDestroy_v2(green.context()));
  const CurrentContext current(green.context());
  CU_OK(cu().cuCtxSynchronize());
}

TEST_F(GreenTest, SynchronizingItWaitsForItsWorkOnly) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  const GreenContext green({groups[0]});
  const Stream other;
  Gate gate;
  gate.close(other);
  {
    const CurrentContext current(green.context());
    CU_OK(cu().cuCtxSynchronize());
  }
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(other));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(other));
}

TEST_F(GreenTest, SynchronizingThePrimaryContextWaitsForItToo) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  const GreenContext green({groups[0]});
  const GreenStream stream(green);
  const Module module(kBasicPtx);
  const DeviceMemory memory(4 * 1024);
  for (unsigned i = 0; i < 50; ++i) {
    CU_OK(launch(module.function("add_one"), 4, 256, stream, CUdeviceptr{memory}, 1024u));
  }
  CU_OK(cu().cuCtxSynchronize());
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(stream));
}

TEST_F(GreenTest, AnEventOfItStandsForAllItsStreamsAndNoOther) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  const GreenContext green({groups[0]});
  const GreenStream first(green);
  const GreenStream second(green);
  const Stream outside;
  const Event event;
  Gate gate;
  Gate outer;
  outer.close(outside);
  CU_OK(cu().cuGreenCtxRecordEvent(green, event));
  CU_OK(cu().cuEventSynchronize(event));
  gate.close(second);
  CU_OK(cu().cuGreenCtxRecordEvent(green, event));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuEventQuery(event));
  gate.open();
  CU_OK(cu().cuEventSynchronize(event));
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(second));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(outside));
  outer.open();
  CU_OK(cu().cuStreamSynchronize(outside));
}

TEST_F(GreenTest, ItWaitsForAnEventWithAllItsStreams) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  const GreenContext green({groups[0]});
  const GreenStream before(green);
  const Stream outside;
  const Stream other;
  const Event event;
  const Module module(kBasicPtx);
  const CUfunction store = module.function("store_value");
  const DeviceMemory memory(8);
  Gate gate;
  gate.close(outside);
  CU_OK(cu().cuEventRecord(event, outside));
  CU_OK(cu().cuGreenCtxWaitEvent(green, event));
  const GreenStream after(green);
  CU_OK(launch(store, 1, 1, before, CUdeviceptr{memory}, 1u));
  CU_OK(launch(store, 1, 1, after, CUdeviceptr{memory + 4}, 2u));
  CU_OK(cu().cuStreamSynchronize(other));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(before));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(after));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(before));
  CU_OK(cu().cuStreamSynchronize(after));
  EXPECT_EQ((std::vector<std::uint32_t>{1, 2}), memory.read<std::uint32_t>());
}

TEST_F(GreenTest, EventsOfThePrimaryContextStandForItToo) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  const GreenContext green({groups[0]});
  const GreenStream stream(green);
  const Event event;
  Gate gate;
  gate.close(stream);
  CU_OK(cu().cuCtxRecordEvent(context, event));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuEventQuery(event));
  gate.open();
  CU_OK(cu().cuEventSynchronize(event));
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(stream));
}

TEST_F(GreenTest, AnEventOfItsPrimaryContextIsRecordedInItsStreams) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  const GreenContext green({groups[0]});
  const GreenStream stream(green);
  const Stream other;
  const Event event;
  Gate gate;
  gate.close(stream);
  CU_OK(cu().cuEventRecord(event, stream));
  CU_OK(cu().cuStreamWaitEvent(other, event, 0));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(other));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(other));
}

TEST_F(GreenTest, CopiesAndPoolsWorkInItsStreams) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  const GreenContext green({groups[0]});
  const GreenStream stream(green);
  const PinnedMemory host(4096);
  std::fill_n(host.bytes(), 4096, std::uint8_t{9});
  CUdeviceptr memory = 0;
  CU_OK(cu().cuMemAllocAsync(&memory, 4096, stream));
  CU_OK(cu().cuMemcpyHtoDAsync_v2(memory, host.data(), 4096, stream));
  CU_OK(cu().cuMemsetD8Async(memory, 7, 1024, stream));
  CU_OK(cu().cuMemcpyDtoHAsync_v2(host.data(), memory, 4096, stream));
  CU_OK(cu().cuMemFreeAsync(memory, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(7, host.bytes()[1023]);
  EXPECT_EQ(9, host.bytes()[1024]);
}

TEST_F(GreenTest, ManyComeAndGo) {
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  const Places places;
  for (int i = 0; i < 20; ++i) {
    const GreenContext green({groups[static_cast<std::size_t>(i) % groups.size()]});
    const GreenStream stream(green);
    const CurrentContext current(green.context());
    EXPECT_LE(places.of(nullptr).size(), groups[0].sm.smCount);
    EXPECT_LE(places.of(stream).size(), groups[0].sm.smCount);
    EXPECT_LE(places.of(CU_STREAM_PER_THREAD).size(), groups[0].sm.smCount);
  }
}

using GreenAlone = DriverTest;

TEST_F(GreenAlone, ItKeepsThePrimaryContextAlive) {
  unsigned flags = 0;
  int active = 0;
  const auto groups = smallest_groups();
  ASSERT_FALSE(groups.empty());
  CU_OK(cu().cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(0, active);
  {
    const GreenContext green({groups[0]});
    CU_OK(cu().cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT_EQ(1, active);
    CUcontext current = nullptr;
    CU_OK(cu().cuCtxGetCurrent(&current));
    EXPECT_EQ(nullptr, current);
  }
  CU_OK(cu().cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(0, active);
}

using GreenGraphTest = ContextTest;

// Whatever stream the graph is launched into.
TEST_F(GreenGraphTest, KernelsStayOnTheMultiprocessorsOfTheirCapture) {
  const auto groups = smallest_groups();
  ASSERT_GE(groups.size(), 2u);
  const GreenContext green({groups[0]});
  const GreenStream stream(green);
  const Stream whole;
  const Places places;
  const auto direct = places.of(stream);
  CUgraph captured = nullptr;
  CaptureOf capture(stream);
  CU_OK(launch(places.function(), Places::kBlocks, 32, stream, CUdeviceptr{places.memory()}));
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  const OwnedExec exec(graph);
  CU_OK(cu().cuGraphLaunch(exec, whole));
  CU_OK(cu().cuStreamSynchronize(whole));
  EXPECT_LE(places.seen(Places::kBlocks).size(), groups[0].sm.smCount);
  EXPECT_EQ(direct, places.seen(Places::kBlocks));
}

}  // namespace
}  // namespace flyt::conformance
