#include "bench/worker.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <vector>

#include "base/bytes.h"
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

// An empty kernel, and a stream to launch it in.
class Launcher {
 public:
  explicit Launcher(const Session& session) : cu_(session.cu) {
    Session::need(cu_.cuMemAlloc_v2(&value_, kValueBytes), "cuMemAlloc");
    Session::need(cu_.cuMemHostAlloc(&result_, kValueBytes, 0), "cuMemHostAlloc");
    Session::need(cu_.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    Session::need(cu_.cuModuleLoadData(&module_, kEmptyKernel), "cuModuleLoadData");
    Session::need(cu_.cuModuleGetFunction(&empty_, module_, "empty"), "cuModuleGetFunction");
    Session::need(cu_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  ~Launcher() {
    Session::need(cu_.cuStreamDestroy_v2(stream_), "cuStreamDestroy");
    Session::need(cu_.cuModuleUnload(module_), "cuModuleUnload");
    Session::need(cu_.cuEventDestroy_v2(event_), "cuEventDestroy");
    Session::need(cu_.cuMemFreeHost(result_), "cuMemFreeHost");
    Session::need(cu_.cuMemFree_v2(value_), "cuMemFree");
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  bool launch() const {
    return cu_.cuLaunchKernel(empty_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr) ==
           CUDA_SUCCESS;
  }
  bool wait() const { return cu_.cuStreamSynchronize(stream_) == CUDA_SUCCESS; }
  bool ask() const {
    std::size_t available = 0;
    std::size_t total = 0;
    return cu_.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS;
  }
  // As frameworks read one value.
  bool item() const {
    return cu_.cuMemcpyDtoHAsync_v2(result_, value_, kValueBytes, stream_) == CUDA_SUCCESS &&
           wait();
  }
  // Work, and looking whether it is done until it is.
  bool poll() const {
    if (!launch() || cu_.cuEventRecord(event_, stream_) != CUDA_SUCCESS) return false;
    CUresult result = CUDA_ERROR_NOT_READY;
    while (result == CUDA_ERROR_NOT_READY) result = cu_.cuEventQuery(event_);
    return result == CUDA_SUCCESS;
  }

 private:
  static constexpr std::size_t kValueBytes = 4;

  const tests::CudaLibrary& cu_;
  CUdeviceptr value_ = 0;
  void* result_ = nullptr;
  CUevent event_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction empty_ = nullptr;
  CUstream stream_ = nullptr;
};

// Bursts that the server has finished before the next begins: time of the calls, and processor time
// of this process, all its threads together.
void measure_bursts(const Launcher& launcher, int bursts) {
  constexpr int kBurst = 100;
  std::vector<double> wall;
  std::vector<double> processor;
  for (int burst = 0; burst < bursts; ++burst) {
    const double before = process_cpu_ns();
    const Stopwatch watch;
    for (int i = 0; i < kBurst; ++i) launcher.launch();
    wall.push_back(watch.us() * 1000 / kBurst);
    processor.push_back((process_cpu_ns() - before) / kBurst);
    launcher.wait();
  }
  print("post_ns", median_of(wall));
  print("post_cpu_ns", median_of(processor));
}

// The median of a few runs: a processor of a virtual machine may be slow for a while.
void measure_sustained(const Launcher& launcher, int many) {
  constexpr int kRuns = 5;
  std::vector<double> rates;
  for (int run = 0; run < kRuns; ++run) {
    const Stopwatch watch;
    for (int i = 0; i < many; ++i) launcher.launch();
    launcher.wait();
    rates.push_back(many / watch.us() * 1e6);
  }
  print("launches_per_s", median_of(rates));
}

void measure_waits(const Launcher& launcher, int count) {
  print("launch_sync_us",
        median_us(20, count, [&] { return launcher.launch() && launcher.wait(); }));
  print("wait_us", median_us(20, count, [&] { return launcher.ask(); }));
  print("item_us", median_us(20, count, [&] { return launcher.item(); }));
  print("poll_us", median_us(20, count, [&] { return launcher.poll(); }));
}

// Launches while the program has managed memory, which any of them could use.
void measure_managed(const Session& session, const Launcher& launcher) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  constexpr int kRuns = 10;
  constexpr int kBurst = 5;
  CUdeviceptr memory = 0;
  Session::need(session.cu.cuMemAllocManaged(&memory, kBytes, CU_MEM_ATTACH_GLOBAL),
                "cuMemAllocManaged");
  std::memset(pointer_at(memory), 1, kBytes);
  launcher.launch();
  launcher.wait();
  std::vector<double> posts;
  for (int run = 0; run < kRuns; ++run) {
    const Stopwatch watch;
    for (int i = 0; i < kBurst; ++i) launcher.launch();
    posts.push_back(watch.us() * 1000 / kBurst);
    launcher.wait();
  }
  print("post_managed_ns", median_of(posts));
  print("managed_sync_us",
        median_us(kRuns, kBurst, [&] { return launcher.launch() && launcher.wait(); }));
  Session::need(session.cu.cuMemFree_v2(memory), "cuMemFree");
}

void measure_launches(const Session& session, bool quick) {
  const Launcher launcher(session);
  measure_bursts(launcher, quick ? 20 : 100);
  measure_sustained(launcher, quick ? 2000 : 20000);
  measure_waits(launcher, quick ? 20 : 100);
  measure_managed(session, launcher);
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

// Copies of the largest size with buffers that stay: pageable and page-locked, each way.
class CopyRounds {
 public:
  explicit CopyRounds(const Session& session) : cu_(session.cu), pageable_(kBytes, 1) {
    Session::need(cu_.cuMemAlloc_v2(&device_, kBytes), "cuMemAlloc");
    Session::need(cu_.cuMemHostAlloc(&pinned_, kBytes, 0), "cuMemHostAlloc");
    std::memset(pinned_, 1, kBytes);
    for (const bool pinned : {false, true}) copy(true, pinned), copy(false, pinned);
  }
  ~CopyRounds() {
    Session::need(cu_.cuMemFreeHost(pinned_), "cuMemFreeHost");
    Session::need(cu_.cuMemFree_v2(device_), "cuMemFree");
  }
  CopyRounds(const CopyRounds&) = delete;
  CopyRounds& operator=(const CopyRounds&) = delete;

  void measure() {
    for (const bool pinned : {false, true}) {
      for (const bool to_device : {true, false}) {
        std::vector<double> times;
        for (int i = 0; i < 3; ++i) times.push_back(copy(to_device, pinned));
        print(copy_name(to_device, pinned, kBytes), median_of(times));
      }
    }
  }

 private:
  static constexpr std::size_t kBytes = std::end(kCopySizes)[-1];

  double copy(bool to_device, bool pinned) {
    void* const host = pinned ? pinned_ : pageable_.data();
    const Stopwatch watch;
    Session::need(to_device ? cu_.cuMemcpyHtoD_v2(device_, host, kBytes)
                            : cu_.cuMemcpyDtoH_v2(host, device_, kBytes),
                  "cuMemcpy");
    Session::need(cu_.cuCtxSynchronize(), "cuCtxSynchronize");
    return watch.us();
  }

  const tests::CudaLibrary& cu_;
  std::vector<char> pageable_;
  void* pinned_ = nullptr;
  CUdeviceptr device_ = 0;
};

// Few repeats: another process, of another transport, is to have its turn soon.
void run_rounds(const Session& session) {
  const Launcher launcher(session);
  std::optional<CopyRounds> copies;
  std::string asked;
  while (std::getline(std::cin, asked)) {
    bool known = true;
    if (asked == "launches") {
      measure_bursts(launcher, 40);
      measure_sustained(launcher, 20000);
      measure_waits(launcher, 15);
    } else if (asked == "copies") {
      if (!copies) copies.emplace(session);
      copies->measure();
    } else {
      known = false;
    }
    print("done", known ? 1 : 0);
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
  if (work == Work::kRounds) run_rounds(session);
  Session::need(table->cuMemFree_v2(first), "cuMemFree");
  return 0;
}

}  // namespace flyt::bench
