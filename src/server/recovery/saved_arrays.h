// SavedArrays: what a session's arrays hold is saved whenever all work is done, so that another
// process can go on with the session.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/fd.h"
#include "cuda/types.h"
#include "server/recovery/marks.h"
#include "wire/handle.h"

namespace flyt::server {

class MovedVariables;  // server/recovery/moved_variables.h
class Session;

// No driver lets another process have an array's memory. Each array has a file of its own, which
// the keeper holds; it takes no memory before the array is written to. Nothing is noted in a
// session that ends with its process. Safe from any thread.
class SavedArrays {
 public:
  // Of all of a session's together. What is beyond spoils the session while it is there.
  static constexpr std::uint64_t kBytesMax = 256 * kMiB;

  explicit SavedArrays(Session& session) : session_(session) {}
  ~SavedArrays();
  SavedArrays(const SavedArrays&) = delete;
  SavedArrays& operator=(const SavedArrays&) = delete;

  struct Shape {
    wire::HandleKind kind = wire::HandleKind::kArray;  // Or kMipmappedArray.
    std::uint32_t context = 0;                         // Handle index.
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    unsigned levels = 1;
  };
  // A new one, of which the client has not heard. Where the session goes on here it gets what it
  // held. Its context is current; under use().
  CUresult add(std::uint64_t handle, const Shape& shape) EXCLUDES(mutex_);
  void forget(std::uint64_t handle) EXCLUDES(mutex_);
  void forget_context(std::uint32_t context) EXCLUDES(mutex_);
  // A copy writes to it; graphs to any of them.
  void touch(std::uint64_t handle) EXCLUDES(mutex_);
  void touch_all() EXCLUDES(mutex_);

  // Main thread, under use(), when all work is done: saves what may have changed. `worked`: kernels
  // may have run since the last time. False: a fault on the GPU is in the way.
  bool save(bool worked) EXCLUDES(mutex_);
  // Whether what was saved holds the address of such a variable.
  bool any_holds(const MovedVariables& moved) EXCLUDES(mutex_);

 private:
  struct Saved {
    Shape shape;
    std::uint64_t bytes = 0;
    bool dirty = false;
    Fd file;                // None: it is beyond the limit.
    MutableBytes contents;  // Mapped.
    Spoiler spoiler;        // It is beyond the limit.
  };
  using All = std::map<std::uint64_t, Saved>;
  enum class Way : std::uint8_t { kOut, kIn };

  bool wanted() const;
  void erase(All::iterator saved) REQUIRES(mutex_);
  bool fits(std::uint64_t bytes) const REQUIRES(mutex_) { return bytes <= kBytesMax - bytes_; }
  bool map(Saved& saved) REQUIRES(mutex_);
  CUresult make_file(std::uint64_t handle, Saved& saved) REQUIRES(mutex_);
  CUresult save_one(std::uint64_t handle, Saved& saved) REQUIRES(mutex_);
  // Between the array, whose context is current, and its file.
  CUresult copy(std::uint64_t handle, const Saved& saved, Way way) REQUIRES(mutex_);
  CUresult copy_level(CUarray array, const Shape& shape, unsigned level, MutableBytes& place,
                      Way way) const;

  Session& session_;
  Mutex mutex_;
  All all_ GUARDED_BY(mutex_);                  // By handle.
  std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;  // Of those within the limit.
};

}  // namespace flyt::server
