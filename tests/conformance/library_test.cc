// Libraries and kernels: context-independent loading.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "cuda/fatbin.h"
#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

class LibraryTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    CU_OK(cu().cuLibraryLoadData(&library, kBasicPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  void TearDown() override {
    const Unrecorded quiet;
    if (library != nullptr) cu().cuLibraryUnload(library);
  }
  CUkernel kernel(const char* name) const {
    CUkernel found = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuLibraryGetKernel(&found, library, name));
    return found;
  }
  CUlibrary library = nullptr;
};

TEST_F(LibraryTest, FindsKernelsByName) {
  CUkernel found = nullptr;
  CU_OK(cu().cuLibraryGetKernel(&found, library, "add_one"));
  EXPECT_NE(nullptr, found);
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuLibraryGetKernel(&found, library, "missing"));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuLibraryGetKernel(nullptr, library, "add_one"));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuLibraryGetKernel(&found, library, nullptr));
}

TEST_F(LibraryTest, CountsAndEnumeratesKernels) {
  unsigned count = 0;
  CU_OK(cu().cuLibraryGetKernelCount(&count, library));
  EXPECT_EQ(10u, count);
  std::vector<CUkernel> kernels(count);
  CU_OK(cu().cuLibraryEnumerateKernels(kernels.data(), count, library));
  for (const CUkernel each : kernels) {
    const char* name = nullptr;
    CU_OK(cu().cuKernelGetName(&name, each));
    EXPECT_NE(nullptr, name);
    CUlibrary owner = nullptr;
    CU_OK(cu().cuKernelGetLibrary(&owner, each));
    EXPECT_EQ(library, owner);
  }
  const char* name = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuKernelGetName(&name, nullptr));
}

TEST_F(LibraryTest, AKernelGivesAFunctionOfTheCurrentContext) {
  CUfunction function = nullptr;
  CU_OK(cu().cuKernelGetFunction(&function, kernel("store_value")));
  const DeviceMemory out(4);
  CU_OK(launch(function, 1, 1, nullptr, static_cast<CUdeviceptr>(out), 42u));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(42u, out.read<std::uint32_t>()[0]);
}

TEST_F(LibraryTest, AKernelCanBeLaunchedAsItIs) {
  const DeviceMemory out(4);
  const CUkernel store = kernel("store_value");
  CU_OK(launch(reinterpret_cast<CUfunction>(store), 1, 1, nullptr, static_cast<CUdeviceptr>(out),
               43u));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(43u, out.read<std::uint32_t>()[0]);
}

TEST_F(LibraryTest, KernelAttributesAreReadAndSetPerDevice) {
  int value = 0;
  const CUkernel sum = kernel("shared_sum");
  CU_OK(cu().cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, sum, device));
  EXPECT_EQ(1024, value);
  CU_OK(cu().cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 49152, sum,
                                  device));
  CU_OK(cu().cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, sum,
                                  device));
  EXPECT_EQ(49152, value);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuKernelGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, sum, device));
  CU_IS(CUDA_ERROR_INVALID_DEVICE,
        cu().cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, sum, 99));
}

// An attribute of a kernel's function counts for launches of the kernel in that context.
TEST_F(LibraryTest, AKernelIsLaunchedWithTheAttributesOfItsFunction) {
  constexpr unsigned kShared = 60000;
  constexpr auto kMost = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  const DeviceMemory out(4);
  const CUkernel store = kernel("store_value");
  const auto as_function = reinterpret_cast<CUfunction>(store);
  CUfunction function = nullptr;
  CU_OK(cu().cuKernelGetFunction(&function, store));
  CUdeviceptr address = out;
  std::uint32_t value = 44;
  void* parameters[] = {&address, &value};
  const auto with_shared = [&](unsigned bytes) {
    return cu().cuLaunchKernel(as_function, 1, 1, 1, 1, 1, 1, bytes, nullptr, parameters, nullptr);
  };
  CU_IS(CUDA_ERROR_INVALID_VALUE, with_shared(kShared));
  CU_OK(cu().cuFuncSetAttribute(function, kMost, kShared));
  CU_IS(CUDA_SUCCESS, with_shared(kShared));
  CU_OK(cu().cuFuncSetAttribute(function, kMost, kShared - 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, with_shared(kShared));
  CU_OK(cu().cuKernelSetAttribute(kMost, kShared, store, device));
  CU_OK(cu().cuFuncSetAttribute(function, kMost, 1000));
  CU_IS(CUDA_SUCCESS, with_shared(1000));
  CU_IS(CUDA_ERROR_INVALID_VALUE, with_shared(kShared));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(44u, out.read<std::uint32_t>()[0]);
}

TEST_F(LibraryTest, KernelParametersAreDescribed) {
  std::size_t offset = 9;
  std::size_t size = 0;
  CU_OK(cu().cuKernelGetParamInfo(kernel("store_value"), 1, &offset, &size));
  EXPECT_EQ(8u, offset);
  EXPECT_EQ(4u, size);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuKernelGetParamInfo(kernel("store_value"), 2, &offset, &size));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuKernelGetParamInfo(nullptr, 0, &offset, &size));
}

TEST_F(LibraryTest, GlobalsAreFoundAndMissingOnesAreNot) {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  CU_OK(cu().cuLibraryGetGlobal(&address, &bytes, library, "words"));
  EXPECT_EQ(256u, bytes);
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuLibraryGetGlobal(&address, &bytes, library, "missing"));
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuLibraryGetManaged(&address, &bytes, library, "words"));
}

TEST_F(LibraryTest, AModuleOfTheLibraryExistsInTheContext) {
  CUmodule module = nullptr;
  CU_OK(cu().cuLibraryGetModule(&module, library));
  CUfunction function = nullptr;
  CU_OK(cu().cuModuleGetFunction(&function, module, "add_one"));
  CU_IS(CUDA_ERROR_NOT_PERMITTED, cu().cuModuleUnload(module));
}

// What several threads find that look at the same moment.
template <class Find>
auto found_at_once(Find find) {
  constexpr int kThreads = 8;
  std::vector<decltype(find())> found(kThreads);
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const Unrecorded quiet;
      ready.fetch_add(1);
      while (ready.load() < kThreads) std::this_thread::yield();
      found[static_cast<std::size_t>(i)] = find();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return found;
}

TEST_F(LibraryTest, ThreadsThatLookAtOnceFindTheSame) {
  const auto same = [](const auto& found) {
    return found.front() != nullptr && std::count(found.begin(), found.end(), found.front()) ==
                                           static_cast<std::ptrdiff_t>(found.size());
  };
  for (const char* name : {"add_one", "store_value", "shared_sum", "empty"}) {
    const auto kernels = found_at_once([&] { return kernel(name); });
    EXPECT_TRUE(same(kernels)) << name;
    const auto functions = found_at_once([&] {
      CUfunction function = nullptr;
      EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
      EXPECT_EQ(CUDA_SUCCESS, cu().cuKernelGetFunction(&function, kernels.front()));
      return function;
    });
    EXPECT_TRUE(same(functions)) << name;
  }
  const auto modules = found_at_once([&] {
    CUmodule module = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    EXPECT_EQ(CUDA_SUCCESS, cu().cuLibraryGetModule(&module, library));
    return module;
  });
  EXPECT_TRUE(same(modules));
  const auto functions = found_at_once([&] {
    CUfunction function = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuModuleGetFunction(&function, modules.front(), "add_one"));
    return function;
  });
  EXPECT_TRUE(same(functions));
}

TEST_F(LibraryTest, FunctionsOfItsModulesGoWithIt) {
  for (int round = 0; round < 80; ++round) {
    CUlibrary made = nullptr;
    CU_OK(cu().cuLibraryLoadData(&made, kBasicPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUmodule module = nullptr;
    CU_OK(cu().cuLibraryGetModule(&module, made));
    CUfunction function = nullptr;
    CU_OK(cu().cuModuleGetFunction(&function, module, "empty"));
    CU_OK(launch(function, 1, 1, nullptr));
    CU_OK(cu().cuModuleGetFunction(&function, module, "add_one"));
    CU_OK(cu().cuLibraryUnload(made));
  }
}

TEST_F(LibraryTest, LoadChecksItsArguments) {
  CUlibrary made = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuLibraryLoadData(nullptr, kBasicPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuLibraryLoadData(&made, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU_IS(CUDA_ERROR_FILE_NOT_FOUND,
        cu().cuLibraryLoadFromFile(&made, "/nonexistent/flyt.ptx", nullptr, nullptr, 0, nullptr,
                                   nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuLibraryLoadFromFile(&made, "", nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
  void* value = nullptr;
  CU_IS(CUDA_ERROR_FILE_NOT_FOUND,
        cu().cuLibraryLoadFromFile(&made, "/nonexistent/flyt.ptx", nullptr, nullptr, 0, &option,
                                   &value, 1));
  const std::string path = ::testing::TempDir() + "/flyt_library_" + std::to_string(::getpid());
  std::ofstream(path) << kBasicPtx;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuLibraryLoadFromFile(&made, path.c_str(), nullptr, nullptr, 0, &option, &value, 1));
  std::filesystem::remove(path);
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuLibraryUnload(nullptr));
}

TEST_F(LibraryTest, NoKernelAndNoVariableHasAnEmptyName) {
  CUkernel found = nullptr;
  CUdeviceptr address = 0;
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuLibraryGetKernel(&found, library, ""));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuLibraryGetGlobal(&address, nullptr, library, ""));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuLibraryGetManaged(&address, nullptr, library, ""));
}

TEST_F(LibraryTest, ABrokenTextFailsAtItsFirstUse) {
  CUlibrary made = nullptr;
  CUkernel found = nullptr;
  CU_OK(cu().cuLibraryLoadData(&made, kUnknownInstructionPtx, nullptr, nullptr, 0, nullptr, nullptr,
                               0));
  CU_IS(CUDA_ERROR_INVALID_PTX, cu().cuLibraryGetKernel(&found, made, "broken"));
}

// Also if all that there is of it is for other devices, in whatever form.
TEST_F(LibraryTest, OneWithoutCodeForTheDeviceFailsAtItsFirstUse) {
  constexpr std::uint32_t kOtherDevice = 30;
  for (const cuda::FatbinFileKind kind :
       {cuda::FatbinFileKind::kElf, cuda::FatbinFileKind::kOther}) {
    cuda::FatbinWriter writer;
    writer.add(kind, kOtherDevice, 0, flyt::bytes_of("for others"));
    const std::vector<std::byte> code = writer.finish();
    CUlibrary made = nullptr;
    CUkernel found = nullptr;
    CU_OK(cu().cuLibraryLoadData(&made, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cu().cuLibraryGetKernel(&found, made, "k"));
    CU_OK(cu().cuLibraryUnload(made));
  }
}

TEST_F(LibraryTest, NeedsNoCurrentContextToLoad) {
  CU_OK(cu().cuCtxSetCurrent(nullptr));
  CUlibrary made = nullptr;
  CU_OK(cu().cuLibraryLoadData(&made, kBasicPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel found = nullptr;
  CU_OK(cu().cuLibraryGetKernel(&found, made, "empty"));
  CU_OK(cu().cuLibraryUnload(made));
  CU_OK(cu().cuCtxSetCurrent(context));
}

}  // namespace
}  // namespace flyt::conformance
