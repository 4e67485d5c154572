// Modules: loading PTX, functions, globals, and what must not load.
#include <cstring>
#include <thread>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

using ModuleTest = ContextTest;

TEST_F(ModuleTest, LoadsPtxAndFindsItsFunctions) {
  CUmodule module = nullptr;
  CU_OK(cu().cuModuleLoadData(&module, kBasicPtx));
  CUfunction function = nullptr;
  CU_OK(cu().cuModuleGetFunction(&function, module, "add_one"));
  EXPECT_NE(nullptr, function);
  CUfunction again = nullptr;
  CU_OK(cu().cuModuleGetFunction(&again, module, "add_one"));
  EXPECT_EQ(function, again);
  CU_OK(cu().cuModuleUnload(module));
}

TEST_F(ModuleTest, AMissingFunctionIsNotFound) {
  const Module module(kBasicPtx);
  CUfunction function = nullptr;
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuModuleGetFunction(&function, module, "no_such_kernel"));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleGetFunction(&function, module, ""));
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuModuleGetFunction(&function, module, "counter"));
}

TEST_F(ModuleTest, NullArgumentsAreRefused) {
  const Module module(kBasicPtx);
  CUmodule made = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleLoadData(nullptr, kBasicPtx));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleLoadData(&made, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleGetFunction(nullptr, module, "add_one"));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleGetFunction(&function, module, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleGetGlobal_v2(&address, &bytes, module, nullptr));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuModuleUnload(nullptr));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuModuleGetFunction(&function, nullptr, "add_one"));
}

TEST_F(ModuleTest, GlobalsHaveAddressSizeAndInitialValue) {
  const Module module(kBasicPtx);
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  CU_OK(cu().cuModuleGetGlobal_v2(&address, &bytes, module, "counter"));
  EXPECT_EQ(4u, bytes);
  std::uint32_t value = 0;
  CU_OK(cu().cuMemcpyDtoH_v2(&value, address, 4));
  EXPECT_EQ(7u, value);
  CU_OK(cu().cuModuleGetGlobal_v2(&address, &bytes, module, "words"));
  EXPECT_EQ(256u, bytes);
  CU_OK(cu().cuModuleGetGlobal_v2(&address, &bytes, module, "table"));
  EXPECT_EQ(16u, bytes);
  CU_IS(CUDA_SUCCESS, cu().cuModuleGetGlobal_v2(nullptr, &bytes, module, "words"));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleGetGlobal_v2(nullptr, nullptr, module, "words"));
  CU_IS(CUDA_SUCCESS, cu().cuModuleGetGlobal_v2(&address, nullptr, module, "words"));
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuModuleGetGlobal_v2(&address, &bytes, module, "missing"));
}

TEST_F(ModuleTest, KernelsSeeWhatTheHostWritesIntoGlobals) {
  const Module module(kBasicPtx);
  const DeviceMemory out(12);
  const std::uint32_t words[2] = {11, 22};
  CU_OK(cu().cuMemcpyHtoD_v2(module.global("words"), words, sizeof(words)));
  const std::uint32_t third = 33;
  CU_OK(cu().cuMemcpyHtoD_v2(module.global("table") + 8, &third, 4));
  CU_OK(launch(module.function("read_globals"), 1, 1, nullptr, static_cast<CUdeviceptr>(out)));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ((std::vector<std::uint32_t>{7, 33, 22}), out.read<std::uint32_t>());
  std::uint32_t counter = 0;
  CU_OK(cu().cuMemcpyDtoH_v2(&counter, module.global("counter"), 4));
  EXPECT_EQ(8u, counter);
}

TEST_F(ModuleTest, TwoLoadsOfOneTextHaveTheirOwnGlobals) {
  const Module first(kBasicPtx);
  const Module second(kBasicPtx);
  EXPECT_NE(first.global("counter"), second.global("counter"));
  const std::uint32_t value = 99;
  CU_OK(cu().cuMemcpyHtoD_v2(first.global("counter"), &value, 4));
  std::uint32_t other = 0;
  CU_OK(cu().cuMemcpyDtoH_v2(&other, second.global("counter"), 4));
  EXPECT_EQ(7u, other);
}

TEST_F(ModuleTest, BrokenTextIsInvalidPtx) {
  CUmodule module = nullptr;
  CU_IS(CUDA_ERROR_INVALID_PTX, cu().cuModuleLoadData(&module, kSyntaxErrorPtx));
  CU_IS(CUDA_ERROR_INVALID_PTX, cu().cuModuleLoadData(&module, kUnknownInstructionPtx));
}

TEST_F(ModuleTest, TextThatIsNoImageIsRefused) {
  CUmodule module = nullptr;
  CU_IS(CUDA_ERROR_INVALID_IMAGE, cu().cuModuleLoadData(&module, "hello"));
  CU_IS(CUDA_ERROR_INVALID_IMAGE, cu().cuModuleLoadData(&module, ""));
}

TEST_F(ModuleTest, TheJitLogNamesTheInstructionAndItsLine) {
  char log[2048] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CUmodule module = nullptr;
  CU_IS(CUDA_ERROR_INVALID_PTX,
        cu().cuModuleLoadDataEx(&module, kUnknownInstructionPtx, 2, options, values));
  EXPECT_NE(nullptr, std::strstr(log, "frobnicate")) << log;
  EXPECT_NE(nullptr, std::strstr(log, "line 9")) << log;
}

TEST_F(ModuleTest, JitOptionsOfAGoodTextSucceed) {
  char info[1024] = {};
  char error[1024] = {};
  float milliseconds = -1;
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER,   CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_ERROR_LOG_BUFFER,  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_WALL_TIME,         CU_JIT_MAX_REGISTERS,
                            CU_JIT_OPTIMIZATION_LEVEL};
  void* values[] = {info,
                    reinterpret_cast<void*>(sizeof(info)),
                    error,
                    reinterpret_cast<void*>(sizeof(error)),
                    &milliseconds,
                    reinterpret_cast<void*>(32),
                    reinterpret_cast<void*>(2)};
  CUmodule module = nullptr;
  CU_OK(cu().cuModuleLoadDataEx(&module, kBasicPtx, 7, options, values));
  EXPECT_EQ('\0', error[0]) << error;
  CU_OK(cu().cuModuleUnload(module));
}

TEST_F(ModuleTest, NullOptionsWithACountAreRefused) {
  CUmodule module = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleLoadDataEx(&module, kBasicPtx, 1, nullptr, nullptr));
  CU_OK(cu().cuModuleLoadDataEx(&module, kBasicPtx, 0, nullptr, nullptr));
  CU_OK(cu().cuModuleUnload(module));
}

TEST_F(ModuleTest, AFileThatIsNotThereIsFileNotFound) {
  CUmodule module = nullptr;
  CU_IS(CUDA_ERROR_FILE_NOT_FOUND, cu().cuModuleLoad(&module, "/nonexistent/flyt.ptx"));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleLoad(nullptr, "/nonexistent/flyt.ptx"));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleLoad(&module, nullptr));
}

TEST_F(ModuleTest, FunctionsCanBeCountedAndEnumerated) {
  const Module module(kBasicPtx);
  unsigned count = 0;
  CU_OK(cu().cuModuleGetFunctionCount(&count, module));
  EXPECT_EQ(10u, count);
  std::vector<CUfunction> functions(count);
  CU_OK(cu().cuModuleEnumerateFunctions(functions.data(), count, module));
  bool found = false;
  for (const CUfunction function : functions) {
    const char* name = nullptr;
    CU_OK(cu().cuFuncGetName(&name, function));
    found = found || std::strcmp(name, "vector_add") == 0;
  }
  EXPECT_TRUE(found);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleGetFunctionCount(nullptr, module));
}

TEST_F(ModuleTest, FunctionAttributesTellWhatTheTextSays) {
  const Module module(kBasicPtx);
  int value = -1;
  CU_OK(cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                module.function("add_one")));
  EXPECT_EQ(1024, value);
  CU_OK(cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                module.function("small_blocks")));
  EXPECT_EQ(64, value);
  CU_OK(cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                                module.function("static_shared")));
  EXPECT_EQ(4096, value);
  CU_OK(cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES,
                                module.function("read_globals")));
  CU_OK(cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
                                module.function("empty")));
  EXPECT_EQ(0, value);
  CU_OK(cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, module.function("add_one")));
  EXPECT_GT(value, 0);
  CU_OK(cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PTX_VERSION, module.function("add_one")));
  EXPECT_EQ(75, value);
}

TEST_F(ModuleTest, FunctionAttributeArgumentsAreChecked) {
  const Module module(kBasicPtx);
  const CUfunction function = module.function("add_one");
  int value = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuFuncGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(999), function));
  CU_IS(CUDA_ERROR_INVALID_HANDLE,
        cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 5));
  CU_IS(
      CUDA_ERROR_INVALID_VALUE,
      cu().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 30));
  CU_IS(CUDA_SUCCESS,
        cu().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
}

TEST_F(ModuleTest, ParameterInfoListsOffsetsAndSizes) {
  const Module module(kBasicPtx);
  const CUfunction function = module.function("pick");
  const std::size_t sizes[] = {1, 2, 4, 8, 4, 8, 16, 8};
  const std::size_t offsets[] = {0, 2, 4, 8, 16, 24, 32, 48};
  for (std::size_t i = 0; i < 8; ++i) {
    std::size_t offset = 0;
    std::size_t size = 0;
    CU_OK(cu().cuFuncGetParamInfo(function, i, &offset, &size));
    EXPECT_EQ(offsets[i], offset) << i;
    EXPECT_EQ(sizes[i], size) << i;
  }
  std::size_t offset = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuFuncGetParamInfo(function, 8, &offset, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuFuncGetParamInfo(function, 0, nullptr, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuFuncGetParamInfo(nullptr, 0, &offset, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuFuncGetParamInfo(function, 1, &offset, nullptr));
}

TEST_F(ModuleTest, AFunctionKnowsItsModuleAndName) {
  const Module module(kBasicPtx);
  const CUfunction function = module.function("vector_add");
  CUmodule owner = nullptr;
  CU_OK(cu().cuFuncGetModule(&owner, function));
  EXPECT_EQ(static_cast<CUmodule>(module), owner);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuFuncGetModule(&owner, nullptr));
  const char* name = nullptr;
  CU_OK(cu().cuFuncGetName(&name, function));
  EXPECT_STREQ("vector_add", name);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuFuncGetName(nullptr, function));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuFuncGetName(&name, nullptr));
  CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_UNLOADED;
  CU_OK(cu().cuFuncLoad(function));
  CU_OK(cu().cuFuncIsLoaded(&state, function));
  EXPECT_EQ(CU_FUNCTION_LOADING_STATE_LOADED, state);
}

TEST_F(ModuleTest, CacheConfigurationsOfAFunction) {
  const Module module(kBasicPtx);
  const CUfunction function = module.function("empty");
  CU_IS(CUDA_SUCCESS, cu().cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_L1));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuFuncSetCacheConfig(function, static_cast<CUfunc_cache>(77)));
  CU_IS(CUDA_SUCCESS,
        cu().cuFuncSetSharedMemConfig(function, CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE));
}

TEST_F(ModuleTest, TheLoadingModeCanBeAsked) {
  CUmoduleLoadingMode mode = static_cast<CUmoduleLoadingMode>(0);
  CU_OK(cu().cuModuleGetLoadingMode(&mode));
  EXPECT_TRUE(mode == CU_MODULE_EAGER_LOADING || mode == CU_MODULE_LAZY_LOADING);
}

TEST_F(ModuleTest, ATextForAnUnknownChipIsInvalidPtx) {
  CUmodule module = nullptr;
  CU_IS(CUDA_ERROR_INVALID_PTX, cu().cuModuleLoadData(&module, kFutureTargetPtx));
}

TEST_F(ModuleTest, AThreadWithoutAContextMayAskModulesAndFunctions) {
  const Module module(kBasicPtx);
  const CUfunction function = module.function("store_value");
  std::thread([&] {
    CUfunction found = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuModuleGetFunction(&found, module, "store_value"));
    EXPECT_EQ(function, found);
    CUdeviceptr counter = 0;
    std::size_t bytes = 0;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuModuleGetGlobal_v2(&counter, &bytes, module, "counter"));
    EXPECT_EQ(4u, bytes);
    int registers = -1;
    EXPECT_EQ(CUDA_SUCCESS,
              cu().cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    EXPECT_EQ(CUDA_SUCCESS, cu().cuFuncSetAttribute(
                                function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
    CUmodule home = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuFuncGetModule(&home, function));
  }).join();
}

}  // namespace
}  // namespace flyt::conformance
