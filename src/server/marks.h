// Marks: how far a session has come, where it can be read when its process was killed.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace flyt::server {

// What a command means for a session whose process is lost.
enum class Role : std::uint8_t {
  kSpoils,  // It leaves something that nobody can make again, or is unknown.
  kPlain,   // The client makes again what it left, or it left nothing.
  kWork,    // It gives the GPU work, which may be under way or half done.
};
Role role_of(std::uint16_t op);

// Written by the main thread alone, two words a command.
class Marks {
 public:
  // Sequence numbers; 0: none.
  struct Told {
    std::uint64_t begun = 0;   // The last command.
    std::uint64_t work = 0;    // The last one of Role::kWork.
    std::uint64_t done = 0;    // All work up to it was found done.
    std::uint16_t spoilt = 0;  // The op that nobody can make up for; 0: none.
  };

  Marks() = default;
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // New ones, all 0. Until then nothing is noted.
  Status make();
  // The file of those of another process, which is gone.
  static Result<Told> read(const Fd& file);
  const Fd& file() const { return file_; }

  // Before the command does anything.
  void begin(std::uint64_t sequence, std::uint16_t op) {
    if (page_ == nullptr) return;
    const Role role = role_of(op);
    page_->begun.store(sequence, std::memory_order_relaxed);
    if (role == Role::kWork) page_->work.store(sequence, std::memory_order_relaxed);
    if (role == Role::kSpoils) spoil(op);
  }
  // Something else makes the session one that cannot be taken over; `op` is what to blame.
  void spoil(std::uint16_t op);
  bool spoilt() const { return page_ == nullptr || page_->spoilt.load() != 0; }
  // Work that was not found done.
  bool unsettled() const {
    return page_ != nullptr && page_->done.load(std::memory_order_relaxed) !=
                                   page_->work.load(std::memory_order_relaxed);
  }
  // All that was begun is done.
  void settle() { page_->done.store(page_->work.load(std::memory_order_relaxed)); }

 private:
  struct Page {
    std::atomic<std::uint64_t> begun;
    std::atomic<std::uint64_t> work;
    std::atomic<std::uint64_t> done;
    std::atomic<std::uint32_t> spoilt;
  };
  static constexpr std::size_t kBytes = 4096;
  static_assert(sizeof(Page) <= kBytes);

  Fd file_;
  Page* page_ = nullptr;
};

}  // namespace flyt::server
