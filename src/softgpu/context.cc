#include "softgpu/context.h"

#include <algorithm>
#include <utility>

#include "softgpu/device.h"

namespace flyt::softgpu {
namespace {

// What an H200 answers.
constexpr std::size_t kStackBytes = 1024;
constexpr std::size_t kPrintfBytes = 8650752;
constexpr std::size_t kHeapBytes = 8388608;
constexpr std::size_t kPendingLaunches = 2048;
constexpr std::size_t kFetchBytes = 64;
constexpr std::size_t kPersistingBytes = 11796480;
constexpr std::size_t kStackBytesMax = 512 * 1024;

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
  const Lock lock(mutex_);
  legacy_ = make_stream(CU_STREAM_DEFAULT, kPriorityLeast);
}

std::shared_ptr<Stream> Context::make_stream(unsigned flags, int priority) {
  return std::make_shared<Stream>(workers_, fate_, handle_, flags,
                                  std::clamp(priority, kPriorityGreatest, kPriorityLeast),
                                  next_stream_++);
}

std::shared_ptr<Stream> Context::add_stream(unsigned flags, int priority) {
  const Lock lock(mutex_);
  // Streams that nobody else holds and that have nothing to do are gone.
  std::erase_if(streams_, [](const std::shared_ptr<Stream>& stream) {
    return stream.use_count() == 1 && stream->idle();
  });
  streams_.push_back(make_stream(flags, priority));
  return streams_.back();
}

std::shared_ptr<Stream> Context::per_thread(std::uint64_t thread) {
  const Lock lock(mutex_);
  std::shared_ptr<Stream>& stream = per_thread_[thread];
  if (stream == nullptr) stream = make_stream(CU_STREAM_DEFAULT, kPriorityLeast);
  return stream;
}

std::vector<std::shared_ptr<Stream>> Context::streams() const {
  const Lock lock(mutex_);
  std::vector<std::shared_ptr<Stream>> all = streams_;
  for (const auto& [thread, stream] : per_thread_) all.push_back(stream);
  return all;
}

Ticket Context::submit(Stream& stream, Operation operation) {
  const Lock lock(order_);
  const auto wait_for = [&operation](const Stream& other) {
    Ticket last = other.last();
    if (!last.reached()) operation.after.push_back(std::move(last));
  };
  if (&stream == legacy_.get()) {
    for (const auto& other : streams()) {
      if (other->blocking()) wait_for(*other);
    }
  } else if (stream.blocking()) {
    wait_for(*legacy_);
  }
  return stream.push(std::move(operation));
}

Ticket Context::submit(Stream& stream, std::function<void()> run) {
  return submit(stream, Operation{[run = std::move(run)](CUresult) { run(); }, {}, false});
}

bool Context::idle(const Stream& stream) const {
  if (!stream.idle()) return false;
  if (&stream != legacy_.get()) return true;
  const auto all = streams();
  return std::all_of(all.begin(), all.end(), [](const std::shared_ptr<Stream>& other) {
    return !other->blocking() || other->idle();
  });
}

CUresult Context::synchronize() {
  legacy_->last().wait();
  for (const auto& stream : streams()) stream->last().wait();
  return fate_->error();
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
  limits_[limit] = value;
  return CUDA_SUCCESS;
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

void Context::end() {
  fate_->end();
  {
    const Lock lock(mutex_);
    for (ptx::Grid* grid : grids_) grid->stop();
  }
  synchronize();
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
