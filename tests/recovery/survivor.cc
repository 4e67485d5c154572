#include "tests/recovery/survivor.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/random.h"
#include "tests/support/cuda_table.h"

namespace flyt::tests {
namespace {

constexpr const char* kPtx = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry add_one(.param .u64 data)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [data];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mad.lo.u32 %r1, %r3, %r4, %r1;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r2, [%rd4];
  add.s32 %r2, %r2, 1;
  st.global.u32 [%rd4], %r2;
  ret;
}
)";

// Code that remembers.
constexpr const char* kPtxWithVariable = R"(.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter;
.visible .entry count()
{
  .reg .b32 %r<2>;
  ld.global.u32 %r1, [counter];
  add.s32 %r1, %r1, 1;
  st.global.u32 [counter], %r1;
  ret;
}
)";

constexpr std::uint32_t kWordsOfKernel = 256;

// Small ones share a block, large ones have their own.
constexpr std::array<std::size_t, 8> kSizes = {4096,       1000,        512 * kKiB, 3 * kMiB,
                                               300 * kKiB, 1024 * kKiB, 8 * kMiB,   12'345};

class Survivor {
 public:
  explicit Survivor(std::uint64_t seed) : cu_(client_table()), random_(seed) {}

  // A CUresult in words of the tests.
  static std::string text(CUresult result) { return std::to_string(static_cast<int>(result)); }

  std::string set_up() {
    std::string wrong;
    const auto must = [&](CUresult result, const char* what) {
      if (result != CUDA_SUCCESS && wrong.empty()) wrong = std::string(what) + " " + text(result);
    };
    must(cu_.cuInit(0), "cuInit");
    if (!wrong.empty()) return wrong;
    must(cu_.cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
    must(cu_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    must(cu_.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048), "cuCtxSetLimit");
    must(cu_.cuModuleLoadData(&module_, kPtx), "cuModuleLoadData");
    must(cu_.cuModuleGetFunction(&add_, module_, "add_one"), "cuModuleGetFunction");
    must(cu_.cuFuncSetAttribute(add_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096),
         "cuFuncSetAttribute");
    must(cu_.cuLibraryLoadData(&library_, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0),
         "cuLibraryLoadData");
    must(cu_.cuLibraryGetKernel(&kernel_, library_, "add_one"), "cuLibraryGetKernel");
    must(cu_.cuKernelGetFunction(&kernel_function_, kernel_), "cuKernelGetFunction");
    for (CUstream& stream : streams_) {
      must(cu_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
    for (CUevent& event : events_) must(cu_.cuEventCreate(&event, 0), "cuEventCreate");
    must(cu_.cuMemHostAlloc(&pinned_, kWordsOfKernel * 4, CU_MEMHOSTALLOC_DEVICEMAP * 0),
         "cuMemHostAlloc");
    must(cu_.cuMemAlloc_v2(&word_, 4), "cuMemAlloc");
    must(cu_.cuMemsetD32_v2(word_, 0, 1), "cuMemsetD32");
    memory_.clear();
    for (const std::size_t size : kSizes) {
      CUdeviceptr address = 0;
      must(cu_.cuMemAlloc_v2(&address, size), "cuMemAlloc");
      if (!wrong.empty()) return wrong;
      fill(address, size);
    }
    must(cu_.cuCtxSynchronize(), "cuCtxSynchronize");
    return wrong.empty() ? "ok" : wrong;
  }

  // All memory is as it was left.
  std::string verify() {
    for (const auto& [address, expected] : memory_) {
      std::vector<std::uint8_t> found(expected.size());
      const CUresult result = cu_.cuMemcpyDtoH_v2(found.data(), address, found.size());
      if (result != CUDA_SUCCESS) return "cuMemcpyDtoH " + text(result);
      if (found != expected) return "memory of " + std::to_string(found.size()) + " changed";
    }
    return "ok";
  }

  // Uses everything that there is.
  std::string use() {
    if (std::string wrong = verify(); wrong != "ok") return wrong;
    for (const CUfunction function : {add_, kernel_function_}) {
      for (std::size_t i = 0; i < streams_.size(); ++i) {
        if (std::string wrong = launch(function, streams_[i], events_[i]); wrong != "ok") {
          return wrong;
        }
      }
    }
    int shared = 0;
    std::size_t stack = 0;
    CUresult result =
        cu_.cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, add_);
    if (result == CUDA_SUCCESS) result = cu_.cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE);
    if (result != CUDA_SUCCESS || shared != 4096 || stack != 2048) return "attributes changed";
    return churn();
  }

  std::string info() {
    std::size_t available = 0;
    std::size_t total = 0;
    const CUresult result = cu_.cuMemGetInfo_v2(&available, &total);
    return result == CUDA_SUCCESS ? std::to_string(total - available) : "failed " + text(result);
  }

  // A value that nobody writes.
  std::string hang() {
    const CUresult result =
        cu_.cuStreamWaitValue32_v2(streams_[0], word_, 1, CU_STREAM_WAIT_VALUE_EQ);
    return text(result);
  }
  // Behind that, memory gets other contents.
  std::string paint() {
    auto& [address, expected] = *memory_.rbegin();
    std::fill(expected.begin(), expected.end(), std::uint8_t{7});
    return text(cu_.cuMemsetD8Async(address, 7, expected.size(), streams_[0]));
  }
  std::string release() {
    const CUresult result = cu_.cuMemsetD32Async(word_, 1, 1, streams_[1]);
    return result == CUDA_SUCCESS ? sync() : text(result);
  }
  std::string sync() { return text(cu_.cuCtxSynchronize()); }

  // Memory of the context that has an error, by way of another one.
  std::string rescue() {
    CUcontext other = nullptr;
    CUresult result = cu_.cuCtxCreate_v2(&other, 0, 0);
    if (result != CUDA_SUCCESS) return "cuCtxCreate " + text(result);
    std::string found = verify();
    result = cu_.cuCtxDestroy_v2(other);
    cu_.cuCtxSetCurrent(context_);
    return result == CUDA_SUCCESS ? found : "cuCtxDestroy " + text(result);
  }
  std::string reset() {
    const CUresult result = cu_.cuDevicePrimaryCtxReset_v2(0);
    return result == CUDA_SUCCESS ? set_up() : "cuDevicePrimaryCtxReset " + text(result);
  }

  // Things that cannot be made again.
  std::string load_variable() {
    CUmodule module = nullptr;
    return text(cu_.cuModuleLoadData(&module, kPtxWithVariable));
  }
  std::string make_array() {
    CUarray array = nullptr;
    CUDA_ARRAY_DESCRIPTOR description{};
    description.Width = 16;
    description.Height = 16;
    description.Format = CU_AD_FORMAT_FLOAT;
    description.NumChannels = 1;
    return text(cu_.cuArrayCreate_v2(&array, &description));
  }
  std::string allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    const CUresult result = cu_.cuMemAlloc_v2(&address, bytes);
    if (result != CUDA_SUCCESS) return text(result);
    std::vector<std::uint8_t> edge(kMiB, 0x5a);
    cu_.cuMemcpyHtoD_v2(address, edge.data(), edge.size());
    cu_.cuMemcpyHtoD_v2(address + bytes - edge.size(), edge.data(), edge.size());
    edges_.push_back({address, bytes});
    return sync();
  }
  // How long the next call takes, in microseconds, and whether the edges of what allocate() made
  // are there.
  std::string time_next() {
    const Instant start = system_clock().now();
    std::size_t available = 0;
    std::size_t total = 0;
    const CUresult result = cu_.cuMemGetInfo_v2(&available, &total);
    const Duration took = system_clock().now() - start;
    if (result != CUDA_SUCCESS) return "failed " + text(result);
    for (const auto& [address, bytes] : edges_) {
      std::vector<std::uint8_t> edge(kMiB);
      for (const std::uint64_t offset : {std::uint64_t{0}, bytes - edge.size()}) {
        cu_.cuMemcpyDtoH_v2(edge.data(), address + offset, edge.size());
        const bool same =
            std::all_of(edge.begin(), edge.end(), [](std::uint8_t byte) { return byte == 0x5a; });
        if (!same) return "memory changed";
      }
    }
    return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(took).count());
  }

 private:
  void fill(CUdeviceptr address, std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random_.next());
    cu_.cuMemcpyHtoD_v2(address, bytes.data(), size);
    memory_[address] = std::move(bytes);
  }

  std::string launch(CUfunction function, CUstream stream, CUevent event) {
    const CUdeviceptr address = memory_.begin()->first;
    std::vector<std::uint8_t>& expected = memory_.begin()->second;
    void* parameters[] = {const_cast<CUdeviceptr*>(&address)};
    CUresult result = cu_.cuLaunchKernel(function, kWordsOfKernel / 32, 1, 1, 32, 1, 1, 0, stream,
                                         parameters, nullptr);
    if (result == CUDA_SUCCESS) result = cu_.cuEventRecord(event, stream);
    if (result == CUDA_SUCCESS) {
      result = cu_.cuMemcpyDtoHAsync_v2(pinned_, address, 4096 / 4, stream);
    }
    if (result == CUDA_SUCCESS) result = cu_.cuEventSynchronize(event);
    if (result == CUDA_SUCCESS) result = cu_.cuStreamSynchronize(stream);
    if (result != CUDA_SUCCESS) return "launch " + text(result);
    for (std::size_t i = 0; i < kWordsOfKernel && i * 4 + 4 <= expected.size(); ++i) {
      std::uint32_t word = 0;
      std::memcpy(&word, expected.data() + i * 4, 4);
      ++word;
      std::memcpy(expected.data() + i * 4, &word, 4);
    }
    if (std::memcmp(pinned_, expected.data(), 4096 / 4) != 0) return "a kernel's result was wrong";
    return verify_first();
  }
  std::string verify_first() {
    const auto& [address, expected] = *memory_.begin();
    std::vector<std::uint8_t> found(expected.size());
    const CUresult result = cu_.cuMemcpyDtoH_v2(found.data(), address, found.size());
    if (result != CUDA_SUCCESS) return "cuMemcpyDtoH " + text(result);
    return found == expected ? "ok" : "a kernel's memory was wrong";
  }

  // What there is can go and come.
  std::string churn() {
    const std::size_t victim = 1 + random_.below(memory_.size() - 1);
    const auto at = std::next(memory_.begin(), static_cast<std::ptrdiff_t>(victim));
    const std::size_t size = at->second.size();
    CUresult result = cu_.cuMemFree_v2(at->first);
    memory_.erase(at);
    CUdeviceptr address = 0;
    if (result == CUDA_SUCCESS) result = cu_.cuMemAlloc_v2(&address, size);
    if (result != CUDA_SUCCESS) return "memory " + text(result);
    fill(address, size);
    const std::size_t which = random_.below(streams_.size());
    result = cu_.cuStreamDestroy_v2(streams_[which]);
    if (result == CUDA_SUCCESS) result = cu_.cuStreamCreate(&streams_[which], 0);
    if (result == CUDA_SUCCESS) result = cu_.cuEventDestroy_v2(events_[which]);
    if (result == CUDA_SUCCESS) {
      result = cu_.cuEventCreate(&events_[which], CU_EVENT_DISABLE_TIMING);
    }
    if (result == CUDA_SUCCESS) result = cu_.cuCtxSynchronize();
    return result == CUDA_SUCCESS ? "ok" : "churn " + text(result);
  }

  const driver::Table cu_;
  Random random_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction add_ = nullptr;
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
  CUfunction kernel_function_ = nullptr;
  std::array<CUstream, 3> streams_{};
  std::array<CUevent, 3> events_{};
  void* pinned_ = nullptr;
  CUdeviceptr word_ = 0;
  std::map<CUdeviceptr, std::vector<std::uint8_t>> memory_;
  std::vector<std::pair<CUdeviceptr, std::uint64_t>> edges_;
};

std::string answer(Survivor& survivor, const std::string& line) {
  std::istringstream words(line);
  std::string what;
  std::size_t bytes = 0;
  words >> what >> bytes;
  if (what == "verify") return survivor.verify();
  if (what == "use") return survivor.use();
  if (what == "info") return survivor.info();
  if (what == "hang") return survivor.hang();
  if (what == "paint") return survivor.paint();
  if (what == "release") return survivor.release();
  if (what == "sync") return survivor.sync();
  if (what == "rescue") return survivor.rescue();
  if (what == "reset") return survivor.reset();
  if (what == "variable") return survivor.load_variable();
  if (what == "array") return survivor.make_array();
  if (what == "allocate") return survivor.allocate(bytes);
  if (what == "next") return survivor.time_next();
  return "unknown";
}

}  // namespace

int run_survivor(const std::string&, std::uint64_t seed) {
  Survivor survivor(seed);
  const std::string ready = survivor.set_up();
  std::cout << (ready == "ok" ? "ready" : ready) << std::endl;
  if (ready != "ok") return 1;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(survivor, line) << std::endl;
  }
  return 0;
}

}  // namespace flyt::tests
