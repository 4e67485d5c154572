// HostMirror: memory of this process that stands, at the same addresses, for host memory of the
// client that kernels reach.
#include "server/memory/host_mirror.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/system_memory.h"
#include "commands/graph.h"
#include "commands/launch.h"
#include "commands/library.h"
#include "commands/memory.h"
#include "commands/module.h"
#include "commands/pinned.h"
#include "server/graphs/graphs.h"
#include "server/recovery/recovery.h"
#include "server/session.h"
#include "transport/transport.h"
#include "wire/host_memory.h"
#include "wire/memory_changes.h"

namespace flyt::server {
namespace {

constexpr std::uint64_t kAddressMax = std::uint64_t{1} << 47;

// Commands whose success says nothing about earlier work.
bool tells_nothing(std::uint16_t op) {
  switch (op) {
    case commands::MapHost::kOp:
    case commands::ShareHost::kOp:
    case commands::MemAlloc::kOp:
    case commands::MemInfo::kOp:
    case commands::TryLaunchKernel::kOp:
    case commands::GetFunction::kOp:
    case commands::GetGlobal::kOp:
    case commands::GetLibraryGlobal::kOp:
    case commands::HearPosts::kOp:
    case commands::BeginCapture::kOp:
    case commands::EndCapture::kOp:
    case commands::CaptureInfo::kOp:
    case commands::CaptureCopy::kOp:
    case commands::CreateGraph::kOp:
    case commands::DestroyGraph::kOp:
    case commands::AddGraphNode::kOp:
    case commands::GetGraphNode::kOp:
    case commands::ListGraph::kOp:
    case commands::InstantiateGraph::kOp:
    case commands::UpdateGraphExec::kOp:
    case commands::SetExecNode::kOp:
    case commands::TryLaunchGraph::kOp:
      return true;
    default:
      return false;
  }
}

// Registered memory is there at once and cannot be swapped: where the machine has no more, the
// system ends processes to find some, whosever they are. A sixteenth stays for all the others.
bool machine_has(std::uint64_t bytes) {
  const auto memory = system_memory();
  if (!memory || bytes == 0) return true;
  const std::uint64_t kept = memory->total / 16;
  return memory->available > kept && bytes <= memory->available - kept;
}

// How much of a part of a sparse file is not there yet.
std::uint64_t holes_in(int file, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t end = offset + bytes;
  std::uint64_t holes = 0;
  while (offset < end) {
    const off_t data = ::lseek(file, static_cast<off_t>(offset), SEEK_DATA);
    const std::uint64_t next = data < 0 ? end : std::min<std::uint64_t>(end, data);
    holes += next - offset;
    const off_t hole = next == end ? -1 : ::lseek(file, static_cast<off_t>(next), SEEK_HOLE);
    offset = hole < 0 ? end : static_cast<std::uint64_t>(hole);
  }
  return holes;
}

}  // namespace

bool is_managed(const driver::Table& driver, CUdeviceptr address) {
  int managed = 0;
  return driver.cuPointerGetAttribute != nullptr &&
         driver.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) ==
             CUDA_SUCCESS &&
         managed != 0;
}

HostMirror::~HostMirror() = default;

CUresult HostMirror::admit(std::uint64_t address, std::uint64_t bytes) const {
  if (bytes == 0 || bytes > kAddressMax || address >= kAddressMax - bytes ||
      address < Pages::kPageBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (ranges_.size() >= kRangesMax) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto next = ranges_.lower_bound(address);
  if (next != ranges_.end() && next->first < address + bytes) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  if (next != ranges_.begin()) {
    const auto& [base, range] = *std::prev(next);
    if (address - base < range.bytes) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  return CUDA_SUCCESS;
}

CUresult HostMirror::map(std::uint64_t address, std::uint64_t bytes, unsigned int flags,
                         std::uint32_t context) {
  const Lock lock(mutex_);
  if (const CUresult bad = admit(address, bytes); bad != CUDA_SUCCESS) return bad;
  if (bytes > kBytesMax - bytes_ || !machine_has(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range{bytes, context, (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0,
              true,  false,   Pages::make(bytes)};
  if ((flags & wire::kMapManaged) != 0 && !charge(range)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!range.shadow || !take_pages(address, range, -1, 0)) return CUDA_ERROR_OUT_OF_MEMORY;
  return let_gpu_use(address, std::move(range), flags & ~wire::kMapManaged);
}

// Where the session goes on the lease has had what it had; the rest it asks for.
bool HostMirror::charge(Range& range) {
  CUdevice device = 0;
  static_cast<void>(session_.driver().cuCtxGetDevice(&device));
  const Recovery* const recovery = session_.recovery();
  const std::uint64_t had = recovery != nullptr && recovery->restoring()
                                ? recovery->before()->managed_bytes - had_bytes_
                                : 0;
  if (range.bytes > had) return range.charge.reserve(device, range.bytes);
  range.charge = UsedMemory(device, range.bytes);
  had_bytes_ += range.bytes;
  return true;
}

void HostMirror::tell_managed() {
  if (session_.recovery() != nullptr)
    session_.recovery()->marks().set_managed_bytes(managed_bytes_);
}

CUresult HostMirror::share(std::uint64_t address, std::uint64_t bytes, std::uint64_t offset,
                           unsigned int flags, std::uint32_t context) {
  const int file = session_.endpoint().shared_file();
  if (file < 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (address % Pages::kPageBytes != 0 || offset % Pages::kPageBytes != 0 ||
      offset > transport::kSharedFileBytes || bytes > transport::kSharedFileBytes - offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Lock lock(mutex_);
  if (const CUresult bad = admit(address, bytes); bad != CUDA_SUCCESS) return bad;
  if (!machine_has(holes_in(file, offset, bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range{bytes, context, false, true, true, {}};
  if ((flags & wire::kMapManaged) != 0 && !charge(range)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!take_pages(address, range, file, offset)) return CUDA_ERROR_OUT_OF_MEMORY;
  return let_gpu_use(address, std::move(range), flags & ~wire::kMapManaged);
}

bool HostMirror::take_pages(std::uint64_t address, Range& range, int file, std::uint64_t offset) {
  range.in_graphs = pages_.keeps(address, range.bytes);
  // In the middle of what is kept it makes two parts of that.
  if (range.in_graphs && in_graphs_ + pages_.kept() + 2 > kInGraphsMax) return false;
  return pages_.map(address, range.bytes, file, offset);
}

// Registers what was mapped, or unmaps it.
CUresult HostMirror::let_gpu_use(std::uint64_t address, Range range, unsigned int flags) {
  const driver::Table& driver = session_.driver();
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if ((flags & ~unsigned{CU_MEMHOSTREGISTER_READ_ONLY}) != 0) {
    result = CUDA_ERROR_INVALID_VALUE;
  } else if (driver.cuMemHostRegister_v2 != nullptr && driver.cuMemHostUnregister != nullptr &&
             driver.cuMemHostGetDevicePointer_v2 != nullptr) {
    result = driver.cuMemHostRegister_v2(
        pointer_at(address), range.bytes,
        flags | CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  }
  if (result == CUDA_SUCCESS) {
    CUdeviceptr device_address = 0;
    result = driver.cuMemHostGetDevicePointer_v2(&device_address, pointer_at(address), 0);
    // No pointer is ever translated.
    if (result == CUDA_SUCCESS && device_address != address) result = CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS) driver.cuMemHostUnregister(pointer_at(address));
  }
  if (result != CUDA_SUCCESS) {
    pages_.unmap(address, range.bytes, range.in_graphs);
    return result;
  }
  insert(address, std::move(range));
  return CUDA_SUCCESS;
}

CUresult HostMirror::adopt(std::uint64_t address, std::uint64_t bytes) {
  const Lock lock(mutex_);
  if (const CUresult bad = admit(address, bytes); bad != CUDA_SUCCESS) return bad;
  if (bytes > kBytesMax - bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range{bytes, 0, false, false, false, Pages::make(bytes)};
  if (!range.shadow) return CUDA_ERROR_OUT_OF_MEMORY;
  insert(address, std::move(range));
  return CUDA_SUCCESS;
}

void HostMirror::insert(std::uint64_t address, Range range) {
  if (!range.shared) bytes_ += range.bytes;
  if (range.charge.bytes() != 0) {
    managed_bytes_ += range.bytes;
    tell_managed();
  }
  if (range.ours) session_.regions().add({address, range.bytes, Regions::Kind::kPinned});
  if (range.in_graphs) ++in_graphs_;
  ranges_.emplace(address, std::move(range));
  any_.store(bytes_ != 0, std::memory_order_release);
}

void HostMirror::erase(Ranges::iterator range) {
  const std::uint64_t address = range->first;
  const std::uint64_t bytes = range->second.bytes;
  if (range->second.ours) {
    session_.regions().remove(address);
    if (!range->second.ending) session_.driver().cuMemHostUnregister(pointer_at(address));
    pages_.unmap(address, bytes, range->second.in_graphs);
  }
  if (range->second.in_graphs) --in_graphs_;
  if (!range->second.shared) bytes_ -= bytes;
  if (range->second.charge.bytes() != 0) {
    managed_bytes_ -= bytes;
    tell_managed();
  }
  ranges_.erase(range);
  any_.store(bytes_ != 0, std::memory_order_release);
}

CUresult HostMirror::unmap(std::uint64_t address, std::uint32_t context) {
  {
    const Lock lock(mutex_);
    const auto found = ranges_.find(address);
    if (found == ranges_.end()) return CUDA_ERROR_INVALID_VALUE;
    if (found->second.context != 0) context = found->second.context;
  }
  CUresult result = session_.enter(context);
  if (result == CUDA_SUCCESS) result = session_.graphs().wait_for_context(context);
  {
    const Lock lock(mutex_);
    const auto found = ranges_.find(address);
    if (found == ranges_.end() || found->second.ending) return CUDA_ERROR_INVALID_VALUE;
    send_range(address, found->second);
    if (!found->second.ours) {
      erase(found);
      return result;
    }
    found->second.ending = true;
  }
  // Without the lock: the driver may wait for work that has come meanwhile, and a function of the
  // client's in it for the commands of others.
  session_.driver().cuMemHostUnregister(pointer_at(address));
  const Lock lock(mutex_);
  erase(ranges_.find(address));
  return result;
}

bool HostMirror::write(Bytes changes) {
  wire::MemoryChangesReader reader(changes);
  wire::MemoryChange change;
  const Lock lock(mutex_);
  while (reader.next(change)) {
    auto found = ranges_.upper_bound(change.address);
    if (found == ranges_.begin()) return false;
    --found;
    if (found->second.shared) return false;
    const std::uint64_t offset = change.address - found->first;
    if (offset >= found->second.bytes || change.bytes > found->second.bytes - offset) return false;
    change.apply(static_cast<std::byte*>(pointer_at(change.address)));
    change.apply(found->second.shadow.data() + offset);
  }
  return reader.ok();
}

void HostMirror::send_range(std::uint64_t address, Range& range) {
  if (range.read_only || range.shared) return;
  wire::MemoryChanges changes;
  std::uint64_t at = 0;
  while (at < range.bytes) {
    at += changes.collect(address + at, static_cast<const std::byte*>(pointer_at(address + at)),
                          range.shadow.data() + at, range.bytes - at);
    if (changes.empty()) continue;
    if (session_.recovery() != nullptr) session_.recovery()->marks().count_push();
    session_.endpoint().push_memory(changes.bytes());
    changes.clear();
  }
}

void HostMirror::send_changes() {
  if (!any_.load(std::memory_order_acquire)) return;
  const Lock lock(mutex_);
  for (auto& [address, range] : ranges_) send_range(address, range);
}

bool HostMirror::before_delivery() {
  if (!any_.load(std::memory_order_acquire)) return false;
  send_changes();
  const Lock lock(mutex_);
  return in_graphs_ > 0;
}

void HostMirror::before_reply(std::uint16_t op) {
  if (any_.load(std::memory_order_acquire) && !tells_nothing(op)) send_changes();
}

bool HostMirror::note_in_graphs(std::uint64_t address, std::uint64_t bytes) {
  const Lock lock(mutex_);
  auto at = ranges_.upper_bound(address);
  if (at != ranges_.begin()) --at;
  for (; at != ranges_.end() && at->first < address + bytes; ++at) {
    if (at->first + at->second.bytes <= address || at->second.in_graphs) continue;
    if (in_graphs_ + pages_.kept() >= kInGraphsMax) return false;
    at->second.in_graphs = true;
    ++in_graphs_;
  }
  return true;
}

void HostMirror::drop_adopted(std::uint64_t address) {
  if (!any_.load(std::memory_order_acquire)) return;
  const Lock lock(mutex_);
  const auto found = ranges_.find(address);
  if (found != ranges_.end() && !found->second.ours) erase(found);
}

void HostMirror::drop_context(std::uint32_t context) {
  const Lock lock(mutex_);
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    const auto next = std::next(at);
    if (at->second.ours && !at->second.ending && at->second.context == context) erase(at);
    at = next;
  }
}

}  // namespace flyt::server
