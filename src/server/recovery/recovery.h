// Recovery: what lets another process of the server go on with a session whose own was killed.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "driver/table.h"
#include "server/memory/arena.h"
#include "server/recovery/keeper.h"
#include "server/recovery/marks.h"
#include "wire/hello.h"

namespace flyt::server {

// As the keeper spells it.
Token as_token(const wire::SessionToken& bytes);

// A session that goes on must be as it was by then; a client sends its code and host memory anew.
inline constexpr Duration kRestoringMax = std::chrono::minutes(10);

// One session's. Members say which threads may use them; what is not said belongs to the thread
// that makes the session.
class Recovery {
 public:
  // As of Keeping.
  Recovery(int door, std::uint32_t user, std::uint64_t place) : keeping_(door, user, place) {}

  // As the hello wishes: nothing, a session that could go on elsewhere, or one that goes on here.
  // An error: it cannot go on.
  Status begin(const wire::ClientHello& hello);
  // The session can go on elsewhere. Safe from any thread.
  bool on() const { return token_ != wire::SessionToken{}; }
  const wire::SessionToken& token() const { return token_; }
  // It goes on here, and the process before had come so far.
  const std::optional<Marks::Told>& before() const { return before_; }

  // Host memory that both sides share: of the session that goes on here, if it had some.
  Fd take_host_file();
  void keep_host_file(int file);
  // Device memory of the session that goes on here. Once.
  std::vector<Kept> take_memory() { return std::exchange(memory_, {}); }

  // What its arrays held, by their handles, if that was saved: each once. And those of now. Safe
  // from any thread.
  Fd take_array(std::uint64_t handle) EXCLUDES(arrays_mutex_);
  // Whether such a file, of so many bytes, is there to be taken.
  bool had_array(std::uint64_t handle, std::uint64_t bytes) EXCLUDES(arrays_mutex_);
  void keep_array(std::uint64_t handle, const Fd& file);
  void drop_array(std::uint64_t handle);

  // What variables of its code held, if that was saved; null: it was not, or was taken. Safe from
  // any thread.
  std::shared_ptr<Snapshot::Read> variables() const EXCLUDES(variables_mutex_) {
    const Lock lock(variables_mutex_);
    return variables_;
  }
  // Once, when its code is loaded; who looks at it then keeps it.
  std::shared_ptr<Snapshot::Read> take_variables() EXCLUDES(variables_mutex_) {
    const Lock lock(variables_mutex_);
    return std::exchange(variables_, nullptr);
  }

  // What its graphs were. Once; main thread.
  std::vector<GraphLog::Entry> take_graphs() {
    return before_ ? std::exchange(before_->graphs, {}) : std::vector<GraphLog::Entry>();
  }

  // Device memory, exported by the driver. What cannot be kept spoils the session. Safe from any
  // thread.
  void keep_block(const driver::Table& driver, const Block& block);
  void drop_block(const Block& block);
  // The same of cuMemCreate, by the client's handle.
  void keep_allocation(const driver::Table& driver, std::uint64_t handle,
                       CUmemGenericAllocationHandle native, std::uint64_t bytes, CUdevice device);
  void drop_allocation(std::uint64_t handle);

  // All is as it was: from here on the marks are this process's. Safe from any thread.
  void end_restoring();
  // Until then, in a process that goes on with a session: what it had is made again, which had its
  // place in the lease before. Safe from any thread.
  bool restoring() const { return restoring_.load(std::memory_order_acquire); }
  // It has been for too long. Safe from any thread.
  bool overdue(Instant now) const { return restoring() && now - began_ > kRestoringMax; }
  // The session ends in order. Safe from any thread.
  void end() { keeping_.end(); }

  Marks& marks() { return marks_; }
  // It has something that can never be made again.
  bool spoilt() const { return marks_.spoilt_for_good(); }
  // It has nothing, at the moment, that cannot be made again. Safe from any thread.
  bool may_go_on() const { return !marks_.spoilt(); }

 private:
  Status take_over(const Token& token);
  // Without a file: what the driver does not export. `op` is what to blame.
  Fd export_memory(const driver::Table& driver, CUmemGenericAllocationHandle native,
                   std::uint16_t op);

  Keeping keeping_;
  Marks marks_;
  wire::SessionToken token_{};
  std::optional<Marks::Told> before_;  // Without its variables, which are beside.
  mutable Mutex variables_mutex_;
  std::shared_ptr<Snapshot::Read> variables_ GUARDED_BY(variables_mutex_);
  Fd host_file_;
  std::vector<Kept> memory_;
  Instant began_{};
  std::atomic<bool> restoring_{false};
  Mutex arrays_mutex_;
  std::map<std::uint64_t, Fd> arrays_ GUARDED_BY(arrays_mutex_);
};

}  // namespace flyt::server
