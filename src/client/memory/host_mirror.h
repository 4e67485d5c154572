// HostMirror: host memory of the program that kernels reach.
//
// The server holds memory of its own at the same addresses, which it lets the GPU use. What the
// program writes here is sent before any command whose work could read it; what the GPU writes
// there has arrived here before the program learns that the work is done. Both are found by
// comparison with a shadow: what the other side is known to have.
//
// It has no part in sessions whose two sides really share the memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/pages.h"
#include "base/result.h"
#include "client/memory/memory_map.h"
#include "client/transfers/careful_copy.h"
#include "commands/pinned.h"
#include "cuda/types.h"
#include "wire/hello.h"
#include "wire/memory_changes.h"

namespace flyt::client {

class AddressSpace;
class Session;
struct ContextState;

// The flags with which map_host or share_host asks the server for that memory.
std::uint32_t map_flags(const Memory& memory);

// Safe from any thread.
class HostMirror {
 public:
  // `window`: where page-locked memory lies; `spare`: free addresses in it.
  HostMirror(Session& session, MemoryMap& map, AddressSpace& spare, const wire::Window& window);
  ~HostMirror();
  HostMirror(const HostMirror&) = delete;
  HostMirror& operator=(const HostMirror&) = delete;

  // Lets kernels reach the range around an address, from its current contents on; nothing is to be
  // done if they do already. The server is asked in the calling thread's current context.
  CUresult begin(std::uint64_t address) EXCLUDES(beginning_, sending_, mutex_);
  // Kernels do not reach it any more. Waits for the GPU, and what it wrote is here then.
  CUresult end(const Memory& memory) EXCLUDES(sending_, mutex_);

  // The same for memory that CUDA does not know, which copies of graphs use whenever they are
  // launched: at an address of its own, in the current context. Given back, by its number, as often
  // as borrowed. The program may free it before that.
  CUresult borrow(std::uint64_t host, std::uint64_t bytes, std::uint64_t& device_address,
                  std::uint64_t& loan) EXCLUDES(beginning_, sending_, mutex_);
  void give_back(std::uint64_t loan) EXCLUDES(beginning_, sending_, mutex_);
  // What was borrowed in a context goes with it.
  void on_context_destroyed(std::uint64_t context) EXCLUDES(beginning_, sending_, mutex_);
  // An address as the program has it.
  std::uint64_t host_address(std::uint64_t device_address) EXCLUDES(mutex_);

  // There is (or is no longer) host memory that kernels have not been seen to use.
  void note_candidate(const Memory& memory);
  void drop_candidate() { candidates_.fetch_sub(1, std::memory_order_relaxed); }
  // Begins all ranges that these bytes point into: arguments of a kernel, or data for one. Free
  // while there are no candidates, else about a nanosecond a word.
  void begin_all_in(Bytes data) {
    if (candidates_.load(std::memory_order_relaxed) != 0) look_for_pointers(data);
  }

  // One load while kernels reach no host memory.
  bool active() const { return active_.load(std::memory_order_relaxed); }
  // Whether before() has something to do for a command: its work could read what the program has
  // written. Which commands name the memory they use, and send() themselves, it knows by their
  // numbers.
  bool concerns(std::uint16_t op) const { return active() && !names_its_memory(op); }
  // Before such a command, over the connection over which it is sent: the caller holds
  // Session::steady().
  void before(std::uint16_t op) {
    if (concerns(op)) send_all();
  }
  // The same for a part of one range, named as kernels name it; without steady().
  void send(std::uint64_t device_address, std::uint64_t bytes) EXCLUDES(sending_, mutex_);

  // From the thread that reads the socket: what the GPU wrote. False if it is malformed or writes
  // what it may not.
  bool on_changes(Bytes changes) EXCLUDES(mutex_);
  // How many of those have come over the connection that there was; from now on it is another one.
  std::uint64_t take_pushes() { return pushes_.exchange(0); }
  // The session goes on over another connection, to which these send: all that kernels reach is
  // mapped there again, and holds what it holds here. The caller holds Session::steady() alone.
  struct Another {
    std::function<Status(const ContextState&, const commands::MapHost&)> map;
    std::function<Status(const ContextState&, Bytes)> write;
  };
  Status restore(const Another& another) EXCLUDES(sending_, mutex_);

 private:
  struct Range {
    std::byte* host = nullptr;
    std::uint64_t bytes = 0;
    bool read_only = false;  // For kernels.
    bool borrowed = false;
    bool mapped = false;  // The server has it.
    bool sent = false;    // What the program writes there may be sent.
    bool variable = false;
    // With which context, and as what.
    const ContextState* context = nullptr;
    std::uint32_t flags = 0;
    Pages shadow;
  };
  using Ranges = std::map<std::uint64_t, Range>;
  struct Loan {
    std::uint64_t number = 0;
    std::uint64_t context = 0;
    std::uint64_t host = 0;
    std::uint64_t bytes = 0;
    std::uint64_t device_base = 0;
    std::size_t count = 0;
  };

  void end_loan(const Loan& loan) REQUIRES(beginning_) EXCLUDES(sending_, mutex_);
  static bool names_its_memory(std::uint16_t op);
  void send_all() EXCLUDES(sending_, mutex_);
  // False: the connection is lost, and what was not sent counts as such.
  bool send_range(std::uint64_t device_address, std::uint64_t bytes) REQUIRES(sending_);
  void take_back(Bytes changes) EXCLUDES(mutex_);
  Status restore_range(const Another& another, std::uint64_t device_base) REQUIRES(sending_);
  void on_mapped(std::uint64_t device_base) EXCLUDES(mutex_);
  void on_unmapped(std::uint64_t device_base) EXCLUDES(mutex_);
  void wait_for_work(std::uint64_t device_base) EXCLUDES(mutex_);
  void send_no_more(std::uint64_t device_base) EXCLUDES(sending_, mutex_);
  void look_for_pointers(Bytes data);
  bool add(std::uint64_t device_base, const Memory& memory, bool borrowed = false) EXCLUDES(mutex_);
  // What the program has written in a part of a range.
  std::uint64_t compare(wire::MemoryChanges& changes, std::uint64_t device_address, Range& range,
                        std::uint64_t offset, std::uint64_t bytes) REQUIRES(mutex_);
  void apply(const wire::MemoryChange& change, Range& range, std::uint64_t offset) REQUIRES(mutex_);
  void remove(std::uint64_t device_base) EXCLUDES(mutex_);
  CUresult map_at(std::uint64_t device_base, const Memory& memory, bool borrowed = false);
  // The range around an address as kernels name it; end() if there is none.
  Ranges::iterator around(std::uint64_t device_address) REQUIRES(mutex_);

  Session& session_;
  MemoryMap& map_;
  AddressSpace& spare_;
  const wire::Window window_;
  std::atomic<bool> active_{false};
  std::atomic<std::uint32_t> candidates_{0};
  // Bounds of all memory that was ever registered.
  std::atomic<std::uint64_t> registered_low_{~std::uint64_t{0}};
  std::atomic<std::uint64_t> registered_high_{0};
  Mutex beginning_;
  std::vector<Loan> loans_ GUARDED_BY(beginning_);
  std::uint64_t last_loan_ GUARDED_BY(beginning_) = 0;
  // Held from comparing to posting, so that what was seen later is sent later. The thread that
  // reads the socket never takes it.
  Mutex sending_;
  Mutex mutex_;
  Ranges ranges_ GUARDED_BY(mutex_);  // By the address that kernels use.
  std::atomic<std::uint64_t> pushes_{0};
  // For borrowed memory.
  const CarefulCopy careful_;
  std::vector<std::byte> copied_ GUARDED_BY(mutex_);
};

}  // namespace flyt::client
