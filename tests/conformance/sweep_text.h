// The code that the calls of a sweep load: nothing that takes a driver long to translate.
#pragma once

namespace flyt::conformance {

// empty(), one(p), counter (u32).
inline constexpr const char* kSweepCode = R"(.version 6.3
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter = 7;
.visible .entry empty()
{
  ret;
}
.visible .entry one(.param .u64 p)
{
  .reg .u32 %r<2>;
  .reg .u64 %rd<3>;
  ld.param.u64 %rd1, [p];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, 1;
  st.global.u32 [%rd2], %r1;
  ret;
}
)";

// References picture and canvas, and run(), which uses them.
inline constexpr const char* kSweepTextures = R"(.version 6.3
.target sm_75
.address_size 64
.visible .global .texref picture;
.visible .global .surfref canvas;
.visible .entry run()
{
  ret;
}
)";

}  // namespace flyt::conformance
