#include "tests/conformance/kernels.h"

namespace flyt::conformance {

const char* const kGatePtx = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .entry watch(.param .u64 word)
{
  .reg .pred %p<3>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [word];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u64 %rd3, %globaltimer;
AGAIN:
  ld.volatile.global.u32 %r1, [%rd2];
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra DONE;
  nanosleep.u32 20000;
  mov.u64 %rd4, %globaltimer;
  sub.u64 %rd5, %rd4, %rd3;
  setp.lt.u64 %p2, %rd5, 60000000000;
  @%p2 bra AGAIN;
DONE:
  ret;
}
)";

const char* const kBasicPtx = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .global .align 4 .u32 counter = 7;
.visible .global .align 4 .b8 words[256];
.visible .const .align 4 .u32 table[4] = {1, 2, 3, 4};
.extern .shared .align 16 .b8 dynamic_shared[];

.visible .entry empty()
{
  ret;
}

.visible .entry store_value(.param .u64 out, .param .u32 value)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], %r1;
  ret;
}

.visible .entry add_one(.param .u64 data, .param .u32 count)
{
  .reg .pred %p<2>;
  .reg .b32 %r<7>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r6, [%rd4];
  add.s32 %r6, %r6, 1;
  st.global.u32 [%rd4], %r6;
DONE:
  ret;
}

.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 count)
{
  .reg .pred %p<2>;
  .reg .f32 %f<4>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<11>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd4, %rd1;
  cvta.to.global.u64 %rd5, %rd2;
  cvta.to.global.u64 %rd6, %rd3;
  mul.wide.u32 %rd7, %r5, 4;
  add.s64 %rd8, %rd4, %rd7;
  add.s64 %rd9, %rd5, %rd7;
  add.s64 %rd10, %rd6, %rd7;
  ld.global.f32 %f1, [%rd8];
  ld.global.f32 %f2, [%rd9];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd10], %f3;
DONE:
  ret;
}

.visible .entry coordinates(.param .u64 out)
{
  .reg .b32 %r<20>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %tid.y;
  mov.u32 %r3, %tid.z;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %ntid.y;
  mov.u32 %r6, %ntid.z;
  mov.u32 %r7, %ctaid.x;
  mov.u32 %r8, %ctaid.y;
  mov.u32 %r9, %ctaid.z;
  mov.u32 %r10, %nctaid.x;
  mov.u32 %r11, %nctaid.y;
  mad.lo.s32 %r12, %r9, %r11, %r8;
  mad.lo.s32 %r12, %r12, %r10, %r7;
  mul.lo.s32 %r13, %r4, %r5;
  mul.lo.s32 %r13, %r13, %r6;
  mad.lo.s32 %r14, %r3, %r5, %r2;
  mad.lo.s32 %r14, %r14, %r4, %r1;
  mad.lo.s32 %r15, %r12, %r13, %r14;
  mul.wide.u32 %rd3, %r15, 4;
  add.s64 %rd4, %rd2, %rd3;
  mad.lo.s32 %r16, %r12, 65536, %r14;
  st.global.u32 [%rd4], %r16;
  ret;
}

.visible .entry shared_sum(.param .u64 in, .param .u64 out)
{
  .reg .pred %p<5>;
  .reg .b32 %r<19>;
  .reg .b64 %rd<9>;
  ld.param.u64 %rd2, [in];
  ld.param.u64 %rd1, [out];
  mov.u32 %r7, %ntid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.s32 %r8, %r1, %r7, %r2;
  cvta.to.global.u64 %rd3, %rd2;
  mul.wide.u32 %rd4, %r8, 4;
  add.s64 %rd5, %rd3, %rd4;
  ld.global.u32 %r9, [%rd5];
  shl.b32 %r10, %r2, 2;
  mov.u32 %r11, dynamic_shared;
  add.s32 %r3, %r11, %r10;
  st.shared.u32 [%r3], %r9;
  bar.sync 0;
  shr.u32 %r18, %r7, 1;
  setp.eq.s32 %p1, %r18, 0;
  @%p1 bra SUMMED;
HALVE:
  setp.ge.u32 %p2, %r2, %r18;
  @%p2 bra SKIP;
  shl.b32 %r12, %r18, 2;
  add.s32 %r13, %r3, %r12;
  ld.shared.u32 %r14, [%r3];
  ld.shared.u32 %r15, [%r13];
  add.s32 %r16, %r14, %r15;
  st.shared.u32 [%r3], %r16;
SKIP:
  bar.sync 0;
  shr.u32 %r18, %r18, 1;
  setp.ne.s32 %p3, %r18, 0;
  @%p3 bra HALVE;
SUMMED:
  setp.ne.s32 %p4, %r2, 0;
  @%p4 bra DONE;
  ld.shared.u32 %r17, [dynamic_shared];
  cvta.to.global.u64 %rd6, %rd1;
  mul.wide.u32 %rd7, %r1, 4;
  add.s64 %rd8, %rd6, %rd7;
  st.global.u32 [%rd8], %r17;
DONE:
  ret;
}

.visible .entry static_shared(.param .u64 out)
{
  .shared .align 4 .b8 scratch[4096];
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  shl.b32 %r2, %r1, 2;
  mov.u32 %r3, scratch;
  add.s32 %r4, %r3, %r2;
  st.shared.u32 [%r4], %r1;
  bar.sync 0;
  ld.shared.u32 %r5, [scratch+4];
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r5;
  ret;
}

.visible .entry small_blocks()
.maxntid 64, 1, 1
{
  ret;
}

.visible .entry pick(
  .param .u8 a,
  .param .u16 b,
  .param .u32 c,
  .param .u64 d,
  .param .f32 e,
  .param .f64 f,
  .param .align 8 .b8 g[16],
  .param .u64 out
)
{
  .reg .b16 %rs<5>;
  .reg .f64 %fd<2>;
  .reg .b64 %rd<13>;
  ld.param.u8 %rs1, [a];
  ld.param.u16 %rd1, [b];
  ld.param.u32 %rd2, [c];
  ld.param.u64 %rd3, [d];
  ld.param.f64 %fd1, [f];
  ld.param.u64 %rd4, [out];
  ld.param.s32 %rd6, [g+8];
  ld.param.u64 %rd7, [g];
  cvta.to.global.u64 %rd8, %rd4;
  cvt.u64.u16 %rd9, %rs1;
  st.global.u64 [%rd8], %rd9;
  st.global.u64 [%rd8+8], %rd1;
  st.global.u64 [%rd8+16], %rd2;
  st.global.u64 [%rd8+24], %rd3;
  ld.param.u32 %rd10, [e];
  st.global.u64 [%rd8+32], %rd10;
  st.global.f64 [%rd8+40], %fd1;
  st.global.u64 [%rd8+48], %rd7;
  st.global.u64 [%rd8+56], %rd6;
  ret;
}

.visible .entry read_globals(.param .u64 out)
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.u32 %r1, [counter];
  add.s32 %r2, %r1, 1;
  st.global.u32 [counter], %r2;
  ld.const.u32 %r3, [table+8];
  ld.global.u32 %r4, [words+4];
  st.global.u32 [%rd2], %r1;
  st.global.u32 [%rd2+4], %r3;
  st.global.u32 [%rd2+8], %r4;
  ret;
}
)";

const char* const kPrintPtx = R"(
.version 7.0
.target sm_75
.address_size 64

.extern .func (.param .b32 func_retval0) vprintf(.param .b64 a, .param .b64 b);
.global .align 1 .b8 format[10] = {118, 97, 108, 117, 101, 61, 37, 117, 10, 0};

.visible .entry say(.param .u32 value)
{
  .local .align 8 .b8 depot[8];
  .reg .b64 %SP;
  .reg .b64 %SPL;
  .reg .b32 %r<3>;
  .reg .b64 %rd<5>;
  mov.u64 %SPL, depot;
  cvta.local.u64 %SP, %SPL;
  ld.param.u32 %r1, [value];
  add.u64 %rd1, %SP, 0;
  add.u64 %rd2, %SPL, 0;
  st.local.u32 [%rd2], %r1;
  mov.u64 %rd3, format;
  cvta.global.u64 %rd4, %rd3;
  {
  .param .b64 param0;
  st.param.b64 [param0+0], %rd4;
  .param .b64 param1;
  st.param.b64 [param1+0], %rd1;
  .param .b32 retval0;
  call.uni (retval0), vprintf, (param0, param1);
  ld.param.b32 %r2, [retval0+0];
  }
  ret;
}
)";

const char* const kAssertPtx = R"(
.version 7.0
.target sm_75
.address_size 64

.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d,
                           .param .b64 e);
.global .align 1 .b8 message[5] = {103, 111, 111, 100, 0};
.global .align 1 .b8 file[5] = {102, 46, 99, 117, 0};
.global .align 1 .b8 function[6] = {99, 104, 101, 99, 107, 0};

.visible .entry check(.param .u32 good)
{
  .reg .pred %p;
  .reg .b32 %r;
  .reg .b64 %m, %f, %n;
  ld.param.u32 %r, [good];
  setp.ne.u32 %p, %r, 0;
  @%p ret;
  cvta.global.u64 %m, message;
  cvta.global.u64 %f, file;
  cvta.global.u64 %n, function;
  {
  .param .b64 param0;
  st.param.b64 [param0+0], %m;
  .param .b64 param1;
  st.param.b64 [param1+0], %f;
  .param .b32 param2;
  st.param.b32 [param2+0], 7;
  .param .b64 param3;
  st.param.b64 [param3+0], %n;
  .param .b64 param4;
  st.param.b64 [param4+0], 1;
  call.uni __assertfail, (param0, param1, param2, param3, param4);
  }
  ret;
}
)";

const char* const kFaultPtx = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .entry wild_store()
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  mov.u64 %rd1, 4096;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}

.visible .entry misaligned(.param .u64 data)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [data];
  cvta.to.global.u64 %rd2, %rd1;
  add.s64 %rd3, %rd2, 1;
  mov.u32 %r1, 1;
  st.global.u32 [%rd3], %r1;
  ret;
}

.visible .entry trap_now()
{
  trap;
}
)";

const char* const kCooperativePtx = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .entry grid_barrier(.param .u64 counter, .param .u64 out)
{
  .reg .pred %p<3>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<7>;
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra DONE;
  ld.param.u64 %rd1, [counter];
  ld.param.u64 %rd2, [out];
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  mov.u32 %r2, %nctaid.x;
  mov.u32 %r5, %ctaid.x;
  atom.global.add.u32 %r3, [%rd3], 1;
WAIT:
  ld.volatile.global.u32 %r4, [%rd3];
  setp.lt.u32 %p2, %r4, %r2;
  @%p2 bra WAIT;
  mul.wide.u32 %rd5, %r5, 4;
  add.s64 %rd6, %rd4, %rd5;
  st.global.u32 [%rd6], %r4;
DONE:
  ret;
}
)";

const char* const kClusterPtx = R"(
.version 7.8
.target sm_90
.address_size 64

.visible .entry cluster_ranks(.param .u64 out)
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %cluster_nctarank;
  mov.u32 %r2, %cluster_ctarank;
  mov.u32 %r3, %ctaid.x;
  mad.lo.s32 %r4, %r1, 16, %r2;
  mul.wide.u32 %rd3, %r3, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r4;
  ret;
}

.visible .entry pairs() .reqnctapercluster 2, 1, 1
{
  ret;
}
)";

const char* const kLinkCallerPtx = R"(
.version 7.0
.target sm_75
.address_size 64

.extern .func (.param .b32 result) twice_plus_one(.param .b32 value);

.visible .entry caller(.param .u64 out, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd2, %rd1;
  {
  .param .b32 param0;
  st.param.b32 [param0+0], %r1;
  .param .b32 retval0;
  call.uni (retval0), twice_plus_one, (param0);
  ld.param.b32 %r2, [retval0+0];
  }
  st.global.u32 [%rd2], %r2;
  ret;
}
)";

const char* const kLinkCalleePtx = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .func (.param .b32 result) twice_plus_one(.param .b32 value)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [value];
  shl.b32 %r2, %r1, 1;
  add.s32 %r2, %r2, 1;
  st.param.b32 [result+0], %r2;
  ret;
}
)";

const char* const kSyntaxErrorPtx = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .entry broken()
{
  this is not an instruction
}
)";

const char* const kUnknownInstructionPtx = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .entry broken()
{
  .reg .b32 %r<3>;
  frobnicate.b32 %r1, %r2;
  ret;
}
)";

const char* const kFutureTargetPtx = R"(
.version 9.0
.target sm_199
.address_size 64

.visible .entry future()
{
  ret;
}
)";

}  // namespace flyt::conformance
