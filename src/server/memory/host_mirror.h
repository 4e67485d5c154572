// HostMirror: memory of this process that stands, at the same addresses, for host memory of the
// client that kernels reach.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/pages.h"
#include "cuda/types.h"
#include "driver/table.h"
#include "server/lease/usage_board.h"

namespace flyt::server {

class Session;

// What the client writes there comes in commands; what the GPU wrote is found by comparison with a
// shadow, and sent before any answer from which the client could learn that the work is done. Safe
// from any thread.
class HostMirror {
 public:
  // What the mirrored ranges of a session may have in all, and how many ranges there may be.
  static constexpr std::uint64_t kBytesMax = 16 * kGiB;
  static constexpr std::size_t kRangesMax = 1 << 16;
  // Ranges that copies of graphs name, there or gone: of those that are gone the addresses stay
  // taken.
  static constexpr std::size_t kInGraphsMax = 4096;

  explicit HostMirror(Session& session) : session_(session) {}
  ~HostMirror();
  HostMirror(const HostMirror&) = delete;
  HostMirror& operator=(const HostMirror&) = delete;

  // Makes memory there and lets the GPU use it; with the context current, with which it goes. flags
  // as of cuMemHostRegister. Fails where something of this process lies.
  CUresult map(std::uint64_t address, std::uint64_t bytes, unsigned int flags,
               std::uint32_t context) EXCLUDES(mutex_);
  // The same with the memory itself, in a session whose two sides share it: the part of the shared
  // file that begins at `offset`. There is nothing to compare or send.
  CUresult share(std::uint64_t address, std::uint64_t bytes, std::uint64_t offset,
                 unsigned int flags, std::uint32_t context) EXCLUDES(mutex_);
  // Takes over memory that the driver has made and keeps, a managed variable; until it goes.
  CUresult adopt(std::uint64_t address, std::uint64_t bytes) EXCLUDES(mutex_);
  void drop_adopted(std::uint64_t address) EXCLUDES(mutex_);
  // Waits for its context, or else for this one, sends what the GPU wrote, and forgets the range.
  CUresult unmap(std::uint64_t address, std::uint32_t context) EXCLUDES(mutex_);
  // What the client wrote. False if it is malformed or outside of all ranges.
  bool write(Bytes changes) EXCLUDES(mutex_);

  // Sends all that the GPU has written so far. When it returns it was sent, by this thread or
  // another.
  void send_changes() EXCLUDES(mutex_);
  // The same before bytes for the client are sent, which may be for memory that a copy of a graph
  // wrote before: what it wrote must not come behind them. True: nor may they overtake it on
  // another connection.
  [[nodiscard]] bool before_delivery() EXCLUDES(mutex_);
  // The same before a reply, unless the command's success tells nothing of earlier work.
  void before_reply(std::uint16_t op);
  // A graph has a copy from or to what lies there, and may do it whenever it is launched: when that
  // memory goes, nothing of this process comes to lie there. False: there are too many of those.
  [[nodiscard]] bool note_in_graphs(std::uint64_t address, std::uint64_t bytes) EXCLUDES(mutex_);
  // The context is current, its work done, and its end near.
  void drop_context(std::uint32_t context) EXCLUDES(mutex_);

 private:
  struct Range {
    std::uint64_t bytes = 0;
    std::uint32_t context = 0;  // 0: of none.
    bool read_only = false;
    bool ours = false;  // Not the driver's.
    bool shared = false;
    Pages shadow;
    UsedMemory charge = {};  // Of managed memory.
    bool in_graphs = false;
    bool ending = false;  // unmap() takes it from the GPU, and nobody else.
  };
  using Ranges = std::map<std::uint64_t, Range>;

  CUresult admit(std::uint64_t address, std::uint64_t bytes) const REQUIRES(mutex_);
  // Maps it. What lay there before may be in graphs.
  bool take_pages(std::uint64_t address, Range& range, int file, std::uint64_t offset)
      REQUIRES(mutex_);
  // Room in the lease for managed memory.
  bool charge(Range& range) REQUIRES(mutex_);
  void tell_managed() REQUIRES(mutex_);
  void insert(std::uint64_t address, Range range) REQUIRES(mutex_);
  void erase(Ranges::iterator range) REQUIRES(mutex_);
  void send_range(std::uint64_t address, Range& range) REQUIRES(mutex_);
  CUresult let_gpu_use(std::uint64_t address, Range range, unsigned int flags) REQUIRES(mutex_);

  Session& session_;
  std::atomic<bool> any_{false};
  Mutex mutex_;
  Ranges ranges_ GUARDED_BY(mutex_);              // By address.
  std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;    // Of those that are not shared.
  std::size_t in_graphs_ GUARDED_BY(mutex_) = 0;  // How many of them are.
  // Managed memory, and what of it a session that goes on has got because it had it.
  std::uint64_t managed_bytes_ GUARDED_BY(mutex_) = 0;
  std::uint64_t had_bytes_ GUARDED_BY(mutex_) = 0;
  FixedPages pages_ GUARDED_BY(mutex_);
};

// Whether the driver says so of an address.
bool is_managed(const driver::Table& driver, CUdeviceptr address);

}  // namespace flyt::server
