// Partition: multiprocessors of a device, and the streams of a context that run on them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"
#include "softgpu/multiprocessors.h"
#include "softgpu/stream.h"

namespace flyt::softgpu {

// Numbers of the streams of one context, whatever partition they are in.
using StreamNumbers = std::atomic<std::uint64_t>;

// A context has one for all of the device, and one for each green context of it. Each has default
// streams of its own. Safe from any thread.
class Partition : public std::enable_shared_from_this<Partition> {
 public:
  struct Names {
    std::uint64_t owner = 0;   // The context to which all that is made in it belongs.
    std::uint64_t handle = 0;  // As a CUcontext; the owner's for all of the device.
    std::uint64_t green = 0;   // As a CUgreenCtx; 0: all of the device.
    std::uint64_t id = 0;      // cuCtxGetId
  };
  // `sms`: null for all of the device.
  static std::shared_ptr<Partition> make(Workers& workers, std::shared_ptr<Fate> fate,
                                         std::shared_ptr<StreamNumbers> numbers, const Names& names,
                                         std::shared_ptr<const SmSet> sms);
  // make() uses it.
  Partition(Workers& workers, std::shared_ptr<Fate> fate, std::shared_ptr<StreamNumbers> numbers,
            const Names& names, std::shared_ptr<const SmSet> sms)
      : workers_(workers),
        fate_(std::move(fate)),
        numbers_(std::move(numbers)),
        names_(names),
        sms_(std::move(sms)) {}

  const Names& names() const { return names_; }
  bool green() const { return names_.green != 0; }
  const std::shared_ptr<const SmSet>& sms() const { return sms_; }

  // Adds an operation to a stream of this partition, ordered with the legacy default stream as
  // CUDA demands, and behind what hold_back() named.
  Ticket submit(Stream& stream, Operation operation);

  // Has the stream nothing to do? The legacy default stream is busy while any blocking one is.
  bool idle(const Stream& stream) const;
  // The ends of all that was submitted so far.
  std::vector<Ticket> ends() const;
  // All that is submitted from now on waits for the ticket.
  void hold_back(const Ticket& ticket);

  std::shared_ptr<Stream> add_stream(unsigned flags, int priority);
  const std::shared_ptr<Stream>& legacy() const { return legacy_; }
  // The default stream of thread number `thread`, made at first use.
  std::shared_ptr<Stream> per_thread(std::uint64_t thread);

  // Nothing more may be given to its streams.
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  void end() { ended_.store(true, std::memory_order_release); }

 private:
  std::shared_ptr<Stream> make_stream(unsigned flags, int priority, bool legacy);
  std::vector<std::shared_ptr<Stream>> streams() const;

  Workers& workers_;
  const std::shared_ptr<Fate> fate_;
  const std::shared_ptr<StreamNumbers> numbers_;
  const Names names_;
  const std::shared_ptr<const SmSet> sms_;
  std::shared_ptr<Stream> legacy_;  // Set by make().
  std::atomic<bool> ended_{false};

  Mutex order_;  // One submit() at a time, so that tickets are in order among streams.
  std::vector<Ticket> gates_ GUARDED_BY(order_);

  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Stream>> streams_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::shared_ptr<Stream>> per_thread_ GUARDED_BY(mutex_);
};

}  // namespace flyt::softgpu
