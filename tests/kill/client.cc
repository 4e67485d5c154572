#include "tests/kill/client.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/random.h"
#include "tests/support/cuda_library.h"

namespace flyt::kill {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kPtx =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry add_one(.param .u64 data)\n{\n"
    "  .reg .b32 %r<4>;\n  .reg .b64 %rd<5>;\n"
    "  ld.param.u64 %rd1, [data];\n  cvta.to.global.u64 %rd2, %rd1;\n"
    "  mov.u32 %r1, %tid.x;\n  mul.wide.u32 %rd3, %r1, 4;\n  add.s64 %rd4, %rd2, %rd3;\n"
    "  ld.global.u32 %r2, [%rd4];\n  add.s32 %r3, %r2, 1;\n  st.global.u32 [%rd4], %r3;\n"
    "  ret;\n}\n";
constexpr std::size_t kBytes = 1 << 16;
// Over TCP such a copy goes by lanes.
constexpr std::size_t kLargeBytes = 3 << 20;

void do_nothing(void*) {}

// A process's CUDA state and the calls that the jobs choose from. After a call has failed, what it
// returns is still good to be passed on.
class Program {
 public:
  Program(const tests::CudaLibrary& library, std::uint64_t seed) : cu_(library), random_(seed) {}

  CUresult open() {
    CUresult result = cu_.cuInit(0);
    if (result == CUDA_SUCCESS) result = cu_.cuDevicePrimaryCtxRetain(&context_, 0);
    if (result == CUDA_SUCCESS) result = cu_.cuCtxSetCurrent(context_);
    if (result == CUDA_SUCCESS) result = cu_.cuModuleLoadData(&module_, kPtx);
    if (result == CUDA_SUCCESS) result = cu_.cuModuleGetFunction(&add_, module_, "add_one");
    if (result == CUDA_SUCCESS) result = cu_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) result = cu_.cuEventCreate(&event_, 0);
    if (result == CUDA_SUCCESS) result = cu_.cuMemAlloc_v2(&memory_, kBytes);
    if (result == CUDA_SUCCESS) result = cu_.cuMemAlloc_v2(&large_memory_, kLargeBytes);
    host_.resize(kBytes);
    large_host_.resize(kLargeBytes);
    return result;
  }

  static constexpr int kKinds = 17;
  static bool waits_for_device(int kind) { return kind == 8 || kind == 10 || kind == 11; }
  // One call of the kind, or a small group of calls that belong together.
  CUresult call(int kind) {
    switch (kind) {
      case 0:
        return launch();
      case 1:
        return cu_.cuMemcpyHtoD_v2(memory_, host_.data(), some_bytes());
      case 2:
        return cu_.cuMemcpyDtoH_v2(host_.data(), memory_, some_bytes());
      case 3:
        return cu_.cuMemcpyHtoDAsync_v2(memory_, host_.data(), some_bytes(), stream_);
      case 4:
        return cu_.cuMemsetD8Async(memory_, 1, some_bytes(), stream_);
      case 5:
        return cu_.cuEventRecord(event_, stream_);
      case 6:
        return not_ready_is_fine(cu_.cuEventQuery(event_));
      case 7:
        return cu_.cuStreamSynchronize(stream_);
      case 8:
        return cu_.cuCtxSynchronize();
      case 9:
        return cu_.cuLaunchHostFunc(stream_, do_nothing, nullptr);
      case 10:
        return allocate();
      case 11:
        return load_module();
      case 12:
        return not_ready_is_fine(cu_.cuStreamQuery(stream_));
      case 13:
        return memory_info();
      case 14:
        return cu_.cuInit(0);
      case 15:
        return cu_.cuMemcpyHtoDAsync_v2(large_memory_, large_host_.data(), kLargeBytes, stream_);
      default:
        return cu_.cuMemcpyDtoHAsync_v2(large_host_.data(), large_memory_, kLargeBytes, stream_);
    }
  }
  CUresult random_call() { return call(static_cast<int>(random_.below(kKinds))); }

  // Counts in device memory and compares.
  bool check_round(std::uint32_t rounds) {
    std::uint32_t words[32] = {};
    // In the launches' own stream: a copy from pageable memory may return before it has arrived.
    bool good = cu_.cuMemcpyHtoDAsync_v2(memory_, words, sizeof(words), stream_) == CUDA_SUCCESS;
    for (std::uint32_t i = 0; i < rounds; ++i) good = launch() == CUDA_SUCCESS && good;
    good = cu_.cuStreamSynchronize(stream_) == CUDA_SUCCESS && good;
    good = cu_.cuMemcpyDtoH_v2(words, memory_, sizeof(words)) == CUDA_SUCCESS && good;
    for (const std::uint32_t word : words) good = good && word == rounds;
    return good;
  }

  // Counts in the words of that thread. Safe from any thread.
  CUresult launch(CUstream stream, int thread = 0) {
    CUdeviceptr words = memory_ + static_cast<CUdeviceptr>(thread) * 32 * 4;
    void* parameters[] = {&words};
    return cu_.cuLaunchKernel(add_, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  }
  CUdeviceptr memory() const { return memory_; }
  CUcontext context() const { return context_; }

 private:
  CUresult launch() { return launch(stream_); }
  std::size_t some_bytes() { return 4 * (1 + random_.below(kBytes / 4)); }
  static CUresult not_ready_is_fine(CUresult result) {
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
  }
  CUresult allocate() {
    CUdeviceptr address = 0;
    const CUresult result = cu_.cuMemAlloc_v2(&address, some_bytes());
    return result == CUDA_SUCCESS ? cu_.cuMemFree_v2(address) : result;
  }
  CUresult load_module() {
    CUmodule module = nullptr;
    const CUresult result = cu_.cuModuleLoadData(&module, kPtx);
    return result == CUDA_SUCCESS ? cu_.cuModuleUnload(module) : result;
  }
  CUresult memory_info() {
    std::size_t available = 0;
    std::size_t total = 0;
    return cu_.cuMemGetInfo_v2(&available, &total);
  }

  const tests::CudaLibrary& cu_;
  Random random_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction add_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUdeviceptr memory_ = 0;
  CUdeviceptr large_memory_ = 0;
  std::vector<std::uint8_t> host_;
  std::vector<std::uint8_t> large_host_;
};

int with_program(const std::string& path, std::uint64_t seed,
                 const std::function<int(const tests::CudaLibrary&, Program&)>& job) {
  const auto library = tests::load_cuda(path);
  if (!library) {
    std::printf("cannot load: %s\n", library.error().message.c_str());
    return 2;
  }
  Program program(*library, seed);
  if (const CUresult opened = program.open(); opened != CUDA_SUCCESS) {
    std::printf("cannot open: %d\n", static_cast<int>(opened));
    return 2;
  }
  return job(*library, program);
}

void say(const char* text) {
  if (::write(1, text, std::strlen(text)) < 0) ::_exit(3);
}

std::int64_t us_since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count();
}

// A thread that waits for a value that nobody writes.
class Waiter {
 public:
  Waiter(const tests::CudaLibrary& cu, CUcontext context)
      : cu_(cu), thread_([this, context] { run(context); }) {}
  // Once the server is lost; then result and time stand.
  void join() { thread_.join(); }
  bool waiting() const { return waiting_; }
  CUresult result() const { return result_; }
  Clock::time_point ended() const { return ended_; }

 private:
  void run(CUcontext context) {
    CUstream stream = nullptr;
    CUdeviceptr word = 0;
    cu_.cuCtxSetCurrent(context);
    cu_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    cu_.cuMemAlloc_v2(&word, 4);
    cu_.cuMemsetD8Async(word, 0, 4, stream);
    cu_.cuStreamSynchronize(stream);
    cu_.cuStreamWaitValue32_v2(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ);
    waiting_ = true;
    result_ = cu_.cuStreamSynchronize(stream);
    ended_ = Clock::now();
  }

  const tests::CudaLibrary& cu_;
  std::atomic<bool> waiting_{false};
  CUresult result_ = CUDA_SUCCESS;
  Clock::time_point ended_;
  std::thread thread_;
};

int bereaved(const tests::CudaLibrary& cu, Program& program) {
  Waiter waiter(cu, program.context());
  while (!waiter.waiting()) std::this_thread::yield();
  say("ready\n");
  CUresult first = CUDA_SUCCESS;
  // Some calls may wait for the whole device, and so for the waiter: left out until the loss.
  for (int kind = 0; first == CUDA_SUCCESS; kind = (kind + 1) % Program::kKinds) {
    if (!Program::waits_for_device(kind)) first = program.call(kind);
  }
  const Clock::time_point lost = Clock::now();
  std::int64_t slowest = 0;
  int successes = 0;
  constexpr int kCalls = 20 * Program::kKinds;
  for (int i = 0; i < kCalls; ++i) {
    const Clock::time_point begin = Clock::now();
    successes += program.call(i % Program::kKinds) == CUDA_SUCCESS;
    const std::int64_t took = us_since(begin);
    slowest = std::max(slowest, took);
  }
  waiter.join();
  const auto late = std::chrono::duration_cast<std::chrono::microseconds>(waiter.ended() - lost);
  std::printf(
      "lost result=%d calls=%d successes=%d slowest_us=%lld "
      "waiter_result=%d waiter_late_us=%lld\n",
      static_cast<int>(first), kCalls, successes, static_cast<long long>(slowest),
      static_cast<int>(waiter.result()), static_cast<long long>(late.count()));
  std::fflush(stdout);
  const bool good = successes == 0 && waiter.result() != CUDA_SUCCESS;
  ::_exit(good ? 0 : 1);
}

// Threads with work in default streams of their own, which they keep until they are let go.
class Crowd {
 public:
  Crowd(const tests::CudaLibrary& cu, Program& program) : cu_(cu), program_(program) {
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this, i] { run(i + 1); });
    while (working_ != kThreads) std::this_thread::yield();
  }
  ~Crowd() { end(); }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;
  void end() {
    may_end_ = true;
    may_end_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  bool good() const { return good_ == kThreads; }

 private:
  static constexpr int kThreads = 4;
  void run(int number) {
    const bool entered = cu_.cuCtxSetCurrent(program_.context()) == CUDA_SUCCESS;
    good_ += entered && program_.launch(CU_STREAM_PER_THREAD, number) == CUDA_SUCCESS;
    ++working_;
    may_end_.wait(false);
  }

  const tests::CudaLibrary& cu_;
  Program& program_;
  std::atomic<int> working_{0};
  std::atomic<int> good_{0};
  std::atomic<bool> may_end_{false};
  std::vector<std::thread> threads_;
};

int deserted(const tests::CudaLibrary& cu, Program& program) {
  Crowd crowd(cu, program);
  if (!crowd.good()) return 2;
  say("ready\n");
  CUresult first = CUDA_SUCCESS;
  while (first == CUDA_SUCCESS) first = program.launch(CU_STREAM_PER_THREAD);
  const Clock::time_point lost = Clock::now();
  crowd.end();
  CUresult late = CUDA_SUCCESS;
  std::thread([&] { late = cu.cuStreamSynchronize(CU_STREAM_PER_THREAD); }).join();
  std::printf("lost result=%d late_result=%d ended_us=%lld.\n", static_cast<int>(first),
              static_cast<int>(late), static_cast<long long>(us_since(lost)));
  return late == CUDA_SUCCESS ? 1 : 0;
}

// Work of the main thread's that is not done when the program exits.
struct Unfinished {
  const tests::CudaLibrary& cu;
  Program& program;
  std::atomic<bool> exiting{false};

  CUresult begin() {
    const CUresult result = cu.cuLaunchHostFunc(CU_STREAM_PER_THREAD, &wait_for_exit, this);
    return result == CUDA_SUCCESS ? program.launch(CU_STREAM_PER_THREAD) : result;
  }
  static void wait_for_exit(void* data) { static_cast<Unfinished*>(data)->exiting.wait(false); }
  // What exit() calls: the stream is there still, with all that is in it, and so are some threads.
  static void finish(int, void* data) {
    auto& own = *static_cast<Unfinished*>(data);
    std::uint32_t words[32] = {};
    bool good = own.program.launch(CU_STREAM_PER_THREAD) == CUDA_SUCCESS;
    own.exiting = true;
    own.exiting.notify_all();
    // In the same stream: the legacy one would wait for streams that have ended, too.
    good = good && own.cu.cuMemcpyDtoHAsync_v2(words, own.program.memory(), sizeof(words),
                                               CU_STREAM_PER_THREAD) == CUDA_SUCCESS;
    good = good && own.cu.cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_SUCCESS &&
           words[0] == 2 && words[31] == 2;
    say(good ? "ok\n" : "the stream was not what it was\n");
    if (!good) ::_exit(1);
  }
};

int leaving(const tests::CudaLibrary& cu, Program& program) {
  const std::uint32_t words[32] = {};
  if (cu.cuMemcpyHtoD_v2(program.memory(), words, sizeof(words)) != CUDA_SUCCESS) return 2;
  Crowd ended(cu, program);
  ended.end();
  Crowd crowd(cu, program);
  if (!ended.good() || !crowd.good() || cu.cuCtxSynchronize() != CUDA_SUCCESS) return 2;
  Unfinished work{.cu = cu, .program = program};
  if (work.begin() != CUDA_SUCCESS || ::on_exit(&Unfinished::finish, &work) != 0) return 2;
  std::exit(0);
}

bool stdin_ended() {
  pollfd readable{0, POLLIN | POLLHUP, 0};
  return ::poll(&readable, 1, 0) > 0;
}

}  // namespace

int run_busy(const std::string& library, std::uint64_t seed) {
  return with_program(library, seed, [](const tests::CudaLibrary&, Program& program) {
    while (program.random_call() == CUDA_SUCCESS) say(".");
    say("a call failed\n");
    return 1;
  });
}

int run_witness(const std::string& library, std::uint64_t seed) {
  return with_program(library, seed, [](const tests::CudaLibrary&, Program& program) {
    say("ready\n");
    for (std::uint32_t round = 0; !stdin_ended(); ++round) {
      if (!program.check_round(round % 7)) {
        say("a result was wrong\n");
        return 1;
      }
    }
    say("ok\n");
    return 0;
  });
}

int run_bereaved(const std::string& library, std::uint64_t seed) {
  return with_program(library, seed, bereaved);
}

int run_deserted(const std::string& library, std::uint64_t seed) {
  return with_program(library, seed, deserted);
}

int run_leaving(const std::string& library, std::uint64_t seed) {
  return with_program(library, seed, leaving);
}

int run_info(const std::string& library) {
  return with_program(library, 1, [](const tests::CudaLibrary& cu, Program&) {
    std::size_t available = 0;
    std::size_t total = 0;
    if (cu.cuMemGetInfo_v2(&available, &total) != CUDA_SUCCESS) return 1;
    std::printf("%zu\n", available);
    return 0;
  });
}

}  // namespace flyt::kill
