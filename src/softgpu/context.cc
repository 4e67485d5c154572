#include "softgpu/context.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "softgpu/device.h"

namespace flyt::softgpu {
namespace {

// What an H200 answers.
constexpr std::size_t kStackBytes = 1024;
constexpr std::size_t kPrintfBytes = 8650752;
constexpr std::size_t kPrintfBytesMin = 512 * kKiB;
constexpr std::size_t kHeapBytes = 8388608;
constexpr std::size_t kPendingLaunches = 2048;
constexpr std::size_t kFetchBytes = 64;
constexpr std::size_t kPersistingBytes = 11796480;
constexpr std::size_t kStackBytesMax = 512 * 1024;
// How long the end of a context waits for what is under way, and how often it looks.
constexpr Duration kPatience = std::chrono::seconds(2);
constexpr Duration kPause = std::chrono::microseconds(50);

bool unsupported(CUlimit limit) {
  return limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED;
}
bool read_only(CUlimit limit) {
  return limit == CU_LIMIT_SHMEM_SIZE || limit == CU_LIMIT_CIG_ENABLED;
}

}  // namespace

Context::Context(Device& device, Workers& workers, unsigned flags, bool primary, std::uint64_t id)
    : device_(device),
      workers_(workers),
      primary_(primary),
      id_(id),
      fate_(std::make_shared<Fate>(device.shared_faults(), &device.lost())),
      heap_(device, kHeapBytes),
      limits_{},
      flags_(flags) {
  limits_[CU_LIMIT_STACK_SIZE] = kStackBytes;
  limits_[CU_LIMIT_PRINTF_FIFO_SIZE] = kPrintfBytes;
  limits_[CU_LIMIT_MALLOC_HEAP_SIZE] = kHeapBytes;
  limits_[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = kPendingLaunches;
  limits_[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = kFetchBytes;
  limits_[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = kPersistingBytes;
  limits_[CU_LIMIT_SHMEM_SIZE] = device.limits().shared_optin_bytes;
}

void Context::set_handle(std::uint64_t handle) {
  handle_ = handle;
  whole_ = Partition::make(workers_, fate_, numbers_, {handle, handle, 0, id_}, nullptr);
}

std::shared_ptr<Partition> Context::partition(std::uint64_t handle) const {
  if (handle == handle_) return whole_;
  const Lock lock(mutex_);
  const auto found = std::find_if(greens_.begin(), greens_.end(), [handle](const auto& green) {
    return green->names().handle == handle;
  });
  return found == greens_.end() ? nullptr : *found;
}

std::shared_ptr<Partition> Context::add_green(const Partition::Names& names,
                                              std::shared_ptr<const SmSet> sms) {
  auto green = Partition::make(workers_, fate_, numbers_, names, std::move(sms));
  const Lock lock(mutex_);
  greens_.push_back(green);
  return green;
}

void Context::end_green(const std::shared_ptr<Partition>& partition) {
  partition->end();
  synchronize(*partition);
  const Lock lock(mutex_);
  std::erase(greens_, partition);
}

void Context::end_greens() {
  const Lock lock(mutex_);
  for (const auto& green : greens_) green->end();
}

// The whole context has its green ones in it.
std::vector<std::shared_ptr<Partition>> Context::partitions(const Partition& of) const {
  const Lock lock(mutex_);
  std::vector<std::shared_ptr<Partition>> all;
  if (&of == whole_.get()) all.push_back(whole_);
  for (const auto& green : greens_) {
    if (&of == whole_.get() || &of == green.get()) all.push_back(green);
  }
  return all;
}

Ticket Context::submit(Stream& stream, Operation operation) {
  // A green context may go while a call is about to use a stream of it.
  const auto partition = stream.partition();
  return partition == nullptr ? stream.push(std::move(operation))
                              : partition->submit(stream, std::move(operation));
}

Ticket Context::submit(Stream& stream, std::function<void()> run) {
  return submit(stream, Operation{[run = std::move(run)](CUresult) { run(); }, {}, false});
}

// In a stream of its own, which is nobody else's.
Ticket Context::submit_apart(Operation operation) {
  return std::make_shared<Stream>(workers_, fate_, handle_, CU_STREAM_NON_BLOCKING, kPriorityLeast,
                                  numbers_->fetch_add(1))
      ->push(std::move(operation));
}

CUresult Context::synchronize() { return synchronize(*whole_); }

CUresult Context::synchronize(const Partition& partition) {
  for (const auto& part : partitions(partition)) {
    for (const Ticket& end : part->ends()) end.wait();
  }
  return fate_->error();
}

Ticket Context::mark(const Partition& partition, std::function<void()> run) {
  Operation operation{[run = std::move(run)](CUresult) { run(); }, {}, true};
  for (const auto& part : partitions(partition)) {
    for (Ticket& end : part->ends()) {
      if (!end.reached()) operation.after.push_back(std::move(end));
    }
  }
  return submit_apart(std::move(operation));
}

void Context::hold_back(const Partition& partition, Operation operation) {
  const Ticket gate = submit_apart(std::move(operation));
  for (const auto& part : partitions(partition)) part->hold_back(gate);
}

CUresult Context::limit(CUlimit limit, std::size_t* value) const {
  if (limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (unsupported(limit)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  const Lock lock(mutex_);
  *value = limits_[limit];
  return CUDA_SUCCESS;
}

CUresult Context::set_limit(CUlimit limit, std::size_t value) {
  if (limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (unsupported(limit) || read_only(limit)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit == CU_LIMIT_STACK_SIZE && value > kStackBytesMax) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && !heap_.set_limit(value)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Lock lock(mutex_);
  if (limit == CU_LIMIT_STACK_SIZE && value > limits_[limit]) larger_stacks_.store(true);
  // The buffer of printf has a least size, and is never smaller than asked for.
  const bool printf = limit == CU_LIMIT_PRINTF_FIFO_SIZE;
  limits_[limit] = printf ? std::max(value, kPrintfBytesMin) : value;
  return CUDA_SUCCESS;
}

void Context::make_stacks() {
  if (!larger_stacks_.load(std::memory_order_relaxed) || !larger_stacks_.exchange(false)) return;
  const Ticket gate = mark(*whole_, [] {});
  for (const auto& part : partitions(*whole_)) part->hold_back(gate);
}

unsigned Context::flags() const {
  const Lock lock(mutex_);
  return flags_;
}
void Context::set_flags(unsigned flags) {
  const Lock lock(mutex_);
  flags_ = flags;
}
CUfunc_cache Context::cache_config() const {
  const Lock lock(mutex_);
  return cache_config_;
}
void Context::set_cache_config(CUfunc_cache config) {
  const Lock lock(mutex_);
  cache_config_ = config;
}

void Context::add_grid(ptx::Grid* grid) {
  const Lock lock(mutex_);
  grids_.insert(grid);
  if (fate_->ended()) grid->stop();
}
void Context::remove_grid(ptx::Grid* grid) {
  const Lock lock(mutex_);
  grids_.erase(grid);
}

bool Context::idle() {
  for (const auto& part : partitions(*whole_)) {
    for (const Ticket& end : part->ends()) {
      if (!end.reached()) return false;
    }
  }
  return true;
}

Duration Context::patience() const {
  const Duration timeout(device_.settings().kernel_timeout_ns);
  return timeout.count() == 0 ? kPatience : std::min(kPatience, timeout / 2);
}

void Context::end() {
  // Programs print from kernels and reset the device to see it. What stands until somebody else
  // does something must not keep the program for good, and an endless kernel becomes no error here.
  const Instant until = system_clock().now() + patience();
  while (fate_->error() == CUDA_SUCCESS && !idle() && system_clock().now() < until) {
    system_clock().sleep_for(kPause);
  }
  fate_->end();
  {
    const Lock lock(mutex_);
    for (ptx::Grid* grid : grids_) grid->stop();
  }
  synchronize();
  place_ = {};
}

bool Context::enable_peer(std::uint64_t context) {
  const Lock lock(mutex_);
  return peers_.insert(context).second;
}
bool Context::disable_peer(std::uint64_t context) {
  const Lock lock(mutex_);
  return peers_.erase(context) != 0;
}

}  // namespace flyt::softgpu
