// SharedMemory: memory that this process has given to others, and what it has opened of theirs.
#include "client/memory/shared_memory.h"

#include <poll.h>
#include <sys/socket.h>  // lint: allow(sockets): one that is never connected stands for memory
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "client/call.h"
#include "client/memory_state.h"
#include "commands/context.h"
#include "commands/ipc.h"
#include "commands/pool.h"
#include "commands/vmm.h"

namespace flyt::client {
namespace {

constexpr std::uint64_t kSharedGranularity = 2 * kMiB;

bool take_handle(Bytes bytes, SharedHandle& handle) {
  if (bytes.size() != handle.size()) return false;
  std::memcpy(handle.data(), bytes.data(), handle.size());
  return true;
}

// The handle that waits in a file of stand_in(); false if that is none.
bool look_into(int file, SharedHandle& handle) {
  return ::recv(file, handle.data(), handle.size(), MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC) ==
         static_cast<ssize_t>(handle.size());
}

}  // namespace

PoolTag pool_tag_of(const SharedHandle& handle) {
  PoolTag tag;
  std::memcpy(tag.data(), handle.data() + handle.size() - tag.size(), tag.size());
  return tag;
}

void set_pool_tag(SharedHandle& handle, const PoolTag& tag) {
  std::memcpy(handle.data() + handle.size() - tag.size(), tag.data(), tag.size());
}

template <class Command>
CUresult SharedMemory::export_by(const Command& command, const PoolTag& tag, Fd& file) {
  const Lock lock(mutex_);
  drop_dead_files();
  typename Command::Reply reply;
  rpc::Reply answer;
  const CUresult result = session_.ask(command, reply, answer);
  if (result != CUDA_SUCCESS) return result;
  SharedHandle handle{};
  if (!take_handle(reply.handle, handle)) return CUDA_ERROR_UNKNOWN;
  set_pool_tag(handle, tag);
  const CUresult stands = stand_in(handle, file);
  if (stands != CUDA_SUCCESS) static_cast<void>(session_.post(commands::Unshare{.handle = handle}));
  return stands;
}

CUresult SharedMemory::share(const Memory& memory, SharedHandle& handle) {
  const Lock lock(mutex_);
  const auto known = shared_.find(memory.base);
  if (known != shared_.end()) {
    handle = known->second;
    return CUDA_SUCCESS;
  }
  commands::ShareMemory::Reply reply;
  rpc::Reply answer;
  const CUresult result = session_.ask(
      commands::ShareMemory{.address = memory.base, .bytes = memory.bytes}, reply, answer);
  if (result != CUDA_SUCCESS) return result;
  if (!take_handle(reply.handle, handle)) return CUDA_ERROR_UNKNOWN;
  shared_.emplace(memory.base, handle);
  return CUDA_SUCCESS;
}

bool SharedMemory::is_own(const SharedHandle& handle) {
  const Lock lock(mutex_);
  return std::any_of(shared_.begin(), shared_.end(),
                     [&handle](const auto& shared) { return shared.second == handle; });
}

void SharedMemory::on_freed(std::uint64_t base) {
  const Lock lock(mutex_);
  const auto found = shared_.find(base);
  if (found == shared_.end()) return;
  static_cast<void>(session_.post(commands::Unshare{.handle = found->second}));
  shared_.erase(found);
}

void SharedMemory::release(std::uint64_t allocation) {
  commands::VmmRelease::Reply reply;
  rpc::Reply answer;
  static_cast<void>(session_.ask(commands::VmmRelease{.allocation = allocation}, reply, answer));
  // Only now: other threads' new ones get the handles of those that the server has let go.
  memory_.allocations.drop(allocation);
}

CUresult SharedMemory::ask_for(const SharedHandle& handle, Block& block) {
  const auto made = memory_.allocations.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  commands::OpenShared::Reply reply;
  rpc::Reply answer;
  const CUresult result = session_.ask(
      commands::OpenShared{.allocation = made.handle, .handle = handle}, reply, answer);
  if (result != CUDA_SUCCESS) {
    memory_.allocations.discard(made.handle);
    return result;
  }
  block = {made.handle, reply.bytes, reply.offset, reply.size, reply.device, reply.block_id};
  made.state->bytes = reply.bytes;
  made.state->block_id = reply.block_id;
  made.state->properties = {};
  made.state->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  made.state->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  made.state->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, reply.device};
  made.state->references = 1;
  memory_.allocations.publish(made.handle);
  const bool sane = block.bytes != 0 && block.bytes % kSharedGranularity == 0 && block.size != 0 &&
                    block.offset < block.bytes && block.size <= block.bytes - block.offset &&
                    check_device(block.device) == CUDA_SUCCESS;
  if (sane) return CUDA_SUCCESS;
  release(made.handle);
  return CUDA_ERROR_MAP_FAILED;
}

CUresult SharedMemory::grant(std::uint64_t base, std::uint64_t bytes, CUdevice device,
                             bool allowed) {
  const std::uint32_t flags =
      allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  commands::VmmSetAccess::Reply reply;
  rpc::Reply answer;
  return session_.ask(
      commands::VmmSetAccess{.address = base, .bytes = bytes, .device = device, .access = flags},
      reply, answer);
}

CUresult SharedMemory::map_block(const Block& block, std::uint64_t base, std::uint64_t accessors) {
  commands::VmmMap::Reply reply;
  rpc::Reply answer;
  CUresult result = session_.ask(
      commands::VmmMap{.address = base, .bytes = block.bytes, .allocation = block.allocation},
      reply, answer);
  if (result != CUDA_SUCCESS) return result;
  if (context().device < kAccessorsMax) accessors |= std::uint64_t{1} << context().device;
  if (block.device < kAccessorsMax) accessors &= ~(std::uint64_t{1} << block.device);
  result = grant(base, block.bytes, block.device, true);
  for (; result == CUDA_SUCCESS && accessors != 0; accessors &= accessors - 1) {
    result = grant(base, block.bytes, std::countr_zero(accessors), true);
  }
  if (result != CUDA_SUCCESS) unmap_block(base, block.bytes);
  return result;
}

void SharedMemory::unmap_block(std::uint64_t base, std::uint64_t bytes) {
  commands::VmmUnmap::Reply reply;
  rpc::Reply answer;
  static_cast<void>(
      session_.ask(commands::VmmUnmap{.address = base, .bytes = bytes}, reply, answer));
}

CUresult SharedMemory::open(const SharedHandle& handle, CUdeviceptr& address,
                            std::uint64_t accessors) {
  const Lock lock(mutex_);
  for (auto& [base, opened] : opened_) {
    if (opened.handle != handle) continue;
    // Whoever opened it before may have been another device.
    const CUdevice here = context().device;
    const auto memory = memory_.map().find(base);
    if (memory && memory->device != here) {
      const CUresult result = grant(opened.block_base, opened.block_bytes, here, true);
      if (result != CUDA_SUCCESS) return result;
    }
    ++opened.count;
    address = base;
    return CUDA_SUCCESS;
  }
  if (memory_.reservable() == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  Block block;
  CUresult result = ask_for(handle, block);
  if (result != CUDA_SUCCESS) return result;
  const Opened opened{block.allocation,
                      memory_.reservable()->take(block.bytes, kSharedGranularity, 0), block.bytes,
                      1, handle};
  result = opened.block_base == 0 ? CUDA_ERROR_MAP_FAILED
                                  : map_block(block, opened.block_base, accessors);
  Memory memory;
  memory.kind = MemoryKind::kOpened;
  memory.base = opened.block_base + block.offset;
  memory.bytes = block.size;
  memory.context = owner().handle;
  memory.device = block.device;
  memory.mapping_base = opened.block_base;
  memory.mapping_bytes = block.bytes;
  memory.block_id = block.block_id;
  if (result == CUDA_SUCCESS && !memory_.map().add(memory)) {
    unmap_block(opened.block_base, block.bytes);
    result = CUDA_ERROR_MAP_FAILED;
  }
  if (result != CUDA_SUCCESS) {
    if (opened.block_base != 0) memory_.reservable()->give(opened.block_base, block.bytes);
    release(block.allocation);
    return result;
  }
  address = memory.base;
  opened_.emplace(memory.base, opened);
  return CUDA_SUCCESS;
}

CUresult SharedMemory::set_access(std::uint64_t pool, CUdevice accessor, bool allowed) {
  const Lock lock(mutex_);
  for (const auto& [base, opened] : opened_) {
    const auto memory = memory_.map().find(base);
    if (!memory || memory->pool != pool) continue;
    const CUresult result = grant(opened.block_base, opened.block_bytes, accessor, allowed);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult SharedMemory::close(CUdeviceptr address) {
  const Lock lock(mutex_);
  const auto found = opened_.find(address);
  if (found == opened_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.count != 0) return CUDA_SUCCESS;
  static_cast<void>(memory_.map().remove(address, MemoryKind::kOpened));
  unmap(found->second);
  opened_.erase(found);
  return CUDA_SUCCESS;
}

CUresult SharedMemory::close_pointer(CUdeviceptr address) {
  const auto memory = memory_.map().find(address);
  const bool of_pool =
      memory && memory->base == address && memory->kind == MemoryKind::kOpened && memory->pool != 0;
  return of_pool ? close(address) : CUDA_ERROR_INVALID_VALUE;
}

void SharedMemory::on_forgotten(const Memory& memory) {
  const Lock lock(mutex_);
  const auto found = opened_.find(memory.base);
  if (found == opened_.end()) return;
  unmap(found->second);
  opened_.erase(found);
}

void SharedMemory::unmap(const Opened& opened) {
  // A close waits for the work that may use the memory, as natively.
  rpc::Reply answer;
  commands::SynchronizeContext::Reply done;
  const commands::SynchronizeContext everything{
      .context = static_cast<CUcontext>(pointer_at(thread_state().current))};
  static_cast<void>(session_.ask(everything, done, answer));
  unmap_block(opened.block_base, opened.block_bytes);
  release(opened.allocation);
  memory_.reservable()->give(opened.block_base, opened.block_bytes);
}

CUresult SharedMemory::stand_in(const SharedHandle& handle, Fd& file) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  Exported exported{Fd(ends[0]), handle};
  Fd theirs(ends[1]);
  // It stays in the file for whoever looks.
  if (::send(exported.ours.get(), handle.data(), handle.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(handle.size())) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  exported_.push_back(std::move(exported));
  file = std::move(theirs);
  return CUDA_SUCCESS;
}

CUresult SharedMemory::export_file(std::uint64_t allocation, Fd& file) {
  return export_by(commands::ShareAllocation{.allocation = allocation}, {}, file);
}

CUresult SharedMemory::export_pool(std::uint64_t name, const PoolTag& tag, Fd& file) {
  return export_by(commands::SharePool{.pool = name}, tag, file);
}

CUresult SharedMemory::import_pool(int file, PoolTag& tag, CUdevice& device) {
  SharedHandle shared{};
  if (!look_into(file, shared)) return CUDA_ERROR_INVALID_VALUE;
  commands::OpenPool::Reply reply;
  rpc::Reply answer;
  const CUresult result = session_.ask(commands::OpenPool{.handle = shared}, reply, answer);
  if (result != CUDA_SUCCESS) return result;
  tag = pool_tag_of(shared);
  device = reply.device;
  return check_device(device);
}

CUresult SharedMemory::import_file(int file, CUmemGenericAllocationHandle& handle) {
  SharedHandle shared{};
  if (!look_into(file, shared)) return CUDA_ERROR_INVALID_VALUE;
  Block block;
  const CUresult result = ask_for(shared, block);
  if (result == CUDA_SUCCESS) handle = block.allocation;
  return result;
}

void SharedMemory::drop_dead_files() {
  for (auto at = exported_.begin(); at != exported_.end();) {
    pollfd ours{at->ours.get(), 0, 0};
    if (::poll(&ours, 1, 0) == 1 && (ours.revents & (POLLHUP | POLLERR)) != 0) {
      static_cast<void>(session_.post(commands::Unshare{.handle = at->handle}));
      at = exported_.erase(at);
    } else {
      ++at;
    }
  }
}

}  // namespace flyt::client
