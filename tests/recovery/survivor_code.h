// Code of the survivor's, in PTX.
#pragma once

namespace flyt::tests {

inline constexpr const char* kPtx = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry add_one(.param .u64 data)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [data];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mad.lo.u32 %r1, %r3, %r4, %r1;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r2, [%rd4];
  add.s32 %r2, %r2, 1;
  st.global.u32 [%rd4], %r2;
  ret;
}
)";

// Code that remembers.
inline constexpr const char* kPtxWithVariables = R"(.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter = 5;
.global .align 8 .u64 notes[4];
.visible .const .align 4 .u32 step;
.visible .entry count(.param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  ld.const.u32 %r2, [step];
  ld.global.u32 %r1, [counter];
  add.s32 %r1, %r1, %r2;
  add.s32 %r1, %r1, 1;
  st.global.u32 [counter], %r1;
  cvt.u64.u32 %rd3, %r1;
  st.global.u64 [notes+16], %rd3;
  st.global.u32 [%rd2], %r1;
  ret;
}
.visible .entry peek(.param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.u32 %r1, [counter];
  st.global.u32 [%rd2], %r1;
  ld.global.u64 %rd3, [notes+16];
  st.global.u64 [%rd2+8], %rd3;
  ret;
}
)";
// Code with addresses of its variables: the loader's, in a table that nobody writes and in one that
// is half written, and kernels' own.
inline constexpr const char* kPtxWithPointers = R"(.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 hidden[2] = {5, 70};
.visible .global .align 8 .u64 table[2] = {generic(hidden), generic(hidden)+4};
.visible .global .align 8 .u64 mixed[2] = {generic(hidden)+4, 0};
.visible .global .align 8 .u64 note;
.visible .entry bump(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.u64 %rd3, [table];
  ld.u32 %r1, [%rd3];
  add.u32 %r1, %r1, 1;
  st.u32 [%rd3], %r1;
  ld.global.u64 %rd4, [mixed];
  ld.u32 %r2, [%rd4];
  add.u32 %r2, %r2, 1;
  st.u32 [%rd4], %r2;
  ld.global.u64 %rd5, [mixed+8];
  add.u64 %rd5, %rd5, 1;
  st.global.u64 [mixed+8], %rd5;
  ld.global.u32 %r1, [hidden];
  ld.global.u32 %r2, [hidden+4];
  cvt.u64.u32 %rd3, %r1;
  st.global.u64 [%rd2], %rd3;
  cvt.u64.u32 %rd4, %r2;
  mad.lo.u64 %rd4, %rd5, 1000, %rd4;
  st.global.u64 [%rd2+8], %rd4;
  ret;
}
.visible .entry tell(.param .u64 out)
{
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  mov.u64 %rd2, hidden;
  cvta.global.u64 %rd2, %rd2;
  add.u64 %rd2, %rd2, 4;
  st.u64 [%rd1+8], %rd2;
  ret;
}
.visible .entry keep(.param .u64 out)
{
  .reg .b64 %rd<3>;
  mov.u64 %rd1, note;
  mov.u64 %rd2, hidden;
  cvta.global.u64 %rd2, %rd2;
  st.global.u64 [%rd1], %rd2;
  ret;
}
)";
// What the session does without.
inline constexpr const char* kPtxWithManaged = R"(.version 7.0
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 shared;
)";
inline constexpr const char* kPtxWithHeap = R"(.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b64 place) malloc (.param .b64 bytes);
.visible .entry grow()
{
  .reg .b64 %rd<2>;
  {
    .param .b64 bytes;
    .param .b64 place;
    st.param.b64 [bytes], 16;
    call.uni (place), malloc, (bytes);
    ld.param.b64 %rd1, [place];
  }
  ret;
}
)";
// Prints a line, and traps.
inline constexpr const char* kPtxThatTells = R"(.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 written) vprintf (.param .b64 format, .param .b64 values);
.global .align 1 .b8 line[6] = {116, 111, 108, 100, 10, 0};
.visible .entry tell_and_die()
{
  .reg .b64 %rd<3>;
  mov.u64 %rd1, line;
  cvta.global.u64 %rd1, %rd1;
  mov.u64 %rd2, 0;
  {
    .param .b64 format;
    .param .b64 values;
    .param .b32 written;
    st.param.b64 [format], %rd1;
    st.param.b64 [values], %rd2;
    call.uni (written), vprintf, (format, values);
  }
  trap;
}
)";

}  // namespace flyt::tests
