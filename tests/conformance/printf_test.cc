// Device printf arrives at the program's own standard output, and a failed assertion at its
// standard error, before the wait that reveals it ends.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

class PrintfAlone : public ContextTest {
 protected:
  explicit PrintfAlone(int stream = 1) : stream_(stream) {}

  // The stream of the process goes to a file until captured() reads it.
  void SetUp() override {
    ContextTest::SetUp();
    char path[] = "/tmp/flyt-printf-XXXXXX";
    file_ = ::mkstemp(path);
    ASSERT_GE(file_, 0);
    ::unlink(path);
    std::fflush(stdout);
    original_ = ::dup(stream_);
    ::dup2(file_, stream_);
  }
  void TearDown() override {
    ::dup2(original_, stream_);
    ::close(original_);
    ::close(file_);
  }
  std::string captured() const {
    std::fflush(stdout);
    char text[4096] = {};
    const ssize_t size = ::pread(file_, text, sizeof(text) - 1, 0);
    return std::string(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  }

 private:
  const int stream_;
  int file_ = -1;
  int original_ = -1;
};

TEST_F(PrintfAlone, OneLineArrivesWithTheSynchronize) {
  const Module module(kPrintPtx);
  CU_OK(launch(module.function("say"), 1, 1, nullptr, 42u));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ("value=42\n", captured());
}

// As many first programs do it.
TEST_F(PrintfAlone, WhatIsUnderWayIsPrintedWithItsContext) {
  CUcontext made = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&made, 0, device));
  CUmodule module = nullptr;
  CUfunction say = nullptr;
  CU_OK(cu().cuModuleLoadData(&module, kPrintPtx));
  CU_OK(cu().cuModuleGetFunction(&say, module, "say"));
  std::string expected;
  for (int i = 0; i < 64; ++i) {
    CU_OK(launch(say, 1, 1, nullptr, 5u));
    expected += "value=5\n";
  }
  CU_OK(cu().cuCtxDestroy_v2(made));
  EXPECT_EQ(expected, captured());
}

TEST_F(PrintfAlone, EveryThreadPrints) {
  const Module module(kPrintPtx);
  CU_OK(launch(module.function("say"), 2, 8, nullptr, 7u));
  CU_OK(cu().cuCtxSynchronize());
  std::string expected;
  for (int i = 0; i < 16; ++i) expected += "value=7\n";
  EXPECT_EQ(expected, captured());
}

TEST_F(PrintfAlone, KernelsPrintInStreamOrder) {
  const Module module(kPrintPtx);
  const CUfunction say = module.function("say");
  for (unsigned i = 0; i < 5; ++i) CU_OK(launch(say, 1, 1, nullptr, i));
  CU_OK(cu().cuStreamSynchronize(nullptr));
  EXPECT_EQ("value=0\nvalue=1\nvalue=2\nvalue=3\nvalue=4\n", captured());
}

TEST_F(PrintfAlone, ABlockingCopyToTheHostBringsItToo) {
  const Module module(kPrintPtx);
  const DeviceMemory memory(4);
  std::uint32_t out = 0;
  CU_OK(launch(module.function("say"), 1, 1, nullptr, 9u));
  CU_OK(cu().cuMemcpyDtoH_v2(&out, memory, sizeof(out)));
  EXPECT_EQ("value=9\n", captured());
}

class AssertAlone : public PrintfAlone {
 protected:
  AssertAlone() : PrintfAlone(2) {}
};

TEST_F(AssertAlone, AFailedAssertionIsToldBeforeTheSynchronizeFails) {
  const Module module(kAssertPtx);
  CU_OK(launch(module.function("check"), 1, 1, nullptr, 1u));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ("", captured());
  CU_OK(launch(module.function("check"), 1, 1, nullptr, 0u));
  CU_IS(CUDA_ERROR_ASSERT, cu().cuCtxSynchronize());
  EXPECT_EQ("f.cu:7: check: block: [0,0,0], thread: [0,0,0] Assertion `good` failed.\n",
            captured());
}

}  // namespace
}  // namespace flyt::conformance
