// Recovery: what lets another process of the server go on with a session whose own was killed.
#include "server/recovery/recovery.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "commands/memory.h"
#include "commands/vmm.h"

namespace flyt::server {
namespace {

// A process that was killed has ended when its driver has let go of the GPU.
constexpr Duration kGoneTime = std::chrono::seconds(5);

KeptKind kind_of(const Block& block) { return block.slab ? KeptKind::kSlab : KeptKind::kBlock; }

}  // namespace

Token as_token(const wire::SessionToken& bytes) {
  Token token{};
  std::memcpy(token.data(), bytes.data(), token.size());
  return token;
}

Status Recovery::begin(const wire::ClientHello& hello) {
  if (!hello.recoverable) return {};
  const bool goes_on = hello.recovers != wire::SessionToken{};
  if (!keeping_.present()) {
    if (goes_on) return Error{ErrorCode::kInvalid, "this server keeps no sessions"};
    return {};
  }
  if (goes_on) {
    if (Status taken = take_over(as_token(hello.recovers)); !taken) return taken;
    token_ = hello.recovers;
    began_ = system_clock().now();
    restoring_.store(true, std::memory_order_release);
    return marks_.make(hello.highest_op);
  }
  // Without the keeper the session is as good as any other.
  const auto token = keeping_.open();
  if (!token || !marks_.make(hello.highest_op)) return {};
  std::memcpy(token_.data(), token->data(), token_.size());
  end_restoring();
  return {};
}

Status Recovery::take_over(const Token& token) {
  const Instant deadline = system_clock().now() + kGoneTime;
  auto kept = keeping_.take_over(token, deadline);
  if (!kept) return std::move(kept).error();
  for (Kept& item : *kept) {
    switch (item.kind) {
      case KeptKind::kMarks: {
        auto told = Marks::read(item.file);
        if (!told) return std::move(told).error();
        if (told->variables) {
          const Lock lock(variables_mutex_);
          variables_ = std::make_shared<Snapshot::Read>(*std::exchange(told->variables, {}));
        }
        before_ = std::move(*told);
        break;
      }
      case KeptKind::kHostFile:
        if (item.id == 0) {
          host_file_ = std::move(item.file);
        } else {
          const Lock lock(arrays_mutex_);
          arrays_.insert_or_assign(item.id, std::move(item.file));
        }
        break;
      case KeptKind::kBlock:
      case KeptKind::kSlab:
      case KeptKind::kAllocation:
        memory_.push_back(std::move(item));
        break;
    }
  }
  if (!before_) return Error{ErrorCode::kInvalid, "the session has no marks"};
  // What runs on the GPU may still write to the memory.
  return before_->work == before_->done ? Status() : keeping_.await_end(deadline);
}

Fd Recovery::take_host_file() { return std::move(host_file_); }

void Recovery::keep_host_file(int file) {
  if (!on() || file < 0) return;
  const Kept kept{.kind = KeptKind::kHostFile, .file = Fd(::dup(file))};
  keeping_.keep(kept);
}

Fd Recovery::take_array(std::uint64_t handle) {
  const Lock lock(arrays_mutex_);
  const auto found = arrays_.find(handle);
  if (found == arrays_.end()) return {};
  Fd file = std::move(found->second);
  arrays_.erase(found);
  return file;
}

bool Recovery::had_array(std::uint64_t handle, std::uint64_t bytes) {
  const Lock lock(arrays_mutex_);
  const auto found = arrays_.find(handle);
  struct stat status {};
  return found != arrays_.end() && ::fstat(found->second.get(), &status) == 0 &&
         status.st_size == static_cast<off_t>(bytes);
}

void Recovery::keep_array(std::uint64_t handle, const Fd& file) {
  keeping_.keep({.kind = KeptKind::kHostFile, .id = handle, .file = Fd(::dup(file.get()))});
}

void Recovery::drop_array(std::uint64_t handle) { keeping_.drop(KeptKind::kHostFile, handle); }

void Recovery::keep_block(const driver::Table& driver, const Block& block) {
  if (!on() || marks_.spoilt_for_good()) return;
  Fd file = export_memory(driver, block.handle, commands::MemAlloc::kOp);
  if (!file.valid()) return;
  keeping_.keep({kind_of(block), block.address, block.bytes, block.device, std::move(file)});
}

Fd Recovery::export_memory(const driver::Table& driver, CUmemGenericAllocationHandle native,
                           std::uint16_t op) {
  int number = -1;
  if (driver.cuMemExportToShareableHandle == nullptr || native == 0 ||
      driver.cuMemExportToShareableHandle(&number, native, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          0) != CUDA_SUCCESS) {
    marks_.spoil(op);
    return {};
  }
  return Fd(number);
}

void Recovery::keep_allocation(const driver::Table& driver, std::uint64_t handle,
                               CUmemGenericAllocationHandle native, std::uint64_t bytes,
                               CUdevice device) {
  if (!on() || marks_.spoilt_for_good()) return;
  Fd file = export_memory(driver, native, commands::VmmCreate::kOp);
  if (file.valid()) {
    keeping_.keep({KeptKind::kAllocation, handle, bytes, device, std::move(file)});
  }
}

void Recovery::drop_allocation(std::uint64_t handle) {
  if (on()) keeping_.drop(KeptKind::kAllocation, handle);
}

void Recovery::drop_block(const Block& block) {
  if (on()) keeping_.drop(kind_of(block), block.address);
}

void Recovery::end_restoring() {
  restoring_.store(false, std::memory_order_release);
  {
    const Lock lock(arrays_mutex_);
    for (const auto& [handle, file] : std::exchange(arrays_, {})) drop_array(handle);
  }
  keeping_.keep({.kind = KeptKind::kMarks, .file = Fd(::dup(marks_.file().get()))});
  keeping_.counted();
}

}  // namespace flyt::server
