// Launches: results, parameters, and every configuration that must be refused at the call.
#include <memory>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

class LaunchTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    module = std::make_unique<Module>(kBasicPtx);
  }
  // A launch of a kernel without parameters.
  CUresult plain(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                 unsigned by, unsigned bz, unsigned shared = 0) const {
    return cu().cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, nullptr, nullptr, nullptr);
  }
  CUfunction function(const char* name) const { return module->function(name); }
  std::unique_ptr<Module> module;
};

TEST_F(LaunchTest, AddsTwoVectors) {
  constexpr unsigned kCount = 1000;
  std::vector<float> a(kCount);
  std::vector<float> b(kCount);
  for (unsigned i = 0; i < kCount; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = 0.5f * static_cast<float>(i);
  }
  const DeviceMemory device_a(4 * kCount);
  const DeviceMemory device_b(4 * kCount);
  const DeviceMemory device_c(4 * kCount);
  device_a.write(a);
  device_b.write(b);
  CU_OK(launch(function("vector_add"), 8, 128, nullptr, static_cast<CUdeviceptr>(device_a),
               static_cast<CUdeviceptr>(device_b), static_cast<CUdeviceptr>(device_c), kCount));
  CU_OK(cu().cuCtxSynchronize());
  const auto c = device_c.read<float>();
  for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(a[i] + b[i], c[i]) << i;
}

TEST_F(LaunchTest, EveryThreadKnowsItsPlaceInThreeDimensions) {
  const DeviceMemory out(4 * 12 * 24);
  CUdeviceptr address = out;
  void* parameters[] = {&address};
  CU_OK(cu().cuLaunchKernel(function("coordinates"), 2, 3, 2, 4, 3, 2, 0, nullptr, parameters,
                            nullptr));
  CU_OK(cu().cuCtxSynchronize());
  const auto values = out.read<std::uint32_t>();
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ((i / 24) * 65536 + i % 24, values[i]) << i;
  }
}

TEST_F(LaunchTest, ParametersOfEverySizeArrive) {
  struct Pair {
    std::uint64_t first;
    std::int32_t second;
    std::int32_t third;
  };
  const DeviceMemory out(64);
  CU_OK(launch(function("pick"), 1, 1, nullptr, static_cast<std::uint8_t>(200),
               static_cast<std::uint16_t>(60000), 4000000000u, std::uint64_t{1} << 60, 1.5f, 2.25,
               Pair{77, -5, 0}, static_cast<CUdeviceptr>(out)));
  CU_OK(cu().cuCtxSynchronize());
  const auto values = out.read<std::uint64_t>();
  EXPECT_EQ(200u, values[0]);
  EXPECT_EQ(60000u, values[1]);
  EXPECT_EQ(4000000000u, values[2]);
  EXPECT_EQ(std::uint64_t{1} << 60, values[3]);
  EXPECT_EQ(0x3fc00000u, values[4]);
  EXPECT_EQ(0x4002000000000000u, values[5]);
  EXPECT_EQ(77u, values[6]);
  EXPECT_EQ(static_cast<std::uint64_t>(-5), values[7]);
}

TEST_F(LaunchTest, ParametersAreCopiedAtTheCall) {
  const DeviceMemory out(4);
  CUdeviceptr address = out;
  std::uint32_t value = 5;
  void* parameters[] = {&address, &value};
  Gate gate;
  const Stream stream;
  gate.close(stream);
  CU_OK(cu().cuLaunchKernel(function("store_value"), 1, 1, 1, 1, 1, 1, 0, stream, parameters,
                            nullptr));
  value = 6;
  address = 0;
  gate.open();
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(5u, out.read<std::uint32_t>()[0]);
}

TEST_F(LaunchTest, AKernelWithManyVirtualRegistersRunsInTheLargestBlock) {
  // Each is used once, so that few are in use at a time.
  constexpr unsigned kRegisters = 600;
  std::string text = R"(.version 6.3
.target sm_70
.address_size 64
.visible .entry many(.param .u64 out) {
.reg .b32 %i, %sum, %r<600>; .reg .b64 %out, %o;
ld.param.u64 %out, [out]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %out, %out, %o;
mov.u32 %sum, 0;
)";
  for (unsigned i = 0; i < kRegisters; ++i) {
    const std::string name = "%r" + std::to_string(i);
    text += "shr.u32 " + name + ", %i, " + std::to_string(i % 7) + "; add.u32 %sum, %sum, " + name +
            ";\n";
  }
  text += "st.global.u32 [%out], %sum; ret;\n}\n";
  const Module many(text.c_str());
  int threads = 0;
  CU_OK(cu().cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                many.function("many")));
  EXPECT_EQ(1024, threads);
  const DeviceMemory out(4 * 1024);
  CU_OK(launch(many.function("many"), 1, 1024, nullptr, static_cast<CUdeviceptr>(out)));
  CU_OK(cu().cuCtxSynchronize());
  const auto values = out.read<std::uint32_t>();
  for (unsigned i = 0; i < 1024; ++i) {
    std::uint32_t sum = 0;
    for (unsigned k = 0; k < kRegisters; ++k) sum += i >> (k % 7);
    ASSERT_EQ(sum, values[i]) << i;
  }
}

TEST_F(LaunchTest, TheExtraBufferWorksLikeParameters) {
  const DeviceMemory out(4);
  struct {
    CUdeviceptr address;
    std::uint32_t value;
  } buffer{out, 31};
  std::size_t size = 12;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  CU_OK(cu().cuLaunchKernel(function("store_value"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(31u, out.read<std::uint32_t>()[0]);
}

TEST_F(LaunchTest, AnExtraBufferThatIsTooLongIsRefused) {
  std::uint8_t buffer[64] = {};
  std::size_t size = 28;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  CU_IS(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        cu().cuLaunchKernel(function("store_value"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

TEST_F(LaunchTest, ParametersAndExtraTogetherAreRefused) {
  const DeviceMemory out(4);
  CUdeviceptr address = out;
  std::uint32_t value = 6;
  void* parameters[] = {&address, &value};
  std::size_t size = 12;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuLaunchKernel(function("store_value"), 1, 1, 1, 1, 1, 1, 0,
                                                      nullptr, parameters, extra));
}

TEST_F(LaunchTest, AnEmptyListBesideParametersIsNone) {
  const DeviceMemory out(4);
  CUdeviceptr address = out;
  std::uint32_t value = 6;
  void* parameters[] = {&address, &value};
  void* extra[] = {CU_LAUNCH_PARAM_END};
  CU_OK(cu().cuLaunchKernel(function("store_value"), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters,
                            extra));
  EXPECT_EQ(6u, out.read<std::uint32_t>()[0]);
}

TEST_F(LaunchTest, MissingParametersAreRefused) {
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(function("store_value"), 1, 1, 1, 1, 1, 1));
}

TEST_F(LaunchTest, DynamicSharedMemoryIsThere) {
  const DeviceMemory in(4 * 256);
  const DeviceMemory out(8);
  in.write(std::vector<std::uint32_t>(256, 3));
  CUdeviceptr from = in;
  CUdeviceptr to = out;
  void* parameters[] = {&from, &to};
  CU_OK(cu().cuLaunchKernel(function("shared_sum"), 2, 1, 1, 128, 1, 1, 512, nullptr, parameters,
                            nullptr));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ((std::vector<std::uint32_t>{384, 384}), out.read<std::uint32_t>());
}

TEST_F(LaunchTest, ZeroDimensionsAreRefused) {
  const CUfunction empty = function("empty");
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 0, 1, 1, 1, 1, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 0, 1, 1, 1, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 1, 0, 1, 1, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 1, 1, 0, 1, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 1, 1, 1, 0, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 1, 1, 1, 1, 0));
}

TEST_F(LaunchTest, BlocksThatNoDeviceCanHoldAreRefused) {
  const CUfunction empty = function("empty");
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 1, 1, 1025, 1, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 1, 1, 1, 1025, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 1, 1, 1, 1, 65));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 1, 1, 64, 64, 1));
  CU_IS(CUDA_SUCCESS, plain(empty, 1, 1, 1, 1024, 1, 1));
  CU_IS(CUDA_SUCCESS, plain(empty, 1, 1, 1, 16, 1, 64));
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

TEST_F(LaunchTest, GridsThatNoDeviceCanHoldAreRefused) {
  const CUfunction empty = function("empty");
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 0x80000000u, 1, 1, 1, 1, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 65536, 1, 1, 1, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 1, 65536, 1, 1, 1));
  CU_IS(CUDA_SUCCESS, plain(empty, 1, 70, 70, 1, 1, 1));
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

TEST_F(LaunchTest, MoreThreadsThanTheKernelAllowsAreRefused) {
  CU_IS(CUDA_SUCCESS, plain(function("small_blocks"), 1, 1, 1, 64, 1, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(function("small_blocks"), 1, 1, 1, 65, 1, 1));
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

TEST_F(LaunchTest, TooMuchSharedMemoryIsRefused) {
  const CUfunction empty = function("empty");
  CU_IS(CUDA_SUCCESS, plain(empty, 1, 1, 1, 1, 1, 1, 48 * 1024));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 1, 1, 1, 1, 1, 48 * 1024 + 16));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 1, 1, 1, 1, 1, 0x40000000));
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

TEST_F(LaunchTest, MoreSharedMemoryIsAllowedAfterAskingForIt) {
  const CUfunction empty = function("empty");
  const int optin = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  ASSERT_GT(optin, 48 * 1024);
  CU_OK(cu().cuFuncSetAttribute(empty, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, optin));
  CU_IS(CUDA_SUCCESS, plain(empty, 1, 1, 1, 1, 1, 1, static_cast<unsigned>(optin)));
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(empty, 1, 1, 1, 1, 1, 1, static_cast<unsigned>(optin) + 1));
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

TEST_F(LaunchTest, ANullFunctionIsAnInvalidHandle) {
  CU_IS(CUDA_ERROR_INVALID_HANDLE, plain(nullptr, 1, 1, 1, 1, 1, 1));
}

TEST_F(LaunchTest, ARefusedLaunchDoesNotPoisonTheContext) {
  const DeviceMemory out(4);
  CU_IS(CUDA_ERROR_INVALID_VALUE, plain(function("empty"), 0, 1, 1, 1, 1, 1));
  CU_OK(launch(function("store_value"), 1, 1, nullptr, static_cast<CUdeviceptr>(out), 9u));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(9u, out.read<std::uint32_t>()[0]);
}

TEST_F(LaunchTest, LaunchesOfOneStreamRunInOrder) {
  const DeviceMemory data(4);
  data.fill(0);
  const Stream stream;
  for (int i = 0; i < 500; ++i) {
    CU_OK(launch(function("add_one"), 1, 32, stream, static_cast<CUdeviceptr>(data), 1u));
  }
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(500u, data.read<std::uint32_t>()[0]);
}

TEST_F(LaunchTest, TheExFormLaunchesAndReadsItsAttributes) {
  const DeviceMemory out(4);
  const Stream stream;
  CUdeviceptr address = out;
  std::uint32_t value = 17;
  void* parameters[] = {&address, &value};
  CUlaunchAttribute attributes[1] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[0].value.priority = 0;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = 1;
  CU_OK(cu().cuLaunchKernelEx(&config, function("store_value"), parameters, nullptr));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(17u, out.read<std::uint32_t>()[0]);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuLaunchKernelEx(nullptr, function("store_value"), parameters, nullptr));
  config.gridDimY = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuLaunchKernelEx(&config, function("store_value"), parameters, nullptr));
}

TEST_F(LaunchTest, EventsThatAnExLaunchNamesAreRecorded) {
  const Stream stream;
  for (const CUlaunchAttributeID id :
       {CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT}) {
    const Event event(CU_EVENT_DISABLE_TIMING);
    CUlaunchAttribute attribute{};
    attribute.id = id;
    if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
      attribute.value.programmaticEvent.event = event;
    } else {
      attribute.value.launchCompletionEvent.event = event;
    }
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CU_OK(cu().cuLaunchKernelEx(&config, function("empty"), nullptr, nullptr));
    CU_OK(cu().cuEventSynchronize(event));
    CU_OK(cu().cuEventQuery(event));
  }
  CU_OK(cu().cuStreamSynchronize(stream));
}

TEST_F(LaunchTest, ClustersShareTheirRanks) {
  if (attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0) GTEST_SKIP() << "no clusters";
  const Module clusters(kClusterPtx);
  const DeviceMemory out(32);
  CUdeviceptr address = out;
  void* parameters[] = {&address};
  CUlaunchAttribute attributes[1] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[0].value.clusterDim.x = 4;
  attributes[0].value.clusterDim.y = 1;
  attributes[0].value.clusterDim.z = 1;
  CUlaunchConfig config{};
  config.gridDimX = 8;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.attrs = attributes;
  config.numAttrs = 1;
  CU_OK(cu().cuLaunchKernelEx(&config, clusters.function("cluster_ranks"), parameters, nullptr));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ((std::vector<std::uint32_t>{64, 65, 66, 67, 64, 65, 66, 67}),
            out.read<std::uint32_t>());
  attributes[0].value.clusterDim.x = 3;
  CU_IS(CUDA_ERROR_INVALID_CLUSTER_SIZE,
        cu().cuLaunchKernelEx(&config, clusters.function("cluster_ranks"), parameters, nullptr));
  attributes[0].value.clusterDim.x = 0;
  CU_IS(CUDA_ERROR_INVALID_CLUSTER_SIZE,
        cu().cuLaunchKernelEx(&config, clusters.function("cluster_ranks"), parameters, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

TEST_F(LaunchTest, AKernelsOwnClustersAreWholeInEachOfItsGrids) {
  if (attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0) GTEST_SKIP() << "no clusters";
  const Module clusters(kClusterPtx);
  const CUfunction pairs = clusters.function("pairs");
  CU_OK(plain(pairs, 2, 1, 1, 32, 1, 1));
  CU_OK(plain(pairs, 6, 3, 1, 32, 1, 1));
  CU_IS(CUDA_ERROR_INVALID_CLUSTER_SIZE, plain(pairs, 3, 1, 1, 32, 1, 1));
  CU_OK(plain(pairs, 4, 1, 1, 32, 1, 1));
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

TEST_F(LaunchTest, ACooperativeGridMeetsAtItsBarrier) {
  if (attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) == 0) GTEST_SKIP() << "not supported";
  const Module cooperative(kCooperativePtx);
  const DeviceMemory counter(4);
  const DeviceMemory out(16);
  counter.fill(0);
  CUdeviceptr count_at = counter;
  CUdeviceptr out_at = out;
  void* parameters[] = {&count_at, &out_at};
  const CUfunction barrier = cooperative.function("grid_barrier");
  CU_OK(cu().cuLaunchCooperativeKernel(barrier, 4, 1, 1, 32, 1, 1, 0, nullptr, parameters));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ((std::vector<std::uint32_t>{4, 4, 4, 4}), out.read<std::uint32_t>());
}

TEST_F(LaunchTest, ACooperativeGridThatCannotMeetIsTooLarge) {
  if (attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) == 0) GTEST_SKIP() << "not supported";
  CU_IS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        cu().cuLaunchCooperativeKernel(function("empty"), 1000000, 1, 1, 1024, 1, 1, 0, nullptr,
                                       nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

}  // namespace
}  // namespace flyt::conformance
