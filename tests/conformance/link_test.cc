// The linker: several texts become one image.
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "cuda/fatbin.h"
#include "cuda/host_object_sample.h"
#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

using LinkTest = ContextTest;

CUresult add(CUlinkState state, const char* text, const char* name) {
  return cu().cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, const_cast<char*>(text),
                               std::strlen(text) + 1, name, 0, nullptr, nullptr);
}

// Runs the kernel, whose callee was linked to it, and unloads the module.
void expect_caller_runs_in(CUmodule module) {
  CUfunction function = nullptr;
  CU_OK(cu().cuModuleGetFunction(&function, module, "caller"));
  const DeviceMemory out(4);
  CU_OK(launch(function, 1, 1, nullptr, static_cast<CUdeviceptr>(out), 20u));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(41u, out.read<std::uint32_t>()[0]);
  CU_OK(cu().cuModuleUnload(module));
}

TEST_F(LinkTest, TwoTextsBecomeOneImageThatRuns) {
  CUlinkState state = nullptr;
  CU_OK(cu().cuLinkCreate_v2(0, nullptr, nullptr, &state));
  CU_OK(add(state, kLinkCallerPtx, "caller.ptx"));
  CU_OK(add(state, kLinkCalleePtx, "callee.ptx"));
  void* image = nullptr;
  std::size_t size = 0;
  CU_OK(cu().cuLinkComplete(state, &image, &size));
  EXPECT_NE(nullptr, image);
  EXPECT_GT(size, 0u);
  CUmodule module = nullptr;
  CU_OK(cu().cuModuleLoadData(&module, image));
  CU_OK(cu().cuLinkDestroy(state));
  expect_caller_runs_in(module);
}

std::vector<std::byte> fat_binary(const char* text) {
  cuda::FatbinWriter writer;
  if (text != nullptr) {
    writer.add(cuda::FatbinFileKind::kPtx, 75, cuda::kFatbinFlag64Bit | cuda::kFatbinFlagLinux,
               bytes_at(text, std::strlen(text) + 1));
  }
  return writer.finish();
}

// Loads what a program has that was compiled in parts, and linked for no GPU of this kind unless
// `whole` says otherwise; the first two parts are the caller and the callee.
void expect_parts_run(const void* const* parts,
                      const std::vector<std::byte>& whole = fat_binary(nullptr)) {
  const struct {
    std::uint32_t magic;
    std::uint32_t version;
    const void* header;
    const void* const* parts;
  } wrapper{cuda::kFatbinWrapperMagic, 2, whole.data(), parts};
  CUmodule module = nullptr;
  CU_OK(cu().cuModuleLoadData(&module, &wrapper));
  expect_caller_runs_in(module);
}

TEST_F(LinkTest, PartsOfAFatBinaryAreLinkedWhenItIsLoaded) {
  const auto caller = fat_binary(kLinkCallerPtx);
  const auto callee = fat_binary(kLinkCalleePtx);
  const void* parts[] = {caller.data(), callee.data(), nullptr};
  expect_parts_run(parts);
}

// As CUDA's device runtime is, which nvcc links to all code that is compiled in parts.
TEST_F(LinkTest, APartThatHasNothingForTheDriverIsLeftOut) {
  const auto caller = fat_binary(kLinkCallerPtx);
  const auto callee = fat_binary(kLinkCalleePtx);
  const std::string code = "no machine code";
  cuda::FatbinWriter writer;
  writer.add(cuda::FatbinFileKind::kElf, 90, cuda::kFatbinFlag64Bit | cuda::kFatbinFlagLinux,
             bytes_of(code));
  const auto runtime = writer.finish();
  const void* parts[] = {caller.data(), callee.data(), runtime.data(), nullptr};
  expect_parts_run(parts);
}

// As cudart does for code with launches in its kernels, before it has a context.
TEST_F(LinkTest, PartsAreLinkedWithoutAContext) {
  const auto caller = fat_binary(kLinkCallerPtx);
  const auto callee = fat_binary(kLinkCalleePtx);
  const auto whole = fat_binary(nullptr);
  const void* parts[] = {caller.data(), callee.data(), nullptr};
  const struct {
    std::uint32_t magic;
    std::uint32_t version;
    const void* header;
    const void* const* parts;
  } wrapper{cuda::kFatbinWrapperMagic, 2, whole.data(), parts};
  CUcontext popped = nullptr;
  CU_OK(cu().cuCtxPopCurrent_v2(&popped));
  CUlibrary library = nullptr;
  CU_OK(cu().cuLibraryLoadData(&library, &wrapper, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUcontext current = popped;
  CU_OK(cu().cuCtxGetCurrent(&current));
  EXPECT_EQ(nullptr, current);
  CU_OK(cu().cuCtxPushCurrent_v2(popped));
  CUkernel kernel = nullptr;
  CU_OK(cu().cuLibraryGetKernel(&kernel, library, "caller"));
  CU_OK(cu().cuLibraryUnload(library));
}

// The software GPU runs PTX alone, whatever nvcc has linked for a GPU of its kind.
TEST_F(LinkTest, PartsAreLinkedWhereTheWholeIsMachineCode) {
  const auto caller = fat_binary(kLinkCallerPtx);
  const auto callee = fat_binary(kLinkCalleePtx);
  const std::string code = "no machine code";
  cuda::FatbinWriter writer;
  writer.add(cuda::FatbinFileKind::kElf, 90, cuda::kFatbinFlag64Bit | cuda::kFatbinFlagLinux,
             bytes_of(code));
  const void* parts[] = {caller.data(), callee.data(), nullptr};
  expect_parts_run(parts, writer.finish());
}

CUresult add(CUlinkState state, CUjitInputType type, const std::vector<std::byte>& bytes) {
  return cu().cuLinkAddData_v2(state, type, const_cast<std::byte*>(bytes.data()), bytes.size(),
                               "part", 0, nullptr, nullptr);
}

void expect_caller_runs(CUlinkState state) {
  void* image = nullptr;
  std::size_t size = 0;
  CU_OK(cu().cuLinkComplete(state, &image, &size));
  CUmodule module = nullptr;
  CU_OK(cu().cuModuleLoadData(&module, image));
  expect_caller_runs_in(module);
}

std::vector<std::byte> object_of(const char* text) {
  return cuda::host_object("__nv_relfatbin", fat_binary(text));
}

TEST_F(LinkTest, ObjectsOfAHostAreLinkedByTheCodeInThem) {
  CUlinkState state = nullptr;
  CU_OK(cu().cuLinkCreate_v2(0, nullptr, nullptr, &state));
  CU_OK(add(state, CU_JIT_INPUT_OBJECT, object_of(kLinkCallerPtx)));
  CU_OK(add(state, CU_JIT_INPUT_OBJECT, object_of(kLinkCalleePtx)));
  expect_caller_runs(state);
  CU_OK(cu().cuLinkDestroy(state));
}

// What nobody asks for may be there twice.
TEST_F(LinkTest, OfALibraryIsTakenWhatIsMissing) {
  const auto callee = object_of(kLinkCalleePtx);
  const auto caller = object_of(kLinkCallerPtx);
  CUlinkState state = nullptr;
  CU_OK(cu().cuLinkCreate_v2(0, nullptr, nullptr, &state));
  CU_OK(add(state, CU_JIT_INPUT_LIBRARY,
            cuda::archive({{"/", bytes_of("")}, {"caller.o/", caller}, {"callee.o/", callee}})));
  CU_OK(add(state, kLinkCallerPtx, "caller.ptx"));
  expect_caller_runs(state);
  CU_OK(cu().cuLinkDestroy(state));
}

TEST_F(LinkTest, AnObjectThatIsCutOffIsRefused) {
  auto object = object_of(kLinkCalleePtx);
  object.resize(object.size() / 2);
  CUlinkState state = nullptr;
  CU_OK(cu().cuLinkCreate_v2(0, nullptr, nullptr, &state));
  EXPECT_NE(CUDA_SUCCESS, add(state, CU_JIT_INPUT_OBJECT, object));
  CU_OK(cu().cuLinkDestroy(state));
}

TEST_F(LinkTest, AMissingSymbolFailsTheLink) {
  CUlinkState state = nullptr;
  CU_OK(cu().cuLinkCreate_v2(0, nullptr, nullptr, &state));
  CU_OK(add(state, kLinkCallerPtx, "caller.ptx"));
  void* image = nullptr;
  std::size_t size = 0;
  // NVIDIA's driver says the one or the other, natively, by what its process did before.
  const CUresult result = cu().cuLinkComplete(state, &image, &size);
  EXPECT_TRUE(result == CUDA_ERROR_UNKNOWN || result == CUDA_ERROR_INVALID_SOURCE) << result;
  CU_OK(cu().cuLinkDestroy(state));
}

TEST_F(LinkTest, BrokenTextIsRefusedWhenAdded) {
  CUlinkState state = nullptr;
  CU_OK(cu().cuLinkCreate_v2(0, nullptr, nullptr, &state));
  CU_IS(CUDA_ERROR_INVALID_PTX, add(state, kSyntaxErrorPtx, "broken.ptx"));
  CU_OK(cu().cuLinkDestroy(state));
}

TEST_F(LinkTest, NullArgumentsAreRefused) {
  CUlinkState state = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuLinkCreate_v2(0, nullptr, nullptr, nullptr));
  CU_OK(cu().cuLinkCreate_v2(0, nullptr, nullptr, &state));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, nullptr, 10, "x", 0, nullptr, nullptr));
  CU_IS(CUDA_ERROR_FILE_NOT_FOUND,
        cu().cuLinkAddFile_v2(state, CU_JIT_INPUT_PTX, "/nonexistent/a.ptx", 0, nullptr, nullptr));
  CU_OK(cu().cuLinkDestroy(state));
}

}  // namespace
}  // namespace flyt::conformance
