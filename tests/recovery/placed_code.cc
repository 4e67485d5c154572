#include "tests/recovery/placed_code.h"

#include <algorithm>
#include <array>

namespace flyt::tests {
namespace {

// It has no variables, but a driver puts constants where those are.
constexpr const char* kPtxWithConstant = R"(.version 7.0
.target sm_75
.address_size 64
.const .align 8 .u64 step[100] = {7};
.visible .entry tell(.param .u64 out)
{
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.const.u64 %rd2, [step];
  st.global.u64 [%rd1], %rd2;
  ret;
}
)";

// Less code than this is not named by its hash.
const std::string kPadding(512, ' ');

std::string code(std::size_t bytes) {
  const std::string last = "cell+" + std::to_string(bytes - 8);
  return ".version 7.0\n.target sm_75\n.address_size 64\n"
         ".visible .global .align 16 .b8 cell[" +
         std::to_string(bytes) +
         "];\n"
         ".visible .entry bump(.param .u64 told, .param .u64 out)\n"
         "{\n"
         "  .reg .b64 %rd<5>;\n"
         "  ld.param.u64 %rd1, [told];\n"
         "  ld.param.u64 %rd2, [out];\n"
         "  ld.global.u64 %rd3, [%rd1];\n"
         "  add.u64 %rd3, %rd3, 1;\n"
         "  st.global.u64 [%rd1], %rd3;\n"
         "  ld.global.u64 %rd4, [" +
         last +
         "];\n"
         "  st.global.u64 [%rd2], %rd4;\n"
         "  ret;\n"
         "}\n" +
         kPadding;
}

std::string text(CUresult result) {
  return result == CUDA_SUCCESS ? "ok" : std::to_string(static_cast<int>(result));
}

}  // namespace

std::string PlacedCode::answer(const std::string& what, std::size_t bytes) {
  if (what == "module") return text(load(bytes, false));
  if (what == "library") return text(load(bytes, true));
  if (what == "elsewhere") return text(load_elsewhere(bytes));
  if (what == "constant") return text(load_constant());
  if (what == "use") return text(use());
  return "unknown";
}

CUresult PlacedCode::load_constant() {
  CUmodule module = nullptr;
  return cu_.cuModuleLoadData(&module, kPtxWithConstant);
}

CUresult PlacedCode::load_elsewhere(std::size_t bytes) {
  CUcontext before = nullptr;
  CUcontext context = nullptr;
  CUresult result = cu_.cuCtxGetCurrent(&before);
  if (result == CUDA_SUCCESS) result = cu_.cuCtxCreate_v2(&context, 0, 0);
  if (result == CUDA_SUCCESS) result = load(bytes, false);
  cu_.cuCtxSetCurrent(before);
  return result;
}

CUresult PlacedCode::load(std::size_t bytes, bool as_library) {
  Variable variable;
  variable.bytes = std::max<std::size_t>(bytes / 8 * 8, 8);
  const std::string ptx = code(variable.bytes);
  CUresult result = cu_.cuCtxGetCurrent(&variable.context);
  CUkernel kernel = nullptr;
  if (result != CUDA_SUCCESS) return result;
  if (as_library) {
    result = cu_.cuLibraryLoadData(&variable.library, ptx.c_str(), nullptr, nullptr, 0, nullptr,
                                   nullptr, 0);
    if (result == CUDA_SUCCESS) result = cu_.cuLibraryGetKernel(&kernel, variable.library, "bump");
    if (result == CUDA_SUCCESS) result = cu_.cuKernelGetFunction(&variable.bump, kernel);
  } else {
    result = cu_.cuModuleLoadData(&variable.module, ptx.c_str());
    if (result == CUDA_SUCCESS) {
      result = cu_.cuModuleGetFunction(&variable.bump, variable.module, "bump");
    }
  }
  if (result == CUDA_SUCCESS) result = learn(variable);
  variables_.push_back(variable);
  return result == CUDA_SUCCESS ? bump(variables_.back()) : result;
}

CUresult PlacedCode::learn(Variable& variable) const {
  std::size_t bytes = 0;
  const CUresult result =
      variable.library != nullptr
          ? cu_.cuLibraryGetGlobal(&variable.address, &bytes, variable.library, "cell")
          : cu_.cuModuleGetGlobal_v2(&variable.address, &bytes, variable.module, "cell");
  return result == CUDA_SUCCESS && bytes != variable.bytes ? CUDA_ERROR_UNKNOWN : result;
}

CUresult PlacedCode::use() {
  CUcontext before = nullptr;
  CUresult result = cu_.cuCtxGetCurrent(&before);
  for (Variable& variable : variables_) {
    Variable now = variable;
    if (result == CUDA_SUCCESS) result = cu_.cuCtxSetCurrent(variable.context);
    if (result == CUDA_SUCCESS) result = bump(variable);
    if (result == CUDA_SUCCESS) result = learn(now);
    if (result == CUDA_SUCCESS && now.address != variable.address) result = CUDA_ERROR_UNKNOWN;
  }
  cu_.cuCtxSetCurrent(before);
  return result;
}

CUresult PlacedCode::bump(Variable& variable) {
  CUdeviceptr out = 0;
  CUdeviceptr told = variable.address + variable.bytes - 8;
  CUresult result = cu_.cuMemAlloc_v2(&out, 8);
  std::array<void*, 2> parameters = {&told, &out};
  if (result == CUDA_SUCCESS) {
    result =
        cu_.cuLaunchKernel(variable.bump, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters.data(), nullptr);
  }
  std::array<std::uint64_t, 2> found{};
  if (result == CUDA_SUCCESS) result = cu_.cuMemcpyDtoH_v2(&found[0], out, 8);
  if (result == CUDA_SUCCESS) result = cu_.cuMemcpyDtoH_v2(&found[1], told, 8);
  cu_.cuMemFree_v2(out);
  ++variable.count;
  const bool right = found == std::array{variable.count, variable.count};
  return result == CUDA_SUCCESS && !right ? CUDA_ERROR_UNKNOWN : result;
}

}  // namespace flyt::tests
