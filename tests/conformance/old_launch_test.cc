// Calls of before CUDA 4: contexts that are counted, launches whose shape and parameters are state.
#include <array>
#include <optional>

#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

// put: how many blocks and threads there are, to where its parameter points.
const char* const kOldPtx = R"(
.version 7.8
.target sm_75
.address_size 64
.visible .entry put(.param .u64 p) {
  .reg .b64 %a; .reg .b32 %v, %n;
  ld.param.u64 %a, [p]; mov.u32 %n, %ntid.x; mov.u32 %v, %nctaid.x;
  shl.b32 %v, %v, 16; or.b32 %v, %v, %n; st.global.u32 [%a], %v; ret; }
.visible .entry small() .maxntid 32, 1, 1 { ret; }
)";

class OldLaunchTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    if (!cu().cuLaunchGrid.present()) GTEST_SKIP() << "a newer driver";
    module_.emplace(kOldPtx);
    memory_.emplace(4);
    put_ = module_->function("put");
  }
  void TearDown() override {
    module_.reset();
    memory_.reset();
    ContextTest::TearDown();
  }
  void give_parameter() {
    CUdeviceptr address = *memory_;
    CU_OK(cu().cuParamSetv(put_, 0, &address, sizeof address));
    CU_OK(cu().cuParamSetSize(put_, sizeof address));
  }
  std::uint32_t word() const { return memory_->read<std::uint32_t>()[0]; }

  std::optional<Module> module_;
  std::optional<DeviceMemory> memory_;
  CUfunction put_ = nullptr;
};

TEST_F(OldLaunchTest, AShapeIsKeptAndABadOneChangesNothing) {
  give_parameter();
  CU_OK(cu().cuLaunchGrid(put_, 3, 1));
  EXPECT_EQ(0x30001u, word());
  CU_OK(cu().cuFuncSetBlockShape(put_, 7, 1, 1));
  for (const auto& [x, y, z] :
       {std::array{0, 1, 1}, std::array{1025, 1, 1}, std::array{32, 32, 2}, std::array{1, 1, 65}}) {
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuFuncSetBlockShape(put_, x, y, z));
  }
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuFuncSetBlockShape(module_->function("small"), 64, 1, 1));
  CU_OK(cu().cuFuncSetSharedSize(put_, 1024));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuFuncSetSharedSize(put_, 49153));
  CU_OK(cu().cuLaunchGrid(put_, 4, 1));
  EXPECT_EQ(0x40007u, word());
}

TEST_F(OldLaunchTest, ParametersAreKeptWhateverTheFunctionTakes) {
  CU_IS(CUDA_SUCCESS, cu().cuParamSeti(put_, 5000, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuParamSeti(put_, 40000, 1));
  CU_IS(CUDA_SUCCESS, cu().cuParamSetSize(put_, 32764));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuParamSetSize(put_, 32765));
  give_parameter();
  CU_OK(cu().cuParamSetSize(put_, 16));
  CU_IS(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, cu().cuLaunchGrid(put_, 1, 1));
  CU_OK(cu().cuParamSetSize(put_, 8));
  CU_OK(cu().cuLaunchGrid(put_, 2, 1));
  EXPECT_EQ(0x20001u, word());
}

using OldLaunchAlone = OldLaunchTest;

TEST_F(OldLaunchAlone, ParametersWithoutASizeAreZero) {
  CUdeviceptr address = *memory_;
  CU_OK(cu().cuParamSetv(put_, 0, &address, sizeof address));
  CU_OK(cu().cuLaunchGrid(put_, 1, 1));
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuCtxSynchronize());
}

using ContextStackCount = DriverTest;

TEST_F(ContextStackCount, ADetachEndsTheCurrentContextIfNobodyIsAttached) {
  if (!cu().cuCtxDetach.present()) GTEST_SKIP() << "a newer driver";
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxDetach(nullptr));
  CUcontext made = nullptr;
  CUcontext attached = nullptr;
  CUcontext current = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&made, 0, device));
  CU_OK(cu().cuCtxAttach(&attached, 0));
  EXPECT_EQ(made, attached);
  CU_OK(cu().cuCtxDetach(made));
  CU_OK(cu().cuCtxGetCurrent(&current));
  EXPECT_EQ(made, current);
  CU_OK(cu().cuCtxDetach(made));
  CU_OK(cu().cuCtxGetCurrent(&current));
  EXPECT_EQ(nullptr, current);
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxDetach(made));
}

TEST_F(ContextStackCount, OnlyTheCurrentContextIsDetached) {
  if (!cu().cuCtxDetach.present()) GTEST_SKIP() << "a newer driver";
  CUcontext made = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&made, 0, device));
  CU_OK(cu().cuCtxPopCurrent_v2(nullptr));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxDetach(made));
  CU_OK(cu().cuCtxDestroy_v2(made));
}

}  // namespace
}  // namespace flyt::conformance
