// The driver's log of errors.
#include <dlfcn.h>

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

// What only these tests call.
struct LogsCalls {
  Call<decltype(driver::Table::cuLogsCurrent)> cuLogsCurrent{"cuLogsCurrent"};
  Call<decltype(driver::Table::cuLogsDumpToFile)> cuLogsDumpToFile{"cuLogsDumpToFile"};
  Call<decltype(driver::Table::cuLogsDumpToMemory)> cuLogsDumpToMemory{"cuLogsDumpToMemory"};
  Call<decltype(driver::Table::cuLogsRegisterCallback)> cuLogsRegisterCallback{
      "cuLogsRegisterCallback"};
  Call<decltype(driver::Table::cuLogsUnregisterCallback)> cuLogsUnregisterCallback{
      "cuLogsUnregisterCallback"};

  LogsCalls() {
    bind(cuLogsCurrent);
    bind(cuLogsDumpToFile);
    bind(cuLogsDumpToMemory);
    bind(cuLogsRegisterCallback);
    bind(cuLogsUnregisterCallback);
  }
  template <class One>
  static void bind(One& call) {
    call.bind(::dlsym(cu().library, call.name()));
  }
};

const LogsCalls& logs() {
  static const LogsCalls calls;
  return calls;
}

using LogsTest = ContextTest;

TEST_F(LogsTest, NothingIsNewBehindTheEnd) {
  CUlogIterator end = 0;
  char text[1024] = "unchanged";
  std::size_t size = sizeof text;
  CU_OK(logs().cuLogsCurrent(&end, 0));
  CU_OK(logs().cuLogsDumpToMemory(&end, text, &size, 0));
  EXPECT_EQ(0u, size);
  EXPECT_STREQ("unchanged", text);
}

TEST_F(LogsTest, ACallbackIsRegisteredOnceAndUnregisteredOnce) {
  CUlogsCallbackHandle handle = nullptr;
  const auto ignore = [](void*, CUlogLevel, char*, std::size_t) {};
  CU_OK(logs().cuLogsRegisterCallback(ignore, nullptr, &handle));
  EXPECT_NE(nullptr, handle);
  CU_OK(logs().cuLogsUnregisterCallback(handle));
}

TEST_F(LogsTest, CodeThatIsRefusedIsNamed) {
  CUlogIterator end = 0;
  CU_OK(logs().cuLogsCurrent(&end, 0));
  CUmodule module = nullptr;
  CU_IS(CUDA_ERROR_INVALID_PTX, cu().cuModuleLoadData(&module, kUnknownInstructionPtx));
  char text[1024] = "";
  std::size_t size = sizeof text;
  CU_OK(logs().cuLogsDumpToMemory(&end, text, &size, 0));
  EXPECT_NE(std::string::npos, std::string(text, size).find("frobnicate")) << text;
}

TEST_F(LogsTest, AFileIsWritten) {
  char name[] = "/tmp/flyt-logs-XXXXXX";
  const int file = ::mkstemp(name);
  ASSERT_GE(file, 0);
  ::close(file);
  CU_IS(CUDA_SUCCESS, logs().cuLogsDumpToFile(nullptr, name, 0));
  EXPECT_EQ(0, ::unlink(name));
}

TEST_F(LogsTest, ArgumentsAreChecked) {
  CUlogIterator iterator = 0;
  std::vector<char> text(1 << 16);
  std::size_t size = text.size();
  CU_IS(CUDA_ERROR_INVALID_VALUE, logs().cuLogsCurrent(nullptr, 0));
  CU_OK(logs().cuLogsCurrent(&iterator, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, logs().cuLogsRegisterCallback(nullptr, nullptr, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, logs().cuLogsDumpToFile(nullptr, nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, logs().cuLogsDumpToMemory(nullptr, nullptr, &size, 0));
  // What was refused may have been logged.
  CU_OK(logs().cuLogsCurrent(&iterator, 0));
  CU_OK(logs().cuLogsDumpToMemory(&iterator, text.data(), &size, 1));
}

}  // namespace
}  // namespace flyt::conformance
