// Roll: who of several processes is there, and a few words that all of them share: a file, mapped,
// of which each process locks a place while it lives.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "base/fd.h"
#include "base/result.h"

namespace flyt {

// Whatever a process dies of, its places are free from then on: the system keeps the locks. Of
// different opens of one file, also in one process; a process forked meanwhile shares them. Safe
// from any thread, but for door locks, which exclude processes and not threads.
class Roll {
 public:
  static constexpr std::size_t kPlacesMax = 4096;

  // Makes the file, mode 0600 and all zeroes, if there is none. kDenied: another user's. The memory
  // is of so many bytes, in whole pages.
  static Result<Roll> open(const std::string& path, std::size_t bytes);
  Roll(Roll&& other) noexcept;
  Roll& operator=(Roll&&) = delete;
  ~Roll();

  void* memory() const { return memory_; }

  // The first free place below `count`; none: all are taken.
  std::optional<std::size_t> take(std::size_t count) const { return take(0, count); }
  // The same from `first` on and below `end`. One's own are as good as free ones.
  std::optional<std::size_t> take(std::size_t first, std::size_t end) const;
  // One's own.
  void leave(std::size_t place) const;
  // By somebody else.
  bool taken(std::size_t place) const;
  // The first place of others from `place` on and below `count` that is taken.
  std::optional<std::size_t> next_taken(std::size_t place, std::size_t count) const;

  // Only one process at a time is behind the door.
  class Door {
   public:
    explicit Door(const Roll& roll);
    ~Door();
    Door(const Door&) = delete;
    Door& operator=(const Door&) = delete;

   private:
    const Roll& roll_;
  };

 private:
  Roll(Fd file, void* memory, std::size_t bytes)
      : file_(std::move(file)), memory_(memory), bytes_(bytes) {}

  Fd file_;
  void* memory_;
  std::size_t bytes_;
};

}  // namespace flyt
