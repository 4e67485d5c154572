// What the driver-API samples share: a device with its context, the kernels, memory, and the last
// line that says whether the results were right.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/functions.h"

namespace app {

// The text of kernels.ptx.
extern const char* const kKernels;

// Ends the program with a message when a call fails.
inline void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  std::printf("%s: %s (%d)\n", what, name != nullptr ? name : "?", static_cast<int>(result));
  std::exit(2);
}
#define CHECK(call) ::app::check((call), #call)

// The first device, its primary context made current, and the kernels loaded.
class Device {
 public:
  Device() {
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device_, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context_, device_));
    CHECK(cuCtxSetCurrent(context_));
    CHECK(cuModuleLoadData(&module_, kKernels));
    char name[128] = {};
    CHECK(cuDeviceGetName(name, sizeof(name), device_));
    std::printf("device: %s\n", name);
  }
  ~Device() {
    cuModuleUnload(module_);
    cuDevicePrimaryCtxRelease_v2(device_);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  CUfunction kernel(const char* name) const {
    CUfunction function = nullptr;
    CHECK(cuModuleGetFunction(&function, module_, name));
    return function;
  }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
};

// `count` values of T in device memory.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count) : count_(count) {
    CHECK(cuMemAlloc_v2(&address_, count * sizeof(T)));
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    CHECK(cuMemcpyHtoD_v2(address_, values.data(), count_ * sizeof(T)));
  }
  ~Buffer() { cuMemFree_v2(address_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  CUdeviceptr address() const { return address_; }
  void clear() const { CHECK(cuMemsetD8_v2(address_, 0, count_ * sizeof(T))); }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    CHECK(cuMemcpyDtoH_v2(values.data(), address_, count_ * sizeof(T)));
    return values;
  }

 private:
  std::size_t count_;
  CUdeviceptr address_ = 0;
};

struct Shape {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

struct Launch {
  Shape grid;
  Shape block;
  unsigned shared_bytes = 0;
  CUstream stream = nullptr;

  template <class... Args>
  void operator()(CUfunction function, Args... args) const {
    void* parameters[] = {&args..., nullptr};
    CHECK(cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes,
                         stream, parameters, nullptr));
  }
};

// Prints the sample's last line; what main returns.
inline int finish(const char* sample, bool right, const std::string& what) {
  std::printf("%s: %s %s\n", sample, right ? "verified" : "WRONG", what.c_str());
  return right ? 0 : 1;
}

// Repeatable noise.
class Noise {
 public:
  unsigned next() {
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 8;
  }
  float unit() { return static_cast<float>(next() % 65536u) / 65536.0f; }

 private:
  unsigned state_ = 12345;
};

}  // namespace app
