// UsageBoard: what the processes of a server tell each other, in memory that all of them share: who
// each session's client is, what it has of each GPU, and what the sessions may have together.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "cuda/types.h"
#include "server/lease/sm_grant.h"

namespace flyt::server {

// GPUs of which use is told; what a session has of others is nobody's business.
inline constexpr std::size_t kUsageDevicesMax = 64;

struct UsageRow;
struct BoardHead;

// What a session has done so far.
struct SessionCounters {
  std::uint64_t posted = 0;
  std::uint64_t waited = 0;
  std::uint64_t launches = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t busy_ns = 0;    // With kernels on the GPU; server/lease/use_meter.h.
  std::uint64_t queued_ns = 0;  // And much waiting behind them.

  SessionCounters& operator+=(const SessionCounters& more);
};

// A session whose kernel faulted; where processes share the GPU, one that had work under way then.
struct Fault {
  std::uint64_t number = 0;  // From 1, of the server; set by the board, as what follows.
  std::uint64_t session = 0;
  std::int64_t unix_ms = 0;
  std::uint32_t client_process = 0;
  std::string name = {};
  std::uint32_t error = 0;     // As the driver told it.
  std::uint32_t suspects = 0;  // Sessions of the GPU that had work under way; 1: it is the one.
  bool goes_on = false;
};

// What faults on the GPU were to the sessions of a server, since its board was made.
struct FaultCounts {
  std::uint64_t caused = 0;
  std::uint64_t suspected = 0;  // It or another one.
  std::uint64_t survived = 0;   // Not caused, and gone on.
  std::uint64_t lost = 0;       // Not caused, and not gone on, or with an error.
};

// The memory of a lease: docs/leases.md.
struct MemoryQuota {
  std::uint64_t limit = 0;  // 0: none.
  std::uint64_t used = 0;   // By all sessions; more than the limit while a shrink waits.
  std::uint64_t left() const { return used < limit ? limit - used : 0; }
};

enum class SessionKind : std::uint8_t { kCuda, kMonitor };

struct Client {
  std::uint32_t process = 0;  // Its number on its own machine.
  std::string_view machine = {};
  std::string_view name = {};  // Of its program.
  SessionKind kind = SessionKind::kCuda;
};

// How long who looks for memory waits for that of a program that has ended: natively it is free
// then.
inline constexpr Duration kLeavingMax = std::chrono::seconds(2);

// One session's place on the board; one made without a board tells nobody. Safe from any thread.
class UsageSlot {
 public:
  UsageSlot() = default;
  explicit UsageSlot(UsageRow* row) : row_(row) {}
  UsageRow* row() const { return row_; }

  // Once, when the client is known.
  void publish(const Client& client) const;

  // Before physical memory of a device is taken: false if the lease has no more. What the driver
  // then refuses, and what is freed later, is given back.
  [[nodiscard]] bool reserve(CUdevice device, std::uint64_t bytes) const;
  // Taken whatever the lease has.
  void took(CUdevice device, std::uint64_t bytes) const;
  void gave(CUdevice device, std::uint64_t bytes) const;
  void context_made(CUdevice device) const;
  void context_ended(CUdevice device) const;
  void count(const SessionCounters& counters) const;
  // What this session has of a device.
  std::uint64_t bytes(CUdevice device) const;

  // The client is gone for good, as it may be said again. What the session has of GPUs is freed by
  // the end of its process, which may take a driver a while.
  void leave() const;
  // Whether there is anything yet of a session that had begun to leave by then, no longer ago than
  // kLeavingMax: who asks again and again with the same time is told so for as long at most.
  bool others_leave(Instant by) const;

  MemoryQuota quota() const;
  // Rises when a session of the lease could not have memory: others then give up what lies idle,
  // and say so.
  std::uint32_t shortages() const;
  std::uint32_t tell_shortage() const;  // Its number.
  // `quiet`: it does so without being asked, as long as that is so.
  void heeded(std::uint32_t shortage, bool quiet) const;
  // Whether all others that have memory, and a process, have done so.
  bool all_heeded(std::uint32_t shortage) const;

  // This session's work runs in the grant of that version, but for so many contexts and graphs.
  void moved(std::uint32_t version, std::uint32_t fixed) const;

  // What a fault on the GPU was to this session, of which `fault` has the last three.
  void note_suspect(const Fault& fault) const;
  void note_innocent(bool goes_on) const;
  // It goes on in this process; another one had begun it.
  void note_return() const;

  // The server is to be replaced. A session that has nothing under way is ready until it goes on
  // with something; false: it is too late for that, and the process is about to be killed.
  bool handover() const;
  void ready() const;
  [[nodiscard]] bool busy_again() const;

 private:
  UsageRow* row_ = nullptr;
};

// The place of this process, which serves one client. Until one is taken it tells nobody.
UsageSlot own_usage();
void take_usage_slot(UsageSlot slot);

// Memory of a device that this process has, on the board as long as this lives. Belongs to one
// thread at a time.
class UsedMemory {
 public:
  UsedMemory() = default;
  UsedMemory(CUdevice device, std::uint64_t bytes) : device_(device) { resize(bytes); }
  ~UsedMemory() { resize(0); }
  UsedMemory(UsedMemory&& other) noexcept
      : device_(other.device_), bytes_(std::exchange(other.bytes_, 0)) {}
  UsedMemory& operator=(UsedMemory&& other) noexcept {
    resize(0);
    device_ = other.device_;
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }

  // False, and nothing is taken, if the lease has no more. It had nothing before.
  [[nodiscard]] bool reserve(CUdevice device, std::uint64_t bytes);
  std::uint64_t bytes() const { return bytes_; }
  CUdevice device() const { return device_; }
  // Whatever the lease has: for what cannot be refused any more.
  void resize(std::uint64_t bytes);

 private:
  CUdevice device_ = 0;
  std::uint64_t bytes_ = 0;
};

class UsageBoard {
 public:
  struct Use {
    std::uint32_t client_process = 0;
    std::uint32_t server_process = 0;
    std::string machine;
    std::uint64_t bytes = 0;
    bool has_context = false;
  };
  // One session, as whoever controls the server sees it.
  struct Row {
    std::uint64_t number = 0;
    std::uint32_t server_process = 0;
    std::uint32_t client_process = 0;
    std::string machine;
    std::string name;
    SessionKind kind = SessionKind::kCuda;
    Duration age{0};
    std::uint64_t bytes = 0;
    std::uint32_t contexts = 0;
    SessionCounters counters;
  };
  enum class Shrink : std::uint8_t { kRefuse, kWhenFree };

  static constexpr std::size_t kNoSlot = ~std::size_t{0};
  static constexpr std::size_t kSlotsMax = 1 << 20;

  // Shared with all processes forked later, and with whoever maps its file.
  static Result<std::unique_ptr<UsageBoard>> create(std::size_t slots);
  // That of a server's parent that is gone. kUnsupported: it was another build of the server, whose
  // board is not ours.
  static Result<std::unique_ptr<UsageBoard>> adopt(Fd file);
  const Fd& file() const { return file_; }
  // The places that were taken when a board was adopted, and the processes that had them: the new
  // parent's to release when process and keeper have let go. Once.
  struct Left {
    std::size_t slot = 0;
    std::uint32_t process = 0;
  };
  std::vector<Left> left();
  ~UsageBoard();
  UsageBoard(const UsageBoard&) = delete;
  UsageBoard& operator=(const UsageBoard&) = delete;

  // The parent process alone: gives a child a place, and takes it back when the child has ended.
  // kNoSlot if all are taken.
  std::size_t claim();
  bool has_room() const;
  void release(std::size_t slot);

  // Whether the session there has begun: its client is known.
  bool begun(std::size_t slot) const;

  // What the session has of GPUs stays on the board beyond its process's end, until the keeper
  // (server/recovery/keeper.h) says that it is nobody's: from the session's process, the parent
  // and the keeper in turn.
  void hold(std::size_t slot);
  bool held(std::size_t slot) const;
  // The process has ended: nothing but what it has of GPUs is left of the session, for now.
  void orphan(std::size_t slot);
  void let_go(std::size_t slot);
  // The session is ended on purpose: it is not to go on in another process.
  void forbid_return(std::size_t slot);
  bool may_return(std::size_t slot) const;

  // The server is to be replaced, or stays; sessions are roused to see it.
  void set_handover(bool wanted);
  // Whether the session at a place is ready, or none that could go on elsewhere.
  bool ready(std::size_t slot) const;
  // From then on it does nothing any more, unless it is given back.
  bool take(std::size_t slot);
  void give_back(std::size_t slot);

  UsageSlot slot(std::size_t slot);
  // The sessions that have something of a device now.
  std::vector<Use> uses(CUdevice device) const;
  // All whose client is known, by their numbers.
  std::vector<Row> rows() const;

  // What all sessions have done since the board was made, those that have ended among them, and how
  // long ago that was.
  struct Total {
    SessionCounters counters;
    std::uint64_t returns = 0;  // Of sessions, in other processes than they had.
    Duration since{0};
  };
  Total total() const;

  static constexpr std::size_t kFaultsKept = 32;
  FaultCounts fault_counts() const;
  // The newest, those with numbers above `after`.
  std::vector<Fault> faults(std::uint64_t after) const;

  MemoryQuota quota() const;
  // 0: none. False, and nothing changes, if more is used and may not be.
  bool set_quota(std::uint64_t bytes, Shrink shrink);

  // What sessions are confined to, and its version, which rises whenever it is set.
  SmGrant grant() const;
  std::uint32_t set_grant(const SmGrant& grant);
  std::uint32_t grant_version() const;
  // Until there is another version than that, until rouse(), or so long; now and then for nothing.
  void await_grant(std::uint32_t version, Duration at_most) const;
  void rouse();
  // The sessions, those that do not run in the present grant yet, and what of the others never
  // will.
  struct Moving {
    std::uint32_t sessions = 0;
    std::uint32_t behind = 0;
    std::uint32_t fixed = 0;
  };
  Moving moving() const;
  // Until no session is behind, another grant is set than that of `version`, or so long.
  void await_moves(std::uint32_t version, Duration at_most) const;
  // The grant was changed while there were sessions, and how long that took.
  void count_move(Duration took);
  struct Moves {
    std::uint64_t count = 0;
    Duration last{0};
  };
  Moves moves() const;

  // What a controlling process wants of the parent, which looks when it is woken.
  bool request_end(std::uint64_t number);  // False if there is no such session.
  bool takes_end_request(std::size_t slot);
  void request_drain(std::uint32_t seconds);
  bool draining() const;
  // Once, after request_drain(): how many seconds are left to the sessions.
  bool takes_drain_request(std::uint32_t& seconds);

 private:
  UsageBoard(Fd file, void* memory, std::size_t count);

  const Fd file_;
  BoardHead* const head_;
  UsageRow* const rows_;
  const std::size_t count_;
  std::vector<bool> claimed_;
};

}  // namespace flyt::server
