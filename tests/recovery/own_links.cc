#include "tests/recovery/own_links.h"

#include <cstdint>
#include <cstring>

namespace flyt::tests {
namespace {

constexpr const char* kCaller = R"(.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 out) twice (.param .b32 in);
.visible .entry call(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, 21;
  {
    .param .b32 given;
    .param .b32 got;
    st.param.b32 [given], %r1;
    call.uni (got), twice, (given);
    ld.param.b32 %r2, [got];
  }
  st.global.u32 [%rd2], %r2;
  ret;
}
)";
constexpr const char* kCallee = R"(.version 7.0
.target sm_75
.address_size 64
.visible .func (.param .b32 out) twice (.param .b32 in)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [in];
  add.u32 %r2, %r1, %r1;
  st.param.b32 [out], %r2;
  ret;
}
)";

std::string text(CUresult result) { return std::to_string(static_cast<int>(result)); }

}  // namespace

std::string OwnLinks::answer(const std::string& what) {
  if (what == "begin") return text(begin());
  if (what == "caller") return text(add(kCaller));
  if (what == "callee") return text(add(kCallee));
  if (what == "nonsense") return text(add("no code at all"));
  if (what == "complete") return text(complete());
  if (what == "run") return run();
  if (what == "end") return text(cu_.cuLinkDestroy(link_));
  return "unknown";
}

CUresult OwnLinks::begin() { return cu_.cuLinkCreate_v2(0, nullptr, nullptr, &link_); }

CUresult OwnLinks::add(const char* ptx) {
  return cu_.cuLinkAddData_v2(link_, CU_JIT_INPUT_PTX, const_cast<char*>(ptx), std::strlen(ptx) + 1,
                              "part.ptx", 0, nullptr, nullptr);
}

CUresult OwnLinks::complete() {
  void* image = nullptr;
  std::size_t bytes = 0;
  const CUresult result = cu_.cuLinkComplete(link_, &image, &bytes);
  return result == CUDA_SUCCESS ? cu_.cuModuleLoadData(&module_, image) : result;
}

std::string OwnLinks::run() {
  CUfunction function = nullptr;
  CUdeviceptr out = 0;
  std::uint32_t word = 0;
  CUresult result = cu_.cuModuleGetFunction(&function, module_, "call");
  if (result == CUDA_SUCCESS) result = cu_.cuMemAlloc_v2(&out, sizeof word);
  void* parameters[] = {&out};
  if (result == CUDA_SUCCESS) {
    result = cu_.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
  }
  if (result == CUDA_SUCCESS) result = cu_.cuMemcpyDtoH_v2(&word, out, sizeof word);
  if (result == CUDA_SUCCESS) result = cu_.cuMemFree_v2(out);
  if (result != CUDA_SUCCESS) return text(result);
  return word == 42 ? "ok" : "linked code is wrong";
}

}  // namespace flyt::tests
