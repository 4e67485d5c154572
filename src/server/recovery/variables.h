// Variables: what code keeps in memory of its own is saved whenever all work is done, so that
// another process can go on with the session.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/result.h"
#include "cuda/types.h"
#include "server/handles.h"
#include "server/recovery/snapshot.h"
#include "server/recovery/variable_places.h"
#include "server/request.h"

namespace flyt::server {

class MovedVariables;  // server/recovery/moved_variables.h
class Session;

// All variables of a session that another process could go on with; of others none is noted. What
// cannot be saved spoils the session. Safe from any thread; those who name code hold
// Session::use().
class Variables {
 public:
  explicit Variables(Session& session);
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  // A session that goes on here is about to have code loaded, or asked for its functions: what was
  // loaded before that is loaded first, and the driver is brought to go on where it did then, so
  // that variables come to the same addresses. The request's context is current.
  void load_as_before(Request& request, std::uint64_t code) EXCLUDES(mutex_);
  // The same for a library that is about to be there, and for whose code nobody asks yet.
  void before_library(Request& request, std::uint64_t library);
  // A module has been loaded in the request's context, which is current. `image`: its code.
  void on_module(Request& request, std::uint64_t module, Bytes image) EXCLUDES(mutex_);
  // A library's code is used in the request's context, which is current.
  void on_library(Request& request, std::uint64_t library) EXCLUDES(mutex_);
  // One of its kernels has a handle, so that it may be launched in any context; there is another
  // context, which is current, and nothing in it yet.
  void on_kernel(std::uint64_t library) EXCLUDES(mutex_);
  void on_context(std::uint32_t context) EXCLUDES(mutex_);
  // Main thread, before a kernel is launched by its handle, in the request's context. Budget: two
  // loads and a store, but for kernels with variables that are launched in other contexts than that
  // in which they were found.
  void on_launch(Request& request, CUfunction kernel) EXCLUDES(mutex_) {
    launches_.store(launches_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (watching_.load(std::memory_order_relaxed)) look_at_launch(request, kernel);
  }
  // The program is about to be told a variable's address. `code`: a module or a library.
  struct Told {
    std::string_view name;
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    bool managed = false;
  };
  void on_told(Request& request, std::uint64_t code, bool is_library, const Told& told)
      EXCLUDES(mutex_);

  // Whether another process may have them elsewhere, as nothing knows where they are. Main thread,
  // under use(), when all work is done. Looks through all memory if there are any, once until there
  // is another command.
  bool may_move() EXCLUDES(mutex_);
  void forget_context(std::uint32_t context) EXCLUDES(mutex_);
  void forget_code(std::uint64_t handle) EXCLUDES(mutex_);

  // Main thread, under use(), when all work is done: saves what may have changed. `changed`: work
  // was begun since the last time.
  void save(bool changed) EXCLUDES(mutex_);
  // The session goes on here, and its code and memory are there, where nothing runs yet: variables
  // hold what they held. An error names one that does not, or that is elsewhere although something
  // may know where it was. Main thread, under use(). What they held may be changed.
  Status restore(Snapshot::Read& saved) EXCLUDES(mutex_);
  // All code that there was has been loaded again, or will not be.
  void end_restoring();

 private:
  struct Code {
    std::uint64_t handle = 0;
    bool is_library = false;
    void* native = nullptr;
    std::uint64_t launches = 0;  // Those that there were when nobody had launched its kernels.
  };

  bool wanted() const;
  void load_libraries_before(Request& request, const Snapshot::Read& saved, std::uint64_t code)
      EXCLUDES(mutex_);
  void spoil(std::uint16_t op, std::string_view why, std::string_view variable);
  // Where a variable is; its context is current.
  CUresult find(const Code& code, const std::string& name, std::uint64_t& address,
                std::uint64_t& bytes) const;
  // Those of code in a context that is current. `op`: to blame.
  void find_all(std::uint16_t op, std::uint32_t context, const Code& code, Bytes image)
      EXCLUDES(mutex_);
  void find_in_library(std::uint16_t op, std::uint32_t context, std::uint64_t library)
      EXCLUDES(mutex_);
  void look_at_launch(Request& request, CUfunction kernel) EXCLUDES(mutex_);
  void watch() EXCLUDES(mutex_);
  // False: `missing` is not there, or managed.
  bool find_named(const Code& code, std::uint32_t context, const std::vector<std::string>& names,
                  std::vector<SavedVariable>& found, std::string& missing) const;
  bool add(SavedVariable variable) REQUIRES(mutex_);
  // What they hold when their code has been loaded and nothing has run. Their context is current.
  void note_loaded(const Code& code, std::vector<SavedVariable>& found) const;

  // One that was saved, and is there: variables_restore.cc.
  struct Found;
  Status find_again(Snapshot::Read& saved, std::vector<Found>& found, MovedVariables& moved);
  Status renew(std::vector<Found>& found, const MovedVariables& moved);
  // Who knows where one of them was.
  struct Known {
    std::string name;
    std::string_view who;
  };
  bool nobody_knows() EXCLUDES(mutex_);
  Result<std::optional<Known>> look_for(const MovedVariables& moved);
  Status write_back(const Found& found) EXCLUDES(mutex_);
  Status save_all() REQUIRES(mutex_);
  CUresult copy_out(MutableBytes contents) REQUIRES(mutex_);

  Session& session_;
  VariablePlaces places_;
  mutable Mutex mutex_;
  std::vector<SavedVariable> all_ GUARDED_BY(mutex_);
  std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;
  // The last command when it was looked whether they may move, and what was found.
  std::optional<std::pair<std::uint64_t, bool>> movable_ GUARDED_BY(mutex_);
  // Libraries whose variables in a context are among them: handle, index.
  std::set<std::pair<std::uint64_t, std::uint32_t>> libraries_ GUARDED_BY(mutex_);
  std::set<std::uint64_t> with_kernels_ GUARDED_BY(mutex_);  // Libraries with handles of kernels.
  std::size_t loaded_as_before_ GUARDED_BY(mutex_) = 0;      // Of those that were saved.
  std::atomic<std::uint64_t> launches_{0};                   // By kernels' handles.
  std::atomic<bool> watching_{false};  // Launches may use such a library where it was not used yet.
};

}  // namespace flyt::server
