// Settings of GPU core dumps: kept, told, and judged.
#include <dlfcn.h>

#include <string>

#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

// What only these tests call.
struct CoredumpCalls {
  Call<decltype(driver::Table::cuCoredumpGetAttribute)> cuCoredumpGetAttribute{
      "cuCoredumpGetAttribute"};
  Call<decltype(driver::Table::cuCoredumpGetAttributeGlobal)> cuCoredumpGetAttributeGlobal{
      "cuCoredumpGetAttributeGlobal"};
  Call<decltype(driver::Table::cuCoredumpSetAttribute)> cuCoredumpSetAttribute{
      "cuCoredumpSetAttribute"};

  CoredumpCalls() {
    bind(cuCoredumpGetAttribute);
    bind(cuCoredumpGetAttributeGlobal);
    bind(cuCoredumpSetAttribute);
  }
  template <class One>
  static void bind(One& call) {
    call.bind(::dlsym(cu().library, call.name()));
  }
};

const CoredumpCalls& coredump() {
  static const CoredumpCalls calls;
  return calls;
}

using CoredumpTest = ContextTest;

TEST_F(CoredumpTest, TheDefaultsAreAsDocumented) {
  bool enabled = true;
  bool light = true;
  std::size_t size = sizeof enabled;
  CU_OK(coredump().cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &enabled, &size));
  EXPECT_FALSE(enabled);
  size = sizeof light;
  CU_OK(coredump().cuCoredumpGetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &light, &size));
  EXPECT_FALSE(light);
}

TEST_F(CoredumpTest, ANullValueAsksForTheSize) {
  std::size_t size = 0;
  CU_OK(coredump().cuCoredumpGetAttributeGlobal(CU_COREDUMP_ENABLE_ON_EXCEPTION, nullptr, &size));
  EXPECT_EQ(sizeof(bool), size);
}

TEST_F(CoredumpTest, TheDefaultFileHasNoNameYet) {
  char name[1024] = "x";
  std::size_t size = sizeof name;
  CU_OK(coredump().cuCoredumpGetAttributeGlobal(CU_COREDUMP_FILE, name, &size));
  EXPECT_STREQ("", name);
}

TEST_F(CoredumpTest, AFileNameIsKept) {
  char wished[] = "/tmp/flyt.dump";
  char name[1024] = {};
  std::size_t size = sizeof wished;
  CU_OK(coredump().cuCoredumpSetAttribute(CU_COREDUMP_FILE, wished, &size));
  size = sizeof name;
  CU_OK(coredump().cuCoredumpGetAttribute(CU_COREDUMP_FILE, name, &size));
  EXPECT_STREQ(wished, name);
}

TEST_F(CoredumpTest, ArgumentsAreChecked) {
  bool value = false;
  std::size_t size = sizeof value;
  CU_IS(CUDA_ERROR_INVALID_VALUE, coredump().cuCoredumpGetAttributeGlobal(
                                      static_cast<CUcoredumpSettings>(99), &value, &size));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        coredump().cuCoredumpGetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &value, nullptr));
}

}  // namespace
}  // namespace flyt::conformance
