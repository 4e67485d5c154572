// UsageBoard: what each session tells the others of itself, in memory that all of the server's
// processes share: who its client is, and what it has of each GPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cuda/types.h"

namespace flyt::server {

// GPUs of which use is told; what a session has of others is nobody's business.
inline constexpr std::size_t kUsageDevicesMax = 64;

struct UsageRow;

// One session's place on the board; one made without a board tells nobody. Safe from any thread.
class UsageSlot {
 public:
  UsageSlot() = default;
  explicit UsageSlot(UsageRow* row) : row_(row) {}
  UsageRow* row() const { return row_; }

  // Once, when the client is known. `process` is its number on its own `machine`.
  void publish(std::uint32_t process, std::string_view machine) const;

  // Physical memory of a device that the session has taken, and given back.
  void took(CUdevice device, std::uint64_t bytes) const;
  void gave(CUdevice device, std::uint64_t bytes) const;
  void context_made(CUdevice device) const;
  void context_ended(CUdevice device) const;

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

  std::uint64_t bytes() const { return bytes_; }
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

  static constexpr std::size_t kNoSlot = ~std::size_t{0};

  // Shared with all processes forked later.
  static Result<std::unique_ptr<UsageBoard>> create(std::size_t slots);
  ~UsageBoard();
  UsageBoard(const UsageBoard&) = delete;
  UsageBoard& operator=(const UsageBoard&) = delete;

  // The parent process alone: gives a child a place, and takes it back when the child has ended.
  // kNoSlot if all are taken.
  std::size_t claim();
  void release(std::size_t slot);

  UsageSlot slot(std::size_t slot);
  // The sessions that have something of a device now.
  std::vector<Use> uses(CUdevice device) const;

 private:
  UsageBoard(UsageRow* rows, std::size_t count);

  UsageRow* const rows_;
  const std::size_t count_;
  std::vector<bool> claimed_;
};

}  // namespace flyt::server
