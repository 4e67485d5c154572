#include "tests/conformance/sweep.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>

#include "tests/conformance/fixture.h"
#include "tests/conformance/sweep_values.h"

namespace flyt::conformance {
namespace {

constexpr const char* kSweepVariable = "FLYT_CONFORMANCE_SWEEP";

// Calls after which a process, or its thread, is not what it was.
constexpr const char* kLasting =
    "cuInit:cuCtx*:cuDevicePrimaryCtx*:cuDeviceSet*:cuMemSetMemPool:cuCoredump*:cuProfiler*:"
    "cuThreadExchange*:cuDevice*Notification:cuLogs*:cuFlush*";

// Of a kernel's node NVIDIA's driver takes the current context without looking whether there is
// one.
constexpr const char* kOnlyInAContext =
    "cuGraph*KernelNode*:cuGraphAddNode*:cuGraph*NodeSetParams*";

// Of these NVIDIA's driver dies, which would cost a worker each and tell nothing.
struct Deadly {
  const char* calls;
  const char* changes;
};
constexpr Deadly kDeadly[] = {
    // It writes to null.
    {"cuGetErrorString:cuGetErrorName", "pStr=null"},
    {"cuGetProcAddress*", "pfn=null"},
    {"cuGraphKernelNodeGetAttribute", "value_out=null"},
    // It reads from null.
    {"cuGetProcAddress*", "symbol=null"},
    {"cuGraphKernelNodeSetAttribute", "value=null"},
    {"cuStreamBatchMemOp*", "paramArray=null"},
    // It looks up a table without a look at its length.
    {"cuFuncSetAttribute", "attrib=-1:attrib=2147483647"},
};

// As a test of the suite that is judged by NVIDIA's answers: only of our own drivers anything is
// known beforehand.
bool ours() {
  const std::string driver = std::getenv(kSweepVariable);
  return driver.ends_with("soft");
}

bool deadly(const SweptCall& call, const std::string& change) {
  if (std::string_view(std::getenv(kSweepVariable)) != "nvidia") return false;
  return std::any_of(std::begin(kDeadly), std::end(kDeadly), [&](const Deadly& each) {
    return like(call.base, each.calls) && like(change, each.changes);
  });
}

constexpr const char* kProgressVariable = "FLYT_CONFORMANCE_SWEEP_PROGRESS";
constexpr int kBrokenContextExit = 78;

// How far a worker has come, in a file that it shares with the supervisor.
struct Progress {
  std::uint64_t test;      // By the hash of its name.
  std::uint64_t step;      // The last one begun.
  std::uint64_t recorded;  // Whether its result is.
};

std::uint64_t hash_of(const std::string& test) { return std::hash<std::string>{}(test); }

// The progress of workers is at 0; behind it, where the next one goes on.
constexpr off_t kGoesOn = sizeof(Progress);

Progress read_progress(off_t at) {
  Progress progress{};
  const char* fd = std::getenv(kProgressVariable);
  if (fd != nullptr && ::pread(std::atoi(fd), &progress, sizeof progress, at) < 0) progress = {};
  return progress;
}

void write_progress(const Progress& progress, off_t at) {
  const char* fd = std::getenv(kProgressVariable);
  if (fd != nullptr && ::pwrite(std::atoi(fd), &progress, sizeof progress, at) < 0) ::_exit(3);
}

std::string running_test() {
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  return std::string(test.test_suite_name()) + "." + test.name();
}

class Sweep {
 public:
  explicit Sweep(const SweptCall& call)
      : call_(call), function_(::dlsym(cu().library, call.name)) {}

  bool present() const { return function_ != nullptr; }

  // Everything, or what is behind the call that was a worker's end. Another end is a context that
  // the call has broken.
  void run() {
    const std::vector<Step> steps = plan();
    progress_ = {.test = hash_of(running_test()), .step = 0, .recorded = 0};
    const Progress goes_on = read_progress(kGoesOn);
    if (goes_on.test == progress_.test) {
      progress_.step = goes_on.step;
      if (goes_on.recorded == 0) record_end(steps[goes_on.step - 1].label);
    }
    for (; progress_.step < steps.size(); ++progress_.step) {
      progress_.recorded = 0;
      write_progress(progress_, 0);
      one(steps[progress_.step]);
    }
  }

  // With what there is before cuInit.
  CUresult before_init() {
    Scene scene(call_, nullptr);
    return make(plausible_arguments(scene, call_));
  }

 private:
  // The primary context, retained and current.
  class Primary {
   public:
    Primary() {
      const Unrecorded quiet;
      cu().cuInit(0);
      EXPECT_EQ(CUDA_SUCCESS, cu().cuDevicePrimaryCtxRetain(&context_, 0));
      make_current();
    }
    ~Primary() {
      make_current();
      const Unrecorded quiet;
      cu().cuDevicePrimaryCtxRelease_v2(0);
    }
    Primary(const Primary&) = delete;
    Primary& operator=(const Primary&) = delete;
    CUcontext context() const { return context_; }
    void retain_again() {
      const Unrecorded quiet;
      cu().cuDevicePrimaryCtxRetain(&context_, 0);
    }
    // And nothing below it.
    void make_current() const {
      drop();
      const Unrecorded quiet;
      EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context_));
    }
    void drop() const {
      const Unrecorded quiet;
      CUcontext popped = nullptr;
      for (int i = 0; i < 8 && cu().cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS; ++i) continue;
    }

   private:
    CUcontext context_ = nullptr;
  };

  struct Step {
    std::string label;
    std::size_t alternative = 0;  // One more than its number; 0: none.
    bool without_context = false;
  };

  // Nulls, of which drivers may die, come last.
  std::vector<Step> plan() const {
    const Primary primary;
    Scene scene(call_, primary.context());
    const auto others = alternatives(scene, call_, plausible_arguments(scene, call_));
    std::vector<Step> steps = {{.label = "plausible"}};
    bool nulls = false;
    const auto end_others = [&] {
      if (!nulls && !like(call_.base, kOnlyInAContext)) {
        steps.push_back({.label = "no-context", .without_context = true});
      }
      nulls = true;
    };
    for (std::size_t i = 0; i < others.size(); ++i) {
      if (others[i].null) end_others();
      if (deadly(call_, others[i].label)) continue;
      steps.push_back({.label = others[i].label, .alternative = i + 1});
    }
    end_others();
    return steps;
  }

  CUresult make(const std::vector<Argument>& arguments) const {
    return call_.invoke(function_, arguments.data());
  }

  void one(const Step& step) {
    Primary primary;
    Scene scene(call_, primary.context());
    std::vector<Argument> arguments = plausible_arguments(scene, call_);
    if (step.alternative != 0) {
      const Alternative other = alternatives(scene, call_, arguments)[step.alternative - 1];
      arguments[other.parameter] = other.argument;
    }
    if (step.without_context) primary.drop();
    const CUresult result = make(arguments);
    record(step.label.c_str(), result);
    progress_.recorded = 1;
    write_progress(progress_, 0);
    for (const auto& [what, why] : scene.failed()) {
      if (step.alternative == 0) record(("scene:" + what).c_str(), why);
    }
    if (ours() && result == CUDA_ERROR_UNKNOWN) ADD_FAILURE() << step.label << " is not known";
    if (like(call_.base, "cuDevicePrimaryCtxRe*")) primary.retain_again();
    primary.make_current();
    scene.end_captures(arguments);
    if (result == CUDA_SUCCESS) scene.settle(arguments);
    wait(step.label);
  }

  // What the call left to be found later.
  static void wait(const std::string& label) {
    CUresult first = CUDA_SUCCESS;
    bool broken = false;
    {
      const Unrecorded quiet;
      first = cu().cuCtxSynchronize();
      broken = first != CUDA_SUCCESS && cu().cuCtxSynchronize() != CUDA_SUCCESS;
    }
    if (first != CUDA_SUCCESS) record((label + ">synchronize").c_str(), first);
    if (!broken) return;
    std::fprintf(stderr, "%s: %s broke the context: %s\n", running_test().c_str(), label.c_str(),
                 name_of(first).c_str());
    ::_exit(kBrokenContextExit);
  }

  const SweptCall& call_;
  void* const function_;
  Progress progress_{};
};

// One test, of one call.
class ArgumentSweep : public ContextTest {
 public:
  explicit ArgumentSweep(const SweptCall& call) : call_(call) {}
  void TestBody() override {
    Sweep sweep(call_);
    if (!sweep.present()) GTEST_SKIP() << "the driver has none";
    sweep.run();
  }

 private:
  const SweptCall& call_;
};

// The same in a process of its own, which the call may change.
class ArgumentSweepAlone : public ArgumentSweep {
 public:
  using ArgumentSweep::ArgumentSweep;
  void SetUp() override {}
};

// Every call before cuInit, each in a process of its own, so that a crash is one call's.
class UninitializedSweepAlone : public ::testing::Test {
 public:
  void TestBody() override {
    for (const SweptCall& call : swept_calls()) {
      if (call.base == "cuInit") continue;
      Sweep sweep(call);
      if (!sweep.present()) continue;
      const pid_t child = ::fork();
      if (child == 0) {
        record(call.name, sweep.before_init());
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      EXPECT_EQ(0, status) << call.name;
    }
  }
};

template <class Test>
void add_test(const char* suite, const SweptCall& call) {
  ::testing::RegisterTest(suite, call.name, nullptr, nullptr, __FILE__, __LINE__,
                          [&call]() -> Test* { return std::make_unique<Test>(call).release(); });
}

}  // namespace

void register_sweep() {
  if (std::getenv(kSweepVariable) == nullptr) return;
  for (const SweptCall& call : swept_calls()) {
    if (like(call.base, kLasting)) {
      add_test<ArgumentSweepAlone>("ArgumentSweepAlone", call);
    } else {
      add_test<ArgumentSweep>("ArgumentSweep", call);
    }
  }
  ::testing::RegisterTest("UninitializedSweepAlone", "EveryCall", nullptr, nullptr, __FILE__,
                          __LINE__, []() -> UninitializedSweepAlone* {
                            return std::make_unique<UninitializedSweepAlone>().release();
                          });
}

void sweep_only(const std::string& driver) {
  ::setenv(kSweepVariable, driver.c_str(), 1);
  // Workers inherit it.
  ::setenv(kProgressVariable, std::to_string(::memfd_create("sweep progress", 0)).c_str(), 1);
  register_sweep();
  if (::testing::GTEST_FLAG(filter) == "*") ::testing::GTEST_FLAG(filter) = "*Sweep*";
}

bool goes_on_behind(const std::string& test) {
  const Progress progress = read_progress(0);
  if (std::getenv(kProgressVariable) == nullptr || progress.test != hash_of(test)) return false;
  const Progress next{progress.test, progress.step + 1, progress.recorded};
  const Progress before = read_progress(kGoesOn);
  if (before.test == next.test && before.step >= next.step) return false;
  write_progress(next, kGoesOn);
  return true;
}

}  // namespace flyt::conformance
