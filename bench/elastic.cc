#include "bench/elastic.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bench/stopwatch.h"
#include "control/lease/control_client.h"
#include "driver/table.h"

namespace flyt::bench {
namespace {

// `fma`: eight chains of `rounds` steps in each thread. `step`: x = x * 1664525 + constant, so that
// what comes out of turn changes all that follows. `where`: on which multiprocessor a block ran,
// after a while, so that all of them get some.
constexpr const char* kCode = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry fma(.param .u64 out, .param .u32 rounds)
{
  .reg .f32 %f<9>; .reg .u32 %r<4>; .reg .u64 %rd<2>; .reg .pred %p;
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, 0;
  mov.f32 %f0, 0f3F000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
  mov.f32 %f4, %f0; mov.f32 %f5, %f0; mov.f32 %f6, %f0; mov.f32 %f7, %f0;
again:
  fma.rn.f32 %f0, %f0, %f0, %f0; fma.rn.f32 %f1, %f1, %f1, %f1;
  fma.rn.f32 %f2, %f2, %f2, %f2; fma.rn.f32 %f3, %f3, %f3, %f3;
  fma.rn.f32 %f4, %f4, %f4, %f4; fma.rn.f32 %f5, %f5, %f5, %f5;
  fma.rn.f32 %f6, %f6, %f6, %f6; fma.rn.f32 %f7, %f7, %f7, %f7;
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p, %r2, %r1;
  @%p bra again;
  add.f32 %f0, %f0, %f1; add.f32 %f2, %f2, %f3; add.f32 %f4, %f4, %f5; add.f32 %f6, %f6, %f7;
  add.f32 %f0, %f0, %f2; add.f32 %f4, %f4, %f6; add.f32 %f0, %f0, %f4;
  ld.param.u64 %rd1, [out];
  mov.u32 %r3, 0;
  setp.eq.u32 %p, %r1, %r3;
  @%p st.global.f32 [%rd1], %f0;
  ret;
}
.visible .entry step(.param .u64 at, .param .u32 constant)
{
  .reg .u32 %r<4>; .reg .u64 %rd<4>;
  mov.u32 %r0, %tid.x;
  ld.param.u64 %rd1, [at];
  ld.param.u32 %r1, [constant];
  mul.wide.u32 %rd2, %r0, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r2, [%rd3];
  mul.lo.u32 %r2, %r2, 1664525;
  add.u32 %r2, %r2, %r1;
  st.global.u32 [%rd3], %r2;
  ret;
}
.visible .entry where(.param .u64 out, .param .u32 rounds)
{
  .reg .u32 %r<5>; .reg .u64 %rd<4>; .reg .pred %p;
  mov.u32 %r2, 0;
  ld.param.u32 %r3, [rounds];
again:
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p, %r2, %r3;
  @%p bra again;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %smid;
  ld.param.u64 %rd1, [out];
  mul.wide.u32 %rd2, %r0, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
  ret;
}
)";

constexpr unsigned kWords = 32;
constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksOfOne = 8;  // On each multiprocessor at once.

using Sms = std::set<std::uint32_t>;
using Groups = std::vector<std::uint32_t>;

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void print(const std::string& name, double value) {
  std::printf("%s %.4f\n", name.c_str(), value);
  std::fflush(stdout);
}

double at_share(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(last * share)];
}

void print_times(const std::string& name, const std::vector<double>& times) {
  if (times.empty()) return;
  print(name + "_median_ms", at_share(times, 0.5));
  print(name + "_p99_ms", at_share(times, 0.99));
  print(name + "_max_ms", at_share(times, 1));
}

class Gpu {
 public:
  explicit Gpu(const std::string& path) {
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    driver::fill(
        cu, [](void* from, const char* name) { return ::dlsym(from, name); }, library,
        [](void*, std::string_view) {}, nullptr);
    must(cu.cuInit(0), "cuInit");
    must(cu.cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
    must(cu.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    must(cu.cuModuleLoadData(&module_, kCode), "cuModuleLoadData");
    int count = 0;
    must(cu.cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
         "cuDeviceGetAttribute");
    sms = static_cast<unsigned>(count);
  }

  static void must(CUresult result, const std::string& call) {
    if (result != CUDA_SUCCESS) {
      throw std::runtime_error(call + ": error " + std::to_string(static_cast<int>(result)));
    }
  }
  CUfunction function(const char* name) const {
    CUfunction found = nullptr;
    must(cu.cuModuleGetFunction(&found, module_, name), "cuModuleGetFunction");
    return found;
  }
  CUdeviceptr memory(std::size_t bytes) const {
    CUdeviceptr address = 0;
    must(cu.cuMemAlloc_v2(&address, bytes), "cuMemAlloc");
    must(cu.cuMemsetD8_v2(address, 0, bytes), "cuMemsetD8");
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    return address;
  }
  CUstream stream() const {
    CUstream made = nullptr;
    must(cu.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return made;
  }
  void launch(CUfunction kernel, unsigned blocks, unsigned threads, CUstream stream,
              CUdeviceptr address, std::uint32_t number) const {
    void* parameters[] = {&address, &number};
    must(cu.cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr),
         "cuLaunchKernel");
  }
  void enter() const { must(cu.cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

  driver::Table cu;
  unsigned sms = 0;

 private:
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
};

// Launches that are a few milliseconds long each, whatever the GPU, two at a time.
void measure_arithmetic(const Gpu& gpu, double ms) {
  const CUfunction fma = gpu.function("fma");
  const CUdeviceptr out = gpu.memory(4);
  const CUstream stream = gpu.stream();
  const unsigned blocks = gpu.sms * kBlocksOfOne * 4;
  std::uint32_t rounds = 8;
  const auto run = [&](unsigned count) {
    const Stopwatch watch;
    for (unsigned i = 0; i < count; ++i) gpu.launch(fma, blocks, kThreads, stream, out, rounds);
    Gpu::must(gpu.cu.cuStreamSynchronize(stream), "cuStreamSynchronize");
    return watch.us() / 1000;
  };
  run(1);
  while (run(1) < 5 && rounds < (1U << 24)) rounds *= 2;
  run(3);  // Clocks have risen.
  double took = 0;
  double launches = 0;
  for (const Stopwatch whole; whole.us() / 1000 < ms;) {
    took += run(4);
    launches += 4;
  }
  print("sms", gpu.sms);
  print("fma_per_s", launches * blocks * kThreads * rounds * 8 / took * 1000);
  Gpu::must(gpu.cu.cuStreamDestroy_v2(stream), "cuStreamDestroy");
  Gpu::must(gpu.cu.cuMemFree_v2(out), "cuMemFree");
}

// A thread that works until it is destroyed; what it throws is told by failed().
class Load {
 public:
  virtual ~Load() = default;
  void start(const Gpu& gpu) {
    thread_ = std::thread([this, &gpu] {
      try {
        gpu.enter();
        while (!over_.load()) turn();
      } catch (const std::exception& error) {
        failed_ = error.what();
      }
    });
  }
  void stop() {
    over_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  const std::string& failed() const { return failed_; }

 protected:
  virtual void turn() = 0;

 private:
  std::atomic<bool> over_{false};
  std::string failed_;
  std::thread thread_;
};

// Steps on words of its own: kernels in a stream, or a graph of them again and again.
class Steps final : public Load {
 public:
  Steps(const Gpu& gpu, bool graph)
      : gpu_(gpu),
        step_(gpu.function("step")),
        words_(gpu.memory(kWords * 4)),
        stream_(gpu.stream()) {
    if (!graph) return;
    CUgraph captured = nullptr;
    Gpu::must(gpu.cu.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), "capture");
    for (std::uint32_t i = 0; i < kNodes; ++i) gpu_.launch(step_, 1, kWords, stream_, words_, i);
    Gpu::must(gpu.cu.cuStreamEndCapture(stream_, &captured), "cuStreamEndCapture");
    Gpu::must(gpu.cu.cuGraphInstantiateWithFlags(&exec_, captured, 0), "cuGraphInstantiate");
    Gpu::must(gpu.cu.cuGraphDestroy(captured), "cuGraphDestroy");
  }
  std::uint64_t turns() const { return turns_; }
  // Whether all was done in turn, once it is stopped.
  bool right() const {
    std::vector<std::uint32_t> found(kWords);
    Gpu::must(gpu_.cu.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    Gpu::must(gpu_.cu.cuMemcpyDtoH_v2(found.data(), words_, kWords * 4), "cuMemcpyDtoH");
    return std::all_of(found.begin(), found.end(),
                       [this](std::uint32_t word) { return word == expected_; });
  }

 private:
  static constexpr std::uint32_t kNodes = 20;

  void turn() override {
    if (exec_ != nullptr) Gpu::must(gpu_.cu.cuGraphLaunch(exec_, stream_), "cuGraphLaunch");
    for (std::uint32_t i = 0; i < kNodes; ++i) {
      if (exec_ == nullptr) gpu_.launch(step_, 1, kWords, stream_, words_, i);
      expected_ = expected_ * 1664525U + i;
    }
    if (++turns_ % 4 == 0) Gpu::must(gpu_.cu.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

  const Gpu& gpu_;
  const CUfunction step_;
  const CUdeviceptr words_;
  const CUstream stream_;
  CUgraphExec exec_ = nullptr;
  std::uint32_t expected_ = 0;
  std::uint64_t turns_ = 0;
};

// Where a kernel runs that has a block for every place there is.
class Probe {
 public:
  Probe(const Gpu& gpu, unsigned gpu_sms)
      : gpu_(gpu),
        where_(gpu.function("where")),
        blocks_(gpu_sms * 4),
        out_(gpu.memory(blocks_ * 4)),
        stream_(gpu.stream()),
        found_(blocks_) {}

  Sms look() {
    gpu_.launch(where_, blocks_, 32, stream_, out_, 200);
    Gpu::must(gpu_.cu.cuMemcpyDtoHAsync_v2(found_.data(), out_, blocks_ * 4, stream_), "copy");
    Gpu::must(gpu_.cu.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    return {found_.begin(), found_.end()};
  }
  // All that several looks find.
  Sms learn() {
    Sms all;
    for (int i = 0; i < 8; ++i) all.merge(look());
    return all;
  }

 private:
  const Gpu& gpu_;
  const CUfunction where_;
  const unsigned blocks_;
  const CUdeviceptr out_;
  const CUstream stream_;
  std::vector<std::uint32_t> found_;
};

bool within(const Sms& some, const Sms& all) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

struct Shape {
  Groups groups;
  Sms sms;
};

// More, fewer, and others.
std::vector<Shape> shapes_of(std::uint32_t groups) {
  const auto range = [](std::uint32_t first, std::uint32_t last) {
    Groups some;
    for (std::uint32_t i = first; i < last; ++i) some.push_back(i);
    return some;
  };
  const std::uint32_t half = groups / 2;
  return {{range(0, half), {}},
          {range(half, 2 * half), {}},
          {range(0, groups), {}},
          {range(0, 1), {}},
          {range(1, 2), {}}};
}

void must_set(control::ControlClient& client, const Groups& groups, Duration patience,
              Duration& took, std::uint32_t& behind) {
  const auto set = client.set_groups(groups, patience);
  if (!set) throw std::runtime_error(set.error().message);
  took = set->took;
  behind = set->behind;
}

// From the command to its answer, which comes when all sessions have moved, and to the end of the
// first kernel that began after it and ran nowhere but in the new groups.
void measure_resizes(const Gpu& gpu, control::ControlClient& client, unsigned count,
                     std::uint32_t groups) {
  constexpr Duration kPatience = std::chrono::seconds(10);
  constexpr double kEffectMsMax = 10000;
  const auto state = client.describe();
  if (!state) throw std::runtime_error(state.error().message);
  if (groups < 2) throw std::runtime_error("the GPU cannot be divided");
  std::vector<Shape> shapes = shapes_of(groups);
  Probe probe(gpu, state->gpu_sms);
  Duration took{0};
  std::uint32_t behind = 0;
  std::uint32_t late = 0;
  for (Shape& shape : shapes) {
    must_set(client, shape.groups, kPatience, took, behind);
    shape.sms = probe.learn();
  }
  Steps kernels(gpu, false);
  Steps graph(gpu, true);
  kernels.start(gpu);
  graph.start(gpu);
  std::vector<double> answered;
  std::vector<double> at_server;
  std::vector<double> effective;
  const Sms* before = &shapes.back().sms;
  for (unsigned i = 0; i < count; ++i) {
    const Shape& shape = shapes[i % shapes.size()];
    const double begun = now_ms();
    double told = 0;
    std::string refused;
    std::thread asking([&] {
      try {
        must_set(client, shape.groups, kPatience, took, behind);
      } catch (const std::exception& error) {
        refused = error.what();
      }
      told = now_ms() - begun;
    });
    double seen = 0;
    do {
      const Sms there = probe.look();
      // Where the new groups are some of the old ones, any kernel there will do.
      const bool moved =
          within(there, shape.sms) && (!within(there, *before) || within(shape.sms, *before));
      seen = now_ms() - begun;
      if (moved) break;
    } while (seen < kEffectMsMax);
    asking.join();
    if (!refused.empty()) throw std::runtime_error(refused);
    late += behind != 0 || seen >= kEffectMsMax ? 1 : 0;
    answered.push_back(told);
    at_server.push_back(static_cast<double>(took.count()) / 1e6);
    effective.push_back(seen);
    before = &shape.sms;
  }
  kernels.stop();
  graph.stop();
  for (const Steps* load : {&kernels, &graph}) {
    if (!load->failed().empty()) throw std::runtime_error(load->failed());
  }
  print("resizes", count);
  print("late", late);
  print_times("answer", answered);
  print_times("server", at_server);
  print_times("effect", effective);
  print("kernels_equal", kernels.right() ? 1 : 0);
  print("graphs_equal", graph.right() ? 1 : 0);
  print("kernels", static_cast<double>(kernels.turns()) * 20);
  print("graphs", static_cast<double>(graph.turns()));
}

Groups parse_groups(const std::string& text) {
  Groups groups;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    groups.push_back(static_cast<std::uint32_t>(std::strtoul(word.c_str(), nullptr, 10)));
  }
  return groups;
}

class Worker {
 public:
  Worker(std::string library, std::string control)
      : library_(std::move(library)), control_(std::move(control)) {}

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string what;
    std::string first;
    double number = 0;
    words >> what >> first >> number;
    if (what == "arithmetic") return measure_arithmetic(gpu(), std::strtod(first.c_str(), nullptr));
    if (what == "resize") {
      return measure_resizes(gpu(), client(),
                             static_cast<unsigned>(std::strtoul(first.c_str(), nullptr, 10)),
                             static_cast<std::uint32_t>(number));
    }
    if (what == "groups") {
      Duration took{0};
      std::uint32_t behind = 0;
      const double begun = now_ms();
      must_set(client(), parse_groups(first), std::chrono::milliseconds(static_cast<int>(number)),
               took, behind);
      print("answer_ms", now_ms() - begun);
      print("behind", behind);
      return;
    }
    throw std::runtime_error("what is " + what);
  }

 private:
  Gpu& gpu() {
    if (gpu_ == nullptr) gpu_ = std::make_unique<Gpu>(library_);
    return *gpu_;
  }
  control::ControlClient& client() {
    if (client_ != nullptr) return *client_;
    auto made = control::ControlClient::connect(control_);
    if (!made) throw std::runtime_error(made.error().message);
    client_ = std::move(made).value();
    return *client_;
  }

  const std::string library_;
  const std::string control_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<control::ControlClient> client_;
};

}  // namespace

int run_elastic(const std::string& library, const std::string& control) {
  Worker worker(library, control);
  for (std::string line; std::getline(std::cin, line);) {
    bool done = true;
    try {
      worker.obey(line);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "flyt-bench: %s: %s\n", line.c_str(), error.what());
      done = false;
    }
    print("done", done ? 1 : 0);
  }
  return EXIT_SUCCESS;
}

}  // namespace flyt::bench
