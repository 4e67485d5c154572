// Marks: how far a session has come, where it can be read when its process was killed.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/fd.h"
#include "base/result.h"
#include "commands/ops.h"
#include "server/graphs/graph_log.h"
#include "server/recovery/snapshot.h"

namespace flyt::server {

// What a command means for a session whose process is lost.
enum class Role : std::uint8_t {
  kSpoils,  // It leaves something that nobody can make again, or is unknown.
  kPlain,   // The client makes again what it left, or it left nothing.
  kWork,    // It gives the GPU work, which may be under way or half done.
  kOrder,   // So it does, but nothing on the GPU has other contents for it.
};
// `client_knows`: the highest command that the client knows, which says how much it makes again.
Role role_of(std::uint16_t op, std::uint16_t client_knows = commands::kOpMax);

// Written by the main thread alone, two words a command; what spoils by any thread.
class Marks {
 public:
  // Sequence numbers; 0: none.
  struct Told {
    std::uint64_t begun = 0;  // The last command.
    std::uint64_t work = 0;   // The last one of Role::kWork.
    std::uint64_t done = 0;   // All work up to it was found done.
    // The op that nobody can make up for, now or ever; 0: none.
    std::uint16_t spoilt = 0;
    // The error of a fault on the shared GPU; 0: it ended of something else.
    std::uint32_t fault = 0;
    // Something that the process before knew is in no snapshot; it counts as work, too.
    bool unsaved = false;
    // How many times what the GPU wrote to the client's memory was sent to it.
    std::uint64_t pushes = 0;
    bool unsaved_graphs = false;  // The same of graphs.
    // What variables of code held when it was; none: nothing was saved.
    std::optional<Snapshot::Read> variables;
    std::vector<GraphLog::Entry> graphs;
    std::uint64_t graph_names = 0;    // How many have been given out.
    std::uint64_t managed_bytes = 0;  // Managed memory that the lease had given.
  };

  Marks() = default;
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // New ones, all 0. Until then nothing is noted. `client_knows`: as of role_of().
  Status make(std::uint16_t client_knows = commands::kOpMax);
  // The file of those of another process, which is gone.
  static Result<Told> read(const Fd& file);
  const Fd& file() const { return file_; }

  // Before the command does anything. Two or three stores.
  void begin(std::uint64_t sequence, std::uint16_t op) {
    if (page_ == nullptr) return;
    const Role role = role_of(op, client_knows_);
    if (role == Role::kWork) changed_ = true;
    if (role == Role::kWork || role == Role::kOrder) {
      page_->work.store(sequence, std::memory_order_relaxed);
    }
    if (role == Role::kSpoils) spoil(op);
    // Last: a process may be killed between two stores, and what was begun is not sent again.
    page_->begun.store(sequence, std::memory_order_release);
  }
  // Something else makes the session one that cannot be taken over; `op` is what to blame. For
  // good, or (Spoiler) as long as something lives.
  void spoil(std::uint16_t op) EXCLUDES(spoils_mutex_);
  bool spoilt() const { return page_ == nullptr || page_->spoilt.load() != 0; }
  bool spoilt_for_good() const {
    return page_ == nullptr || for_good_.load(std::memory_order_acquire) != 0;
  }
  // Whether the client makes again what those of before this command did not.
  bool client_knows(std::uint16_t op) const { return client_knows_ >= op; }
  // Work that was not found done.
  bool unsettled() const {
    return page_ != nullptr && (page_->done.load(std::memory_order_relaxed) !=
                                    page_->work.load(std::memory_order_relaxed) ||
                                page_->unsaved.load() != 0);
  }
  std::uint64_t begun() const {
    return page_ == nullptr ? 0 : page_->begun.load(std::memory_order_relaxed);
  }
  std::uint64_t work() const {
    return page_ == nullptr ? 0 : page_->work.load(std::memory_order_relaxed);
  }
  // Why the process ends.
  void set_fault(std::uint32_t error) {
    if (page_ != nullptr) page_->fault.store(error);
  }
  // Work up to that command is done, or will be asked for again.
  void settle(std::uint64_t sequence) {
    if (page_ != nullptr) page_->done.store(sequence);
  }
  // All that was begun is done.
  void settle() { page_->done.store(page_->work.load(std::memory_order_relaxed)); }

  // Whether work was begun since the last call that may have changed memory.
  bool take_changed() { return std::exchange(changed_, false); }
  // Something that whoever goes on has to know is in no snapshot yet: it counts as work under way.
  // Safe from any thread.
  void set_unsaved(bool unsaved) { set_unsaved(kVariables, unsaved); }
  bool unsaved() const { return page_ != nullptr && (page_->unsaved.load() & kVariables) != 0; }
  // The same of what graphs are.
  void set_unsaved_graphs(bool unsaved) { set_unsaved(kGraphs, unsaved); }
  // Before it is sent. Safe from any thread.
  void count_push() {
    if (page_ != nullptr) page_->pushes.fetch_add(1);
  }
  // Where what variables hold belongs: as of Snapshot::begin(). It stands once it is ended.
  Result<MutableBytes> begin_snapshot(const std::vector<SavedVariable>& variables);
  void end_snapshot();
  // What graphs are; what was put there stands once it is ended. Main thread.
  GraphLog& graphs() { return graphs_; }
  void end_graphs();
  // Safe from any thread.
  void set_managed_bytes(std::uint64_t bytes) {
    if (page_ != nullptr) page_->managed_bytes.store(bytes, std::memory_order_relaxed);
  }
  void set_graph_names(std::uint64_t names) {
    if (page_ != nullptr) page_->graph_names.store(names, std::memory_order_relaxed);
  }

 private:
  friend class Spoiler;
  static constexpr std::uint32_t kVariables = 1;
  static constexpr std::uint32_t kGraphs = 2;

  struct Page {
    std::atomic<std::uint64_t> begun;
    std::atomic<std::uint64_t> work;
    std::atomic<std::uint64_t> done;
    std::atomic<std::uint32_t> spoilt;
    std::atomic<std::uint32_t> unsaved;    // kVariables, kGraphs.
    std::atomic<std::uint32_t> snapshots;  // How many there were: the last is in half 1, 0, 1, ...
    std::atomic<std::uint32_t> fault;
    std::atomic<std::uint64_t> pushes;
    std::atomic<std::uint64_t> graphs;  // How far they stand in their log; 0: there are none.
    std::atomic<std::uint64_t> graph_names;
    std::atomic<std::uint64_t> managed_bytes;
  };
  static constexpr std::size_t kBytes = 4096;
  static_assert(sizeof(Page) <= kBytes);

  void change_spoilers(std::uint16_t op, int change) EXCLUDES(spoils_mutex_);
  void tell_spoilt() REQUIRES(spoils_mutex_);
  void set_unsaved(std::uint32_t which, bool unsaved) {
    if (page_ == nullptr) return;
    if (unsaved) {
      page_->unsaved.fetch_or(which);
    } else {
      page_->unsaved.fetch_and(~which);
    }
  }

  Fd file_;
  Page* page_ = nullptr;
  std::uint16_t client_knows_ = commands::kOpMax;
  std::atomic<std::uint16_t> for_good_{0};
  Mutex spoils_mutex_;
  std::map<std::uint16_t, int> spoilers_ GUARDED_BY(spoils_mutex_);  // How many, by op.
  Snapshot snapshot_{file_, kBytes};
  GraphLog graphs_{file_, kBytes + Snapshot::kBytes};
  bool changed_ = false;  // Main thread only.
};

// Something that cannot be made again: the session cannot be taken over while it lives. Belongs to
// one thread at a time.
class Spoiler {
 public:
  Spoiler() = default;
  Spoiler(Marks& marks, std::uint16_t op) : marks_(&marks), op_(op) {
    marks.change_spoilers(op, 1);
  }
  Spoiler(Spoiler&& other) noexcept
      : marks_(std::exchange(other.marks_, nullptr)), op_(other.op_) {}
  Spoiler& operator=(Spoiler&& other) noexcept {
    std::swap(marks_, other.marks_);
    std::swap(op_, other.op_);
    return *this;
  }
  ~Spoiler() {
    if (marks_ != nullptr) marks_->change_spoilers(op_, -1);
  }
  explicit operator bool() const { return marks_ != nullptr; }

 private:
  Marks* marks_ = nullptr;
  std::uint16_t op_ = 0;
};

}  // namespace flyt::server
