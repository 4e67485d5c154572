#include "tests/conformance/texture_kernels.h"

#include <bit>

namespace flyt::conformance {
namespace {

constexpr const char* kHead = R"(
.visible .entry run(.param .u64 out, .param .u64 image, .param .u64 in)
{
  .reg .pred %p<8>;
  .reg .b16 %h<8>;
  .reg .b32 %r<32>;
  .reg .f32 %f<32>;
  .reg .b64 %rd<12>;
  ld.param.u64 %rd0, [out];
  ld.param.u64 %rd1, [image];
  ld.param.u64 %rd2, [in];
  cvta.to.global.u64 %rd3, %rd0;
  cvta.to.global.u64 %rd4, %rd2;
  mov.u32 %r20, %tid.x;
  mul.wide.u32 %rd5, %r20, 16;
  add.s64 %rd3, %rd3, %rd5;
  mul.wide.u32 %rd6, %r20, 32;
  add.s64 %rd4, %rd4, %rd6;
  ld.global.u32 %r0, [%rd4];
  ld.global.u32 %r1, [%rd4+4];
  ld.global.u32 %r2, [%rd4+8];
  ld.global.u32 %r3, [%rd4+12];
  ld.global.u32 %r4, [%rd4+16];
  ld.global.u32 %r5, [%rd4+20];
  ld.global.u32 %r6, [%rd4+24];
  ld.global.u32 %r7, [%rd4+28];
  mov.b32 %f0, %r0;
  mov.b32 %f1, %r1;
  mov.b32 %f2, %r2;
  mov.b32 %f3, %r3;
  mov.b32 %f4, %r4;
  mov.b32 %f5, %r5;
  mov.b32 %f6, %r6;
  mov.b32 %f7, %r7;
  mov.u32 %r8, 0;
  mov.u32 %r9, 0;
  mov.u32 %r10, 0;
  mov.u32 %r11, 0;
  mov.f32 %f8, 0f00000000;
  mov.f32 %f9, 0f00000000;
  mov.f32 %f10, 0f00000000;
  mov.f32 %f11, 0f00000000;
)";

}  // namespace

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
float number(std::uint32_t value) { return std::bit_cast<float>(value); }

Words floats(float a, float b, float c, float d, float e, float f, float g, float h) {
  return {bits(a), bits(b), bits(c), bits(d), bits(e), bits(f), bits(g), bits(h)};
}

std::string image_kernel(const std::string& body, bool integers, const std::string& globals) {
  return ".version 7.0\n.target sm_75\n.address_size 64\n" + globals + kHead + body +
         (integers ? "\n  st.global.v4.u32 [%rd3], {%r8, %r9, %r10, %r11};\n  ret;\n}\n"
                   : "\n  st.global.v4.f32 [%rd3], {%f8, %f9, %f10, %f11};\n  ret;\n}\n");
}

std::vector<Answer> run_image_kernel(CUmodule module, std::uint64_t image,
                                     const std::vector<Words>& inputs) {
  const Unrecorded quiet;
  CUfunction function = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, cu().cuModuleGetFunction(&function, module, "run"));
  const DeviceMemory in(inputs.size() * sizeof(Words));
  const DeviceMemory out(inputs.size() * sizeof(Answer));
  in.write(inputs);
  EXPECT_EQ(CUDA_SUCCESS,
            launch(function, 1, static_cast<unsigned>(inputs.size()), nullptr,
                   static_cast<CUdeviceptr>(out), image, static_cast<CUdeviceptr>(in)));
  EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSynchronize());
  return out.read<Answer>();
}

std::vector<Answer> run_image_kernel(const std::string& body, bool integers, std::uint64_t image,
                                     const std::vector<Words>& inputs) {
  const Module module(image_kernel(body, integers));
  return run_image_kernel(module, image, inputs);
}

}  // namespace flyt::conformance
