// Kernels that launch kernels, copies and fills: CUDA's device runtime.
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

// start() gets a buffer, writes the two parameters of every kernel here, and launches it.
constexpr const char* kDeviceRuntimePtx = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b64 result) __cudaCDP2GetParameterBufferV2
    (.param .b64 kernel, .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12],
     .param .b32 shared);
.extern .func (.param .b32 result) __cudaCDP2LaunchDeviceV2(.param .b64 buffer, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2MemsetAsync
    (.param .b64 to, .param .b32 value, .param .b64 bytes, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2MemcpyAsync
    (.param .b64 to, .param .b64 from, .param .b64 bytes, .param .b32 kind, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2GetLastError();
.extern .func (.param .b32 result) __cudaCDP2PeekAtLastError();
.extern .func (.param .b32 result) __cudaCDP2StreamCreateWithFlags(.param .b64 to, .param .b32 f);

.func (.param .b32 result) start
    (.param .b64 kernel, .param .b32 blocks, .param .b32 threads, .param .b64 stream,
     .param .b64 first, .param .b32 second)
{
  .reg .b64 %a<5>; .reg .b32 %r<5>; .reg .pred %p;
  ld.param.b64 %a1, [kernel]; ld.param.b32 %r1, [blocks]; ld.param.b32 %r2, [threads];
  ld.param.b64 %a2, [stream]; ld.param.b64 %a3, [first]; ld.param.b32 %r3, [second];
  { .param .b64 k; .param .align 4 .b8 g[12]; .param .align 4 .b8 b[12]; .param .b32 s;
    .param .b64 buffer;
    st.param.b64 [k], %a1; st.param.b32 [s], 0;
    st.param.b32 [g], %r1; st.param.b32 [g+4], 1; st.param.b32 [g+8], 1;
    st.param.b32 [b], %r2; st.param.b32 [b+4], 1; st.param.b32 [b+8], 1;
    call (buffer), __cudaCDP2GetParameterBufferV2, (k, g, b, s);
    ld.param.b64 %a4, [buffer]; }
  mov.b32 %r4, -1;
  setp.eq.u64 %p, %a4, 0;
  @%p bra done;
  st.u64 [%a4], %a3; st.u32 [%a4+8], %r3;
  { .param .b64 buffer; .param .b64 s; .param .b32 error;
    st.param.b64 [buffer], %a4; st.param.b64 [s], %a2;
    call (error), __cudaCDP2LaunchDeviceV2, (buffer, s);
    ld.param.b32 %r4, [error]; }
done:
  st.param.b32 [result], %r4;
  ret;
}

.visible .entry add(.param .u64 out, .param .u32 weight)
{
  .reg .b64 %a; .reg .b32 %r<4>;
  ld.param.u64 %a, [out]; ld.param.u32 %r1, [weight]; mov.u32 %r2, %tid.x;
  mad.lo.u32 %r2, %r1, 100, %r2;
  atom.global.add.u32 %r3, [%a], %r2;
  ret;
}

.visible .entry look(.param .u64 out, .param .u32 unused)
{
  .reg .b64 %a; .reg .b32 %r;
  ld.param.u64 %a, [out]; ld.global.u32 %r, [%a]; st.global.u32 [%a+4], %r;
  ret;
}

.visible .entry wild(.param .u64 out, .param .u32 unused)
{
  .reg .b64 %a;
  mov.u64 %a, 64; st.global.u64 [%a], %a;
  ret;
}
)";

// What a test adds: a kernel `parent(out, value)`, in which %k is a kernel's address, %a `out`, %v
// the value and %t the thread's number.
std::string parent(const std::string& body) {
  return std::string(kDeviceRuntimePtx) + R"(
.visible .entry parent(.param .u64 out, .param .u32 value)
{
  .local .align 8 .b8 place[8];
  .reg .b64 %k; .reg .b64 %a; .reg .b64 %s; .reg .b64 %x; .reg .b32 %v; .reg .b32 %t;
  .reg .b32 %e; .reg .pred %p;
  ld.param.u64 %a, [out]; ld.param.u32 %v, [value]; mov.u32 %t, %tid.x; mov.u64 %s, 0;
)" + body +
         "  ret;\n}\n";
}

// start(%k, blocks, threads, %s, %a, second), whose answer is in %e.
std::string start(const std::string& kernel, int blocks, int threads, const std::string& second) {
  return "  mov.u64 %k, " + kernel +
         ";\n  { .param .b64 k; .param .b32 b; .param .b32 t; .param .b64 s; .param .b64 a;"
         " .param .b32 v; .param .b32 e;\n    st.param.b64 [k], %k; st.param.b32 [b], " +
         std::to_string(blocks) + "; st.param.b32 [t], " + std::to_string(threads) +
         ";\n    st.param.b64 [s], %s; st.param.b64 [a], %a; st.param.b32 [v], " + second +
         ";\n    call (e), start, (k, b, t, s, a, v); ld.param.b32 %e, [e]; }\n";
}

std::string answer_of(const std::string& call) {
  return "  { .param .b32 e; call (e), " + call + ", (); ld.param.b32 %e, [e]; }\n";
}

class DeviceRuntimeTest : public ContextTest {
 protected:
  // Runs parent(out, value) with so many threads. NVIDIA's driver wants its runtime linked.
  void run(const std::string& body, unsigned threads, unsigned value) {
    {
      const Unrecorded quiet;
      if (cu().cuModuleLoadData(&module_, parent(body).c_str()) != CUDA_SUCCESS) {
        GTEST_SKIP() << "the driver wants the device runtime linked";
      }
    }
    out_ = std::make_unique<DeviceMemory>(4 * sizeof(std::uint32_t));
    out_->write<std::uint32_t>({0, 0, 0, 0});
    CUfunction function = nullptr;
    CU_OK(cu().cuModuleGetFunction(&function, module_, "parent"));
    CU_OK(launch(function, 1, threads, nullptr, static_cast<CUdeviceptr>(*out_), value));
  }
  // What it left there.
  std::vector<std::uint32_t> out() {
    EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSynchronize());
    EXPECT_EQ(CUDA_SUCCESS, cu().cuModuleUnload(module_));
    return out_->read<std::uint32_t>();
  }

  CUmodule module_ = nullptr;
  std::unique_ptr<DeviceMemory> out_;
};

TEST_F(DeviceRuntimeTest, EachThreadMayLaunchAKernel) {
  run(start("add", 2, 32, "%t"), 4, 0);
  if (IsSkipped()) return;
  // 8 blocks whose threads' numbers add up to 496, and 64 threads for each of the weights 0 to 3.
  EXPECT_EQ((std::vector<std::uint32_t>{8 * 496 + 64 * 100 * 6, 0, 0, 0}), out());
}

TEST_F(DeviceRuntimeTest, ATailComesWhenTheChildrenHaveEnded) {
  run("  mov.u64 %s, 3;\n" + start("look", 1, 1, "0") + "  mov.u64 %s, 4;\n" +
          start("add", 2, 32, "%v"),
      1, 3);
  if (IsSkipped()) return;
  const std::uint32_t sum = 2 * 496 + 64 * 300;
  EXPECT_EQ((std::vector<std::uint32_t>{sum, sum, 0, 0}), out());
}

TEST_F(DeviceRuntimeTest, AKernelMayLaunchItselfAgainAsItsTail) {
  const std::string again =
      "  setp.eq.u32 %p, %v, 0;\n  @%p bra end;\n  mov.u64 %s, 3;\n"
      "  atom.global.add.u32 %t, [%a], %v;\n  sub.u32 %v, %v, 1;\n" +
      start("parent", 1, 1, "%v") + "end:\n";
  run(again, 1, 100);
  if (IsSkipped()) return;
  EXPECT_EQ(5050u, out()[0]);
}

TEST_F(DeviceRuntimeTest, CopiesAndFillsOfAStreamAreInTheOrderOfItsKernels) {
  run("  mov.u64 %x, place; cvta.local.u64 %x, %x;\n"
      "  { .param .b64 p; .param .b32 f; .param .b32 e; st.param.b64 [p], %x;"
      " st.param.b32 [f], 1;\n    call (e), __cudaCDP2StreamCreateWithFlags, (p, f); }\n"
      "  ld.u64 %s, [%x];\n" +
          start("add", 1, 32, "%v") +
          "  add.u64 %x, %a, 8;\n"
          "  { .param .b64 t; .param .b64 f; .param .b64 n; .param .b32 k; .param .b64 s;"
          " .param .b32 e;\n    st.param.b64 [t], %x; st.param.b64 [f], %a; st.param.b64 [n], 4;"
          " st.param.b32 [k], 3; st.param.b64 [s], %s;\n"
          "    call (e), __cudaCDP2MemcpyAsync, (t, f, n, k, s); }\n"
          "  { .param .b64 t; .param .b32 v; .param .b64 n; .param .b64 s; .param .b32 e;\n"
          "    st.param.b64 [t], %a; st.param.b32 [v], 90; st.param.b64 [n], 4;"
          " st.param.b64 [s], %s;\n    call (e), __cudaCDP2MemsetAsync, (t, v, n, s); }\n" +
          start("look", 1, 1, "0"),
      1, 2);
  if (IsSkipped()) return;
  EXPECT_EQ((std::vector<std::uint32_t>{0x5a5a5a5a, 0x5a5a5a5a, 496 + 32 * 200, 0}), out());
}

TEST_F(DeviceRuntimeTest, AnImpossibleLaunchIsAnErrorOfItsThreadAlone) {
  // Thread 0 asks for too many threads, and each thread writes its error; then what is left of it.
  run("  setp.ne.u32 %p, %t, 0;\n  @%p bra peek;\n" + start("add", 1, 4096, "%t") + "peek:\n" +
          answer_of("__cudaCDP2PeekAtLastError") +
          "  mul.wide.u32 %x, %t, 8;\n  add.u64 %x, %x, %a;\n  st.global.u32 [%x], %e;\n" +
          answer_of("__cudaCDP2GetLastError") + answer_of("__cudaCDP2GetLastError") +
          "  st.global.u32 [%x+4], %e;\n",
      2, 0);
  if (IsSkipped()) return;
  constexpr std::uint32_t kInvalidConfiguration = 9;
  EXPECT_EQ((std::vector<std::uint32_t>{kInvalidConfiguration, 0, 0, 0}), out());
}

TEST_F(DeviceRuntimeTest, LaunchesHaveADepthAtWhichTheyFail) {
  const std::string deeper =
      "  add.u32 %v, %v, 1;\n  max.u32 %t, %v, %v;\n  atom.global.max.u32 %t, [%a], %t;\n" +
      start("parent", 1, 1, "%v") + "  atom.global.max.u32 %t, [%a+4], %e;\n";
  run(deeper, 1, 0);
  if (IsSkipped()) return;
  constexpr std::uint32_t kTooDeep = 65;
  EXPECT_EQ((std::vector<std::uint32_t>{24, kTooDeep, 0, 0}), out());
}

// A child's own function is not the host's.
TEST_F(DeviceRuntimeTest, WhatIsSetForAKernelHoldsWhenAParentHasLaunchedItFirst) {
  constexpr int kShared = 64 * 1024;
  const std::string text = parent(start("add", 1, 1, "%v"));
  CUlibrary library = nullptr;
  {
    const Unrecorded quiet;
    if (cu().cuLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0) !=
        CUDA_SUCCESS) {
      GTEST_SKIP() << "the driver wants the device runtime linked";
    }
  }
  CUkernel child = nullptr;
  CUkernel first = nullptr;
  {
    const Unrecorded quiet;
    if (cu().cuLibraryGetKernel(&first, library, "parent") != CUDA_SUCCESS) {
      cu().cuLibraryUnload(library);
      GTEST_SKIP() << "the driver wants the device runtime linked";
    }
  }
  CU_OK(cu().cuLibraryGetKernel(&child, library, "add"));
  CU_OK(cu().cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kShared, child,
                                  device));
  const DeviceMemory out(4 * sizeof(std::uint32_t));
  out.fill(0);
  CUdeviceptr address = out;
  unsigned value = 3;
  void* parameters[] = {&address, &value};
  CU_OK(cu().cuLaunchKernel(reinterpret_cast<CUfunction>(first), 1, 1, 1, 1, 1, 1, 0, nullptr,
                            parameters, nullptr));
  CU_OK(cu().cuCtxSynchronize());
  CU_OK(cu().cuLaunchKernel(reinterpret_cast<CUfunction>(child), 1, 1, 1, 1, 1, 1, kShared, nullptr,
                            parameters, nullptr));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(600u, out.read<std::uint32_t>()[0]);
  CU_OK(cu().cuLibraryUnload(library));
}

using DeviceRuntimeAlone = DeviceRuntimeTest;

TEST_F(DeviceRuntimeAlone, AFaultOfAChildIsTheContexts) {
  run(start("wild", 1, 1, "0") + start("add", 1, 1, "1"), 1, 0);
  if (IsSkipped()) return;
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuCtxSynchronize());
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuCtxSynchronize());
}

}  // namespace
}  // namespace flyt::conformance
