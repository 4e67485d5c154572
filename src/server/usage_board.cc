#include "server/usage_board.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "transport/machine.h"

namespace flyt::server {

// Written by one child, read by others at any moment; cleared by the parent when it has ended.
struct UsageRow {
  struct Device {
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint32_t> contexts{0};
  };

  // The server's process; stored last, so what stands below is there once this is.
  std::atomic<std::uint32_t> server_process{0};
  std::uint32_t client_process = 0;
  std::array<char, transport::kMachineBytesMax + 1> machine{};
  std::array<Device, kUsageDevicesMax> devices{};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

namespace {

constinit std::atomic<UsageRow*> own_row{nullptr};

UsageRow::Device* find(UsageRow* row, CUdevice device) {
  const auto index = static_cast<std::size_t>(device);
  return row == nullptr || index >= row->devices.size() ? nullptr : &row->devices[index];
}

}  // namespace

UsageSlot own_usage() { return UsageSlot(own_row.load(std::memory_order_relaxed)); }
void take_usage_slot(UsageSlot slot) { own_row.store(slot.row(), std::memory_order_relaxed); }

void UsedMemory::resize(std::uint64_t bytes) {
  const UsageSlot usage = own_usage();
  if (bytes > bytes_) usage.took(device_, bytes - bytes_);
  if (bytes < bytes_) usage.gave(device_, bytes_ - bytes);
  bytes_ = bytes;
}

void UsageSlot::publish(std::uint32_t process, std::string_view machine) const {
  if (row_ == nullptr) return;
  row_->client_process = process;
  const std::string_view text = machine.substr(0, row_->machine.size() - 1);
  std::memcpy(row_->machine.data(), text.data(), text.size());
  row_->server_process.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_release);
}

void UsageSlot::took(CUdevice device, std::uint64_t bytes) const {
  if (auto* use = find(row_, device)) use->bytes.fetch_add(bytes, std::memory_order_relaxed);
}
void UsageSlot::gave(CUdevice device, std::uint64_t bytes) const {
  if (auto* use = find(row_, device)) use->bytes.fetch_sub(bytes, std::memory_order_relaxed);
}
void UsageSlot::context_made(CUdevice device) const {
  if (auto* use = find(row_, device)) use->contexts.fetch_add(1, std::memory_order_relaxed);
}
void UsageSlot::context_ended(CUdevice device) const {
  if (auto* use = find(row_, device)) use->contexts.fetch_sub(1, std::memory_order_relaxed);
}

UsageBoard::UsageBoard(UsageRow* rows, std::size_t count)
    : rows_(rows), count_(count), claimed_(count) {}

UsageBoard::~UsageBoard() { ::munmap(rows_, count_ * sizeof(UsageRow)); }

Result<std::unique_ptr<UsageBoard>> UsageBoard::create(std::size_t slots) {
  void* memory = ::mmap(nullptr, slots * sizeof(UsageRow), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return system_error("mmap", errno);
  // Zeroes are what a new row holds, so that pages nobody needs are never touched.
  auto* rows = static_cast<UsageRow*>(memory);
  return std::unique_ptr<UsageBoard>(new UsageBoard(rows, slots));
}

std::size_t UsageBoard::claim() {
  const auto free = std::find(claimed_.begin(), claimed_.end(), false);
  if (free == claimed_.end()) return kNoSlot;
  *free = true;
  return static_cast<std::size_t>(free - claimed_.begin());
}

void UsageBoard::release(std::size_t slot) {
  if (slot >= count_) return;
  claimed_[slot] = false;
  rows_[slot].server_process.store(0, std::memory_order_release);
  for (UsageRow::Device& device : rows_[slot].devices) {
    device.bytes.store(0, std::memory_order_relaxed);
    device.contexts.store(0, std::memory_order_relaxed);
  }
  rows_[slot].machine.fill('\0');
}

UsageSlot UsageBoard::slot(std::size_t slot) {
  return slot < count_ ? UsageSlot(&rows_[slot]) : UsageSlot();
}

std::vector<UsageBoard::Use> UsageBoard::uses(CUdevice device) const {
  std::vector<Use> found;
  for (std::size_t i = 0; i < count_; ++i) {
    UsageRow& row = rows_[i];
    const std::uint32_t server = row.server_process.load(std::memory_order_acquire);
    const auto* use = find(&row, device);
    if (server == 0 || use == nullptr) continue;
    Use one{.client_process = row.client_process,
            .server_process = server,
            .machine = {},
            .bytes = use->bytes.load(std::memory_order_relaxed),
            .has_context = use->contexts.load(std::memory_order_relaxed) != 0};
    one.machine.assign(row.machine.data(), ::strnlen(row.machine.data(), row.machine.size()));
    // Given to another session meanwhile: what was read may be of both.
    if (row.server_process.load(std::memory_order_acquire) != server) continue;
    if (one.bytes != 0 || one.has_context) found.push_back(std::move(one));
  }
  return found;
}

}  // namespace flyt::server
