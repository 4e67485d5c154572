// Stream: operations that run one after the other, on a thread of their own while there are any.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "cuda/sticky.h"
#include "cuda/types.h"
#include "softgpu/lost_gpu.h"
#include "softgpu/multiprocessors.h"
#include "softgpu/shared_faults.h"
#include "softgpu/timeline.h"
#include "softgpu/workers.h"

namespace flyt::softgpu {

// What has become of a context; shared by all that works for it. Safe from any thread.
class Fate {
 public:
  // `shared`: where the GPU's processes share their faults; null: they do not. `lost`: whether
  // there still is a GPU for this process; null: always.
  explicit Fate(SharedFaults* shared = nullptr, LostGpu* lost = nullptr)
      : shared_(shared), lost_(lost) {}

  // CUDA_SUCCESS, or the first error that made the context useless.
  CUresult error() const {
    const CUresult own = error_.load(std::memory_order_acquire);
    if (own == CUDA_SUCCESS && lost_ != nullptr) {
      if (const CUresult gone = lost_->error(); gone != CUDA_SUCCESS) return gone;
    }
    return own != CUDA_SUCCESS || shared_ == nullptr ? own : shared_->fault();
  }
  void fail(CUresult error) {
    CUresult none = CUDA_SUCCESS;
    error_.compare_exchange_strong(none, error);
    // Not what a destroyed context's kernels end with.
    if (lost_ != nullptr && cuda::is_sticky(error)) lost_->fault(error);
    if (shared_ != nullptr) shared_->tell(error);
  }
  // The context is gone: nothing of it runs any more.
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  void end() { ended_.store(true, std::memory_order_release); }

 private:
  SharedFaults* const shared_;
  LostGpu* const lost_;
  std::atomic<CUresult> error_{CUDA_SUCCESS};
  std::atomic<bool> ended_{false};
};

struct Operation {
  // Gets the context's error at that time.
  std::function<void(CUresult status)> run;
  std::vector<Ticket> after;  // Of other streams.
  // Runs after an error too; others are skipped then.
  bool always = false;
};

// Attributes that streams carry without effect here.
struct StreamAttributes {
  CUaccessPolicyWindow window{};
  CUsynchronizationPolicy policy = static_cast<CUsynchronizationPolicy>(-1);
  CUlaunchMemSyncDomain domain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
  CUlaunchMemSyncDomainMap domains{0, 1};
};

class Partition;
struct StreamCapture;

// Safe from any thread. Lives while it has work, whatever else becomes of it.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(Workers& workers, std::shared_ptr<Fate> fate, std::uint64_t context, unsigned flags,
         int priority, std::uint64_t id)
      : workers_(workers),
        fate_(std::move(fate)),
        timeline_(std::make_shared<Timeline>()),
        context_(context),
        flags_(flags),
        priority_(priority),
        id_(id) {}

  // How many operations wait in a stream before whoever adds another waits too. (Threads that come
  // at the same moment all pass.) A little more than what NVIDIA's driver takes of launches.
  static constexpr std::size_t kWaitingMax = 2048;

  // Waits until fewer than kWaitingMax operations wait. Not to be called with a lock held that
  // operations take.
  void await_room() EXCLUDES(mutex_);

  // The ticket of the operation. Operations must be pushed in an order without cycles: those in
  // `after` were pushed before.
  Ticket push(Operation operation);
  // The end of all that was pushed so far.
  Ticket last() const;
  bool idle() const { return last().reached(); }

  // Once, before anybody else knows the stream.
  void set_partition(std::weak_ptr<Partition> partition, std::shared_ptr<const SmSet> sms,
                     bool legacy) {
    partition_ = std::move(partition);
    sms_ = std::move(sms);
    legacy_ = legacy;
  }
  // Null once the stream's green context has gone.
  std::shared_ptr<Partition> partition() const { return partition_.lock(); }
  // Where its kernels run; null: anywhere.
  const std::shared_ptr<const SmSet>& sms() const { return sms_; }

  // Is it its partition's legacy default stream?
  bool legacy() const { return legacy_; }

  std::uint64_t context() const { return context_; }
  unsigned flags() const { return flags_; }
  // Does it order itself with the legacy default stream?
  bool blocking() const { return (flags_ & CU_STREAM_NON_BLOCKING) == 0; }
  int priority() const { return priority_; }
  std::uint64_t id() const { return id_; }

  // Does a graph take its work instead of the stream?
  bool capturing() const { return capturing_.load(std::memory_order_acquire); }
  // Null where it is not capturing. Only with the GraphStore's mutex held.
  StreamCapture* capture() const { return capture_.get(); }
  void set_capture(std::shared_ptr<StreamCapture> capture) {
    capture_ = std::move(capture);
    capturing_.store(capture_ != nullptr, std::memory_order_release);
  }

  StreamAttributes attributes() const;
  void set_attributes(const StreamAttributes& attributes);

 private:
  void drain();

  Workers& workers_;
  const std::shared_ptr<Fate> fate_;
  const std::shared_ptr<Timeline> timeline_;
  const std::uint64_t context_;  // Handle.
  const unsigned flags_;
  const int priority_;
  const std::uint64_t id_;
  std::weak_ptr<Partition> partition_;
  std::shared_ptr<const SmSet> sms_;
  bool legacy_ = false;
  std::shared_ptr<StreamCapture> capture_;
  std::atomic<bool> capturing_{false};

  mutable Mutex mutex_;
  Condition room_;
  std::deque<Operation> queue_ GUARDED_BY(mutex_);
  std::uint64_t pushed_ GUARDED_BY(mutex_) = 0;
  bool draining_ GUARDED_BY(mutex_) = false;
  StreamAttributes attributes_ GUARDED_BY(mutex_);
};

}  // namespace flyt::softgpu
