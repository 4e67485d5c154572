#include "bench/worker.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/figures.h"
#include "bench/stopwatch.h"
#include "tests/support/cuda_library.h"

namespace flyt::bench {
namespace {

constexpr const char* kEmptyKernel =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry empty()\n{\n  ret;\n}\n";

void print(const std::string& name, double value) {
  std::printf("%s %.4f\n", name.c_str(), value);
  std::fflush(stdout);
}

// The driver with a context, or the end of the process.
class Session {
 public:
  explicit Session(const tests::CudaLibrary& table) : cu(table) {
    need(cu.cuInit(0), "cuInit");
    need(cu.cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
    need(cu.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  }
  ~Session() { cu.cuDevicePrimaryCtxRelease_v2(0); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  static void need(CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) return;
    std::fprintf(stderr, "flyt-bench: %s: error %d\n", call, static_cast<int>(result));
    std::exit(1);
  }

  const tests::CudaLibrary& cu;

 private:
  CUcontext context_ = nullptr;
};

void measure_launches(const Session& session, bool quick) {
  const tests::CudaLibrary& cu = session.cu;
  CUmodule module = nullptr;
  CUfunction empty = nullptr;
  CUstream stream = nullptr;
  Session::need(cu.cuModuleLoadData(&module, kEmptyKernel), "cuModuleLoadData");
  Session::need(cu.cuModuleGetFunction(&empty, module, "empty"), "cuModuleGetFunction");
  Session::need(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const auto launch = [&] {
    return cu.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) == CUDA_SUCCESS;
  };
  const auto wait = [&] { return cu.cuStreamSynchronize(stream) == CUDA_SUCCESS; };
  // Bursts that the server has finished before the next begins.
  std::vector<double> bursts;
  for (int burst = 0; burst < (quick ? 20 : 100); ++burst) {
    const Stopwatch watch;
    for (int i = 0; i < 100; ++i) launch();
    bursts.push_back(watch.us() * 1000 / 100);
    wait();
  }
  print("post_ns", median_of(bursts));
  const int many = quick ? 5000 : 50000;
  const Stopwatch watch;
  for (int i = 0; i < many; ++i) launch();
  wait();
  print("launches_per_s", many / watch.us() * 1e6);
  print("launch_sync_us", median_us(20, quick ? 20 : 100, [&] { return launch() && wait(); }));
  std::size_t available = 0;
  std::size_t total = 0;
  print("wait_us", median_us(20, quick ? 20 : 100, [&] {
          return cu.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS;
        }));
  Session::need(cu.cuStreamDestroy_v2(stream), "cuStreamDestroy");
  Session::need(cu.cuModuleUnload(module), "cuModuleUnload");
}

void measure_copies(const Session& session, std::size_t size, bool pinned, char* host) {
  const tests::CudaLibrary& cu = session.cu;
  CUdeviceptr device = 0;
  Session::need(cu.cuMemAlloc_v2(&device, size), "cuMemAlloc");
  const int samples = size <= (64 << 10) ? 20 : size <= (1 << 20) ? 10 : 3;
  const int count = size <= (64 << 10) ? 20 : 1;
  print(copy_name(true, pinned, size), median_us(samples, count, [&] {
          return cu.cuMemcpyHtoD_v2(device, host, size) == CUDA_SUCCESS &&
                 cu.cuCtxSynchronize() == CUDA_SUCCESS;
        }));
  print(copy_name(false, pinned, size), median_us(samples, count, [&] {
          return cu.cuMemcpyDtoH_v2(host, device, size) == CUDA_SUCCESS;
        }));
  Session::need(cu.cuMemFree_v2(device), "cuMemFree");
}

void measure_all_copies(const Session& session, bool quick) {
  const tests::CudaLibrary& cu = session.cu;
  std::size_t available = 0;
  std::size_t total = 0;
  Session::need(cu.cuMemGetInfo_v2(&available, &total), "cuMemGetInfo");
  for (const std::size_t size : kCopySizes) {
    if (size > available / 2 || (quick && size > (16 << 20))) continue;
    std::vector<char> pageable(size, 1);
    measure_copies(session, size, false, pageable.data());
    void* pinned = nullptr;
    Session::need(cu.cuMemHostAlloc(&pinned, size, 0), "cuMemHostAlloc");
    std::memset(pinned, 1, size);
    measure_copies(session, size, true, static_cast<char*>(pinned));
    Session::need(cu.cuMemFreeHost(pinned), "cuMemFreeHost");
  }
}

}  // namespace

int run_worker(Work work, const std::string& library, bool quick) {
  const Stopwatch watch;
  auto table = tests::load_cuda(library);
  if (!table) {
    std::fprintf(stderr, "flyt-bench: %s\n", table.error().message.c_str());
    return 1;
  }
  const Session session(*table);
  CUdeviceptr first = 0;
  Session::need(table->cuMemAlloc_v2(&first, 1 << 20), "cuMemAlloc");
  if (work == Work::kStart) print("start_ms", watch.us() / 1000);
  if (work == Work::kFigures) {
    measure_launches(session, quick);
    measure_all_copies(session, quick);
  }
  Session::need(table->cuMemFree_v2(first), "cuMemFree");
  return 0;
}

}  // namespace flyt::bench
