#include "tests/conformance/sweep.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
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

// As a test of the suite that is judged by NVIDIA's answers: only of our own drivers anything is
// known beforehand.
bool ours() {
  const std::string driver = std::getenv(kSweepVariable);
  return driver.ends_with("soft");
}

class Sweep {
 public:
  explicit Sweep(const SweptCall& call)
      : call_(call), function_(::dlsym(cu().library, call.name)) {}

  bool present() const { return function_ != nullptr; }

  // Everything; stops when the context is broken.
  void run() {
    std::size_t count = 0;
    std::size_t first_null = 0;
    {
      const Primary primary;
      Scene scene(call_, primary.context());
      const auto others = alternatives(scene, call_, plausible_arguments(scene, call_));
      count = others.size();
      while (first_null < count && !others[first_null].null) ++first_null;
    }
    one(nullptr, false);
    for (std::size_t i = 0; i < first_null && !broken_; ++i) one(&i, false);
    if (!broken_ && !like(call_.base, kOnlyInAContext)) one(nullptr, true);
    for (std::size_t i = first_null; i < count && !broken_; ++i) one(&i, false);
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

  CUresult make(const std::vector<Argument>& arguments) const {
    return call_.invoke(function_, arguments.data());
  }

  void one(const std::size_t* which, bool without_context) {
    Primary primary;
    Scene scene(call_, primary.context());
    std::vector<Argument> arguments = plausible_arguments(scene, call_);
    std::string label = without_context ? "no-context" : "plausible";
    if (which != nullptr) {
      const Alternative other = alternatives(scene, call_, arguments)[*which];
      arguments[other.parameter] = other.argument;
      label = other.label;
    }
    if (without_context) primary.drop();
    const CUresult result = make(arguments);
    record(label.c_str(), result);
    for (const auto& [what, why] : scene.failed()) {
      if (which == nullptr) record(("scene:" + what).c_str(), why);
    }
    if (ours() && result == CUDA_ERROR_UNKNOWN) ADD_FAILURE() << label << " is not known";
    if (like(call_.base, "cuDevicePrimaryCtxRe*")) primary.retain_again();
    primary.make_current();
    scene.end_captures(arguments);
    if (result == CUDA_SUCCESS) scene.settle(arguments);
    wait(label);
  }

  // What the call left to be found later.
  void wait(const std::string& label) {
    const Unrecorded quiet;
    const CUresult first = cu().cuCtxSynchronize();
    if (first == CUDA_SUCCESS) return;
    broken_ = cu().cuCtxSynchronize() != CUDA_SUCCESS;
    later(label, first);
    if (broken_) ADD_FAILURE() << label << " broke the context: " << name_of(first);
  }
  static void later(const std::string& label, CUresult result) {
    record((label + ">synchronize").c_str(), result);
  }

  const SweptCall& call_;
  void* const function_;
  bool broken_ = false;
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
  register_sweep();
  if (::testing::GTEST_FLAG(filter) == "*") ::testing::GTEST_FLAG(filter) = "*Sweep*";
}

}  // namespace flyt::conformance
