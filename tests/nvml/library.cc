#include "tests/nvml/library.h"

#include <dlfcn.h>
#include <stdlib.h>

namespace flyt::tests {
namespace {

void* library() {
  static void* const loaded =
      ::dlopen(built_library("client/libnvidia-ml.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  return loaded;
}

}  // namespace

const driver::NvmlTable& nvml() {
  static const driver::NvmlTable table = [] {
    driver::NvmlTable made;
    driver::fill(
        made, [](void* from, const char* name) { return ::dlsym(from, name); }, library(),
        [](void*, std::string_view name) { ADD_FAILURE() << name << " is not exported"; }, nullptr);
    return made;
  }();
  return table;
}

void* nvml_export(const char* name) { return ::dlsym(library(), name); }

std::string listen_at(const std::string& transport) {
  return transport == "tcp" ? "tcp://127.0.0.1:0" : "";
}

void NvmlTest::SetUp() {
  ::setenv("FLYT_SOFTGPU_DEVICES", "2", 1);
  ::setenv("FLYT_SOFTGPU_MEMORY", "1G", 1);
  ASSERT_NE(library(), nullptr) << ::dlerror();
  const Status started =
      server_.start({.program = server_program(), .listen = listen_at(GetParam())});
  ASSERT_TRUE(started.ok()) << started.error().message;
  ::setenv("FLYT_SERVER", server_.url().c_str(), 1);
}

void NvmlTest::TearDown() {
  while (nvml().nvmlShutdown() == NVML_SUCCESS) {
  }
}

void NvmlTest::init() { ASSERT_EQ(nvml().nvmlInit_v2(), NVML_SUCCESS) << server_.log(); }

nvmlDevice_t NvmlTest::device(unsigned int index) {
  nvmlDevice_t found = nullptr;
  EXPECT_EQ(nvml().nvmlDeviceGetHandleByIndex_v2(index, &found), NVML_SUCCESS);
  return found;
}

}  // namespace flyt::tests
