#include "softgpu/current.h"

#include <pthread.h>

#include <atomic>
#include <memory>

#include "base/annotations.h"
#include "softgpu/driver.h"

namespace flyt::softgpu {
namespace {

std::atomic<Driver*> driver{nullptr};
std::atomic<bool> forked{false};
std::atomic<std::uint64_t> threads{0};
constinit thread_local ContextStack stack;
constinit thread_local std::uint64_t number = 0;
constinit thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
constinit thread_local auto host_function = InHostFunction::Kind::kNone;

// A forked child has none of the threads that its parent's driver works with: for it, CUDA is not
// initialised, and cannot be, as with NVIDIA's driver.
void forget_driver() {
  if (driver.exchange(nullptr) != nullptr) forked.store(true);
  stack = ContextStack();
}

}  // namespace

Driver* current_driver() { return driver.load(std::memory_order_acquire); }

CUresult start_driver() {
  if (forked.load()) return CUDA_ERROR_NOT_INITIALIZED;
  static Mutex mutex;
  const Lock lock(mutex);
  if (current_driver() != nullptr) return CUDA_SUCCESS;
  const Settings settings = Settings::from_environment();
  if (settings.devices == 0) return CUDA_ERROR_NO_DEVICE;
  if (settings.memory_moves) DeviceMemory::shift_addresses();
  static const int registered = ::pthread_atfork(nullptr, nullptr, &forget_driver);
  if (registered != 0) return CUDA_ERROR_OPERATING_SYSTEM;
  // Lives until the process ends: atexit handlers of programs still call.
  driver.store(std::make_unique<Driver>(settings).release(), std::memory_order_release);
  return CUDA_SUCCESS;
}

ContextStack& context_stack() { return stack; }

std::uint64_t thread_number() {
  if (number == 0) number = ++threads;
  return number;
}

CUstreamCaptureMode& thread_capture_mode() { return capture_mode; }

InHostFunction::InHostFunction(Kind kind) { host_function = kind; }
InHostFunction::~InHostFunction() { host_function = Kind::kNone; }
bool InHostFunction::active() { return host_function != Kind::kNone; }
bool InHostFunction::may_query() { return host_function != Kind::kFunction; }

}  // namespace flyt::softgpu
