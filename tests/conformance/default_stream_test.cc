// The legacy default stream waits for and holds up blocking streams; the per-thread one does not.
#include <memory>
#include <thread>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

class DefaultStreamTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    module = std::make_unique<Module>(kBasicPtx);
    store = module->function("store_value");
    add = module->function("add_one");
    memory = std::make_unique<DeviceMemory>(4);
    memory->fill(0);
  }
  CUresult write(CUstream stream, std::uint32_t value) const {
    return launch(store, 1, 1, stream, static_cast<CUdeviceptr>(*memory), value);
  }
  std::unique_ptr<Module> module;
  std::unique_ptr<DeviceMemory> memory;
  CUfunction store = nullptr;
  CUfunction add = nullptr;
};

TEST_F(DefaultStreamTest, TheLegacyStreamWaitsForBlockingStreams) {
  const Stream blocking(CU_STREAM_DEFAULT);
  Gate gate;
  gate.close(blocking);
  CU_OK(write(nullptr, 1));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(nullptr));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(nullptr));
  EXPECT_EQ(1u, memory->read<std::uint32_t>()[0]);
}

TEST_F(DefaultStreamTest, BlockingStreamsWaitForTheLegacyStream) {
  const Stream blocking(CU_STREAM_DEFAULT);
  Gate gate;
  gate.close(nullptr);
  CU_OK(write(blocking, 2));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(blocking));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(blocking));
  EXPECT_EQ(2u, memory->read<std::uint32_t>()[0]);
}

TEST_F(DefaultStreamTest, NonBlockingStreamsIgnoreTheLegacyStream) {
  const Stream non_blocking(CU_STREAM_NON_BLOCKING);
  Gate gate;
  gate.close(nullptr);
  CU_OK(write(non_blocking, 3));
  CU_OK(cu().cuStreamSynchronize(non_blocking));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(nullptr));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(nullptr));
}

TEST_F(DefaultStreamTest, LegacyByNameIsTheSameStream) {
  Gate gate;
  gate.close(CU_STREAM_LEGACY);
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(nullptr));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(CU_STREAM_LEGACY));
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(nullptr));
}

TEST_F(DefaultStreamTest, ThePerThreadStreamWaitsForTheLegacyOne) {
  Gate gate;
  gate.close(nullptr);
  CU_OK(write(CU_STREAM_PER_THREAD, 4));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(CU_STREAM_PER_THREAD));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
  EXPECT_EQ(4u, memory->read<std::uint32_t>()[0]);
}

TEST_F(DefaultStreamTest, EachThreadHasItsOwnPerThreadStream) {
  Gate gate;
  gate.close(CU_STREAM_PER_THREAD);
  CUresult other = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    CU_IS(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    other = cu().cuStreamQuery(CU_STREAM_PER_THREAD);
  }).join();
  EXPECT_EQ(CUDA_SUCCESS, other);
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(CU_STREAM_PER_THREAD));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

TEST_F(DefaultStreamTest, PtszFormsUseThePerThreadStream) {
  unsigned long long per_thread = 0;
  unsigned long long by_suffix = 0;
  CU_OK(cu().cuStreamGetId(CU_STREAM_PER_THREAD, &per_thread));
  CU_OK(cu().cuStreamGetId_ptsz(nullptr, &by_suffix));
  EXPECT_EQ(per_thread, by_suffix);
  Gate gate;
  gate.close(CU_STREAM_PER_THREAD);
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery_ptsz(nullptr));
  gate.open();
  CU_OK(cu().cuStreamSynchronize_ptsz(nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery_ptsz(nullptr));
}

TEST_F(DefaultStreamTest, TheLegacyStreamIsBusyWhileABlockingStreamIs) {
  Gate gate;
  gate.close(CU_STREAM_PER_THREAD);
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(nullptr));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(CU_STREAM_PER_THREAD));
}

TEST_F(DefaultStreamTest, AMixtureOfStreamsKeepsItsOrder) {
  const Stream blocking(CU_STREAM_DEFAULT);
  for (std::uint32_t i = 0; i < 100; ++i) {
    CU_OK(launch(add, 1, 32, i % 2 == 0 ? nullptr : static_cast<CUstream>(blocking),
                 static_cast<CUdeviceptr>(*memory), 1u));
  }
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(100u, memory->read<std::uint32_t>()[0]);
}

}  // namespace
}  // namespace flyt::conformance
