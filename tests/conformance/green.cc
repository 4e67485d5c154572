#include "tests/conformance/green.h"

namespace flyt::conformance {
namespace {

constexpr const char* kPlacePtx = R"(.version 6.3
.target sm_75
.address_size 64
.visible .entry place(.param .u64 out)
{
  .reg .u32 %r<4>;
  .reg .u64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %smid;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r2;
  ret;
}
)";

}  // namespace

CUdevResource device_resource() {
  CUdevResource resource{};
  EXPECT_EQ(CUDA_SUCCESS, cu().cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
  return resource;
}

std::vector<CUdevResource> smallest_groups(CUdevResource* rest) {
  const CUdevResource all = device_resource();
  const unsigned size = all.sm.minSmPartitionSize;
  unsigned count = 0;
  EXPECT_EQ(CUDA_SUCCESS,
            cu().cuDevSmResourceSplitByCount(nullptr, &count, &all, nullptr, 0, size));
  std::vector<CUdevResource> groups(count);
  EXPECT_EQ(CUDA_SUCCESS,
            cu().cuDevSmResourceSplitByCount(groups.data(), &count, &all, rest, 0, size));
  groups.resize(count);
  return groups;
}

GreenContext::GreenContext(std::vector<CUdevResource> groups) {
  CUdevResourceDesc description = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, cu().cuDevResourceGenerateDesc(&description, groups.data(),
                                                         static_cast<unsigned>(groups.size())));
  EXPECT_EQ(CUDA_SUCCESS,
            cu().cuGreenCtxCreate(&green_, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxFromGreenCtx(&context_, green_));
}

GreenContext::~GreenContext() {
  if (green_ == nullptr) return;
  EXPECT_EQ(CUDA_SUCCESS, destroy());
}

CUresult GreenContext::destroy() {
  const CUgreenCtx green = green_;
  green_ = nullptr;
  return cu().cuGreenCtxDestroy(green);
}

GreenStream::GreenStream(CUgreenCtx green) {
  EXPECT_EQ(CUDA_SUCCESS, cu().cuGreenCtxStreamCreate(&stream_, green, CU_STREAM_NON_BLOCKING, 0));
}

GreenStream::~GreenStream() { EXPECT_EQ(CUDA_SUCCESS, cu().cuStreamDestroy_v2(stream_)); }

CurrentContext::CurrentContext(CUcontext context) {
  EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxPushCurrent_v2(context));
}

CurrentContext::~CurrentContext() {
  CUcontext popped = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxPopCurrent_v2(&popped));
}

Places::Places() : module_(kPlacePtx), place_(module_.function("place")), out_(4 * kBlocks) {}

std::set<std::uint32_t> Places::of(CUstream stream, unsigned blocks) const {
  EXPECT_EQ(CUDA_SUCCESS, launch(place_, blocks, 32, stream, CUdeviceptr{out_}));
  EXPECT_EQ(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
  return seen(blocks);
}

std::set<std::uint32_t> Places::seen(unsigned blocks) const {
  const auto told = out_.read<std::uint32_t>();
  return {told.begin(), told.begin() + blocks};
}

}  // namespace flyt::conformance
