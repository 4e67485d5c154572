// Local memory of functions: how variables and parameters lie, and what is taken by alloca.
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "softgpu/interpreter/testing/device.h"

namespace flyt::ptx {
namespace {

// A kernel k(out) of 32 threads: %t is the thread, and %v goes to its place in `out`.
std::string kernel(const std::string& body, const std::string& functions = "") {
  return ".version 8.0\n.target sm_80\n.address_size 64\n" + functions +
         ".entry k(.param .b64 out) {\n.reg .b32 %t, %v, %n<8>; .reg .b64 %o, %a<8>; .reg .pred %p;"
         "ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %a0, %t, 4; add.u64 %o, %o, "
         "%a0;" +
         body + "st.global.u32 [%o], %v; }\n";
}

std::vector<std::uint32_t> run(const std::string& text) {
  TestDevice device(text);
  EXPECT_EQ(device.error(), "");
  if (!device.error().empty()) return std::vector<std::uint32_t>(32);
  device.launch.block = {32, 1, 1};
  const auto out = device.allocate(32 * 4);
  const auto fault = device.run("k", out);
  EXPECT_FALSE(fault.has_value()) << to_string(*fault);
  return device.get<std::uint32_t>(out, 32);
}

// As compilers write it around a function with alloca that they put into a loop. All in all that
// is 4 MB, far more than a thread has.
std::string taken_in_a_loop(const std::string& save, const std::string& restore) {
  return kernel("mov.u32 %v, 0; mov.u32 %n0, 0; mov.u64 %a5, 4096;\nloop: " + save +
                "alloca.u64 %a2, %a5, 16; st.local.u32 [%a2+512], %n0; ld.local.u32 %n2, [%a2+512];"
                "add.u32 %v, %v, %n2; " +
                restore + "add.u32 %n0, %n0, 1; setp.lt.u32 %p, %n0, 1000; @%p bra loop;");
}

TEST(Stack, GivesBackWhatALoopTakes) {
  const std::vector<std::uint32_t> sums(32, 1000 * 999 / 2);
  EXPECT_EQ(run(taken_in_a_loop("stacksave.u64 %a1; ", "stackrestore.u64 %a1; ")), sums);
  EXPECT_EQ(run(taken_in_a_loop("stacksave.u32 %n1; ", "stackrestore.u32 %n1; ")), sums);
}

TEST(Stack, RunsOutWhereNothingIsGivenBack) {
  TestDevice device(taken_in_a_loop("", ""));
  ASSERT_EQ(device.error(), "");
  device.launch.block = {32, 1, 1};
  const auto fault = device.run("k", device.allocate(32 * 4));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, FaultKind::kStackOverflow);
}

// What one lane gives back, another one still has.
TEST(Stack, KeepsWhatALaneStillHas) {
  const auto values =
      run(kernel("mov.u64 %a5, 64; stacksave.u64 %a1; and.b32 %n0, %t, 1; setp.eq.u32 %p, %n0, 0;"
                 "alloca.u64 %a2, %a5, 16; st.local.u32 [%a2], %t;"
                 "@%p stackrestore.u64 %a1;"
                 "alloca.u64 %a3, %a5, 16; mov.u32 %n1, 1000; st.local.u32 [%a3], %n1;"
                 "ld.local.u32 %v, [%a2]; @%p mov.u32 %v, 0;"));
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(values[i], i % 2 == 0 ? 0 : i) << i;
}

// Lanes that took different amounts meet again: they vote, and add up.
TEST(Stack, OfLanesThatWentTwoWaysDoesNotKeepThemApart) {
  const std::string ways =
      "and.b32 %n0, %t, 1; setp.eq.u32 %p, %n0, 0; @%p bra even;\n"
      "mov.u64 %a5, 4096; alloca.u64 %a2, %a5, 16; st.local.u32 [%a2], %t; bra met;\n"
      "even: mov.u64 %a5, 32; alloca.u64 %a2, %a5, 16; st.local.u32 [%a2], 100;\n"
      "met: ld.local.u32 %v, [%a2]; ";
  EXPECT_EQ(run(kernel(ways + "vote.sync.ballot.b32 %v, %p, -1;")),
            std::vector<std::uint32_t>(32, 0x55555555));
  std::string sum = ways;
  for (const char* distance : {"16", "8", "4", "2", "1"}) {
    sum +=
        std::string("shfl.sync.bfly.b32 %n2, %v, ") + distance + ", 31, -1; add.u32 %v, %v, %n2; ";
  }
  EXPECT_EQ(run(kernel(sum)), std::vector<std::uint32_t>(32, 16 * 16 + 16 * 100));
}

// LLVM relies on it: it adds to such addresses by `or`.
TEST(Stack, AlignsVariablesOfEveryFunctionThatIsCalled) {
  const std::string deep = R"(
    .func (.param .b32 r) deep(.param .b32 n, .param .align 64 .b8 block[64]) {
      .reg .b32 %a<4>; .reg .b64 %d<2>; .reg .pred %p; .local .align 128 .b8 v[8];
      .local .b8 odd[5];
      mov.u64 %d0, v; mov.u64 %d1, block; shl.b64 %d1, %d1, 1; or.b64 %d0, %d0, %d1;
      cvt.u32.u64 %a1, %d0; and.b32 %a1, %a1, 127;
      ld.param.b32 %a0, [n]; setp.eq.u32 %p, %a0, 0; @%p bra done; sub.u32 %a2, %a0, 1;
      { .param .b32 p0; .param .align 64 .b8 p1[64]; .param .b32 r0; st.param.b32 [p0], %a2;
        call (r0), deep, (p0, p1); ld.param.b32 %a2, [r0]; }
      or.b32 %a1, %a1, %a2; shl.b32 %a1, %a1, 1;
      done: st.param.b32 [r], %a1; ret;
    }
  )";
  const std::string call =
      "{ .param .b32 p0; .param .align 64 .b8 p1[64]; .param .b32 r0; st.param.b32 [p0], 3;"
      "call (r0), deep, (p0, p1); ld.param.b32 %v, [r0]; }";
  const std::string taken = ".local .b8 few[20]; mov.u64 %a5, 48; alloca.u64 %a2, %a5, 16;";
  EXPECT_EQ(run(kernel(call, deep)), std::vector<std::uint32_t>(32));
  EXPECT_EQ(run(kernel(taken + call, deep)), std::vector<std::uint32_t>(32));
}

// LLVM 16 writes 64 bits at once where a structure is aligned to four bytes.
TEST(Parameters, AreReadAndWrittenWhereverTheyLie) {
  const std::string second = R"(
    .func (.param .align 4 .b8 r[12]) second(.param .align 4 .b8 p[12]) {
      .reg .b64 %a; ld.param.b64 %a, [p+4]; add.u64 %a, %a, 1; st.param.b64 [r+4], %a; ret;
    }
  )";
  const auto values =
      run(kernel("{ .param .align 4 .b8 p0[12]; .param .align 4 .b8 r0[12]; cvt.u64.u32 %a1, %t;"
                 "st.param.b64 [p0+4], %a1; call (r0), second, (p0); ld.param.b32 %v, [r0+4]; }"
                 "ld.param.u32 %n0, [out+1]; ld.param.u64 %a1, [out]; shr.u64 %a1, %a1, 8; "
                 "cvt.u32.u64 %n1, %a1;"
                 "setp.ne.u32 %p, %n0, %n1; @%p mov.u32 %v, 0;",
                 second));
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(values[i], i + 1);
}

}  // namespace
}  // namespace flyt::ptx
