// Stream-ordered allocation and its pools.
#include "client/hooks_pool.h"

#include <cstring>

#include "base/random.h"
#include "client/call.h"
#include "client/graphs/graphs.h"
#include "client/memory_state.h"
#include "commands/graph.h"
#include "commands/peer.h"
#include "commands/pool.h"
#include "cuda/memory_place.h"

namespace flyt::client::hooks {
namespace {

PoolState* find(CUmemoryPool pool) { return session().memory().pools.find(address_of(pool)); }

// A pool that this process has made: nothing is allocated from others' here.
PoolState* find_own(CUmemoryPool pool) {
  PoolState* state = find(pool);
  return state == nullptr || state->imported ? nullptr : state;
}

CUmemoryPool handle_of(std::uint64_t handle) {
  return static_cast<CUmemoryPool>(pointer_at(handle));
}

bool accesses(const PoolState& state, CUdevice device) {
  return device < kAccessorsMax && (state.accessors.load() >> device & 1) != 0;
}

CUresult check_access(const PoolState& state, const CUmemAccessDesc& access) {
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  const CUdevice device = access.location.id;
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return CUDA_ERROR_NOT_SUPPORTED;
  const bool open = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (!open && access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_VALUE;
  // The device of a pool keeps its access.
  if (device == state.device) return open ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  return device < kAccessorsMax || !open ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// What another process has made is opened here for this one alone: pointers of it that there are,
// and those to come.
CUresult set_imported_access(PoolState& state, CUmemoryPool pool, CUdevice accessor, bool open) {
  commands::DeviceCanAccessPeer::Reply reply;
  const CUresult known =
      cached(commands::DeviceCanAccessPeer{.dev = accessor, .peerDev = state.device}, reply);
  if (known != CUDA_SUCCESS || reply.canAccessPeer == 0) return CUDA_ERROR_INVALID_DEVICE;
  const CUresult result = session().memory().shared().set_access(address_of(pool), accessor, open);
  if (result == CUDA_SUCCESS) state.accessors.fetch_xor(std::uint64_t{1} << accessor);
  return result;
}

CUresult set_access(PoolState& state, CUmemoryPool pool, CUdevice accessor, bool open) {
  if (accesses(state, accessor) == open) return CUDA_SUCCESS;
  if (state.imported) return set_imported_access(state, pool, accessor, open);
  const commands::PoolAccess command{.owner = state.device,
                                     .accessor = accessor,
                                     .allowed = open ? std::uint8_t{1} : std::uint8_t{0}};
  return ask_and_note(command, [&](const auto&) {
    state.accessors.fetch_xor(std::uint64_t{1} << accessor);
    return CUDA_SUCCESS;
  });
}

// In a stream that is captured it is a node of the graph that allocates, at an address of the
// driver's.
CUresult capture_allocation(CUdeviceptr* out, std::size_t bytes, CUdevice device, CUstream stream) {
  commands::CaptureAllocation::Reply reply;
  CUresult result = ask(commands::CaptureAllocation{.stream = stream, .bytes = bytes}, reply);
  if (result != CUDA_SUCCESS) return result;
  result = session().graphs().add_memory(reply.address, bytes, device);
  if (result == CUDA_SUCCESS) *out = reply.address;
  return result;
}

CUresult allocate(CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool, CUstream stream) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check(stream); result != CUDA_SUCCESS) return result;
  const PoolState* state = find_own(pool);
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) {
    *out = 0;
    return CUDA_SUCCESS;
  }
  std::uint64_t graph = 0;
  const CUresult no = session().captures().work_call(stream, graph);
  if (no != CUDA_SUCCESS) return no;
  if (graph != 0) return capture_allocation(out, bytes, state->device, stream);
  const CUresult unsafe = session().captures().unsafe_call();
  if (unsafe != CUDA_SUCCESS) return unsafe;
  bool known = true;
  const CUresult result =
      ask_and_note(commands::PoolAllocate{.stream = stream, .pool = state->name, .bytes = bytes},
                   [&](const commands::PoolAllocate::Reply& reply) {
                     Memory memory;
                     memory.kind = MemoryKind::kPool;
                     memory.base = reply.address;
                     memory.bytes = bytes;
                     memory.device = state->device;
                     memory.mapping_base = reply.block_address;
                     memory.mapping_bytes = reply.block_bytes;
                     memory.block_id = reply.block_id;
                     memory.pool = address_of(pool);
                     known = session().memory().map().add(memory);
                     if (known) *out = reply.address;
                     return CUDA_SUCCESS;
                   });
  if (known) return result;
  session().channel().shut_down("cuMemAllocAsync: the server's address is in use");
  return session().health();
}

// Pools exist for device memory alone: other ones that there could be are refused by name.
CUresult device_of(const char* call, const CUmemLocation* location, CUmemAllocationType type,
                   CUdevice& device) {
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (cuda::is_pool_elsewhere(*location, type)) {
    return refused(call, "pools are of device memory only");
  }
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  device = location->id;
  return check_device(device) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The same for calls that ask about pools instead of making one.
CUresult device_asked(const char* call, const CUmemLocation* location, CUmemAllocationType type,
                      CUdevice& device) {
  if (location != nullptr && !cuda::has_pools(*location)) return CUDA_ERROR_NOT_SUPPORTED;
  return device_of(call, location, type, device);
}

bool is_flag(CUmemPool_attribute attribute) {
  return attribute == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
         attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC ||
         attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

}  // namespace

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  const PoolState* state = find_own(pool);
  if (state == nullptr || state->device != dev) return CUDA_ERROR_INVALID_VALUE;
  session().memory().set_current_pool(dev, pool);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  // Of a device that there is not the default one is refused by another name.
  if (pool == nullptr || check_device(dev) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  *pool = session().memory().current_pool(dev);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  *pool_out = session().memory().default_pool(dev);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  if (dptr == 0) return CUDA_SUCCESS;
  MemoryState& memory = session().memory();
  const auto found = memory.map().find(dptr);
  if (found && found->kind == MemoryKind::kGraph) {
    return ask(commands::FreeGraphMemory{.stream = hStream, .address = dptr});
  }
  // Only a graph's memory can be freed by a graph.
  std::uint64_t graph = 0;
  const CUresult no = session().captures().work_call(hStream, graph);
  if (no != CUDA_SUCCESS || graph != 0) return no != CUDA_SUCCESS ? no : CUDA_ERROR_INVALID_VALUE;
  // cuMemAlloc's memory may be freed this way too.
  if (!memory.map().remove(dptr, MemoryKind::kPool, MemoryKind::kDevice)) {
    return memory.shared().close_pointer(dptr);
  }
  memory.shared().on_freed(dptr);
  return post(commands::PoolFree{.stream = hStream, .address = dptr});
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate(dptr, bytesize, session().memory().current_pool(context().device), hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  return allocate(dptr, bytesize, pool, hStream);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  const PoolState* state = find_own(pool);
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  return ask(commands::PoolTrim{.pool = state->name, .bytes_to_keep = minBytesToKeep});
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  PoolState* state = find_own(pool);
  if (state == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t wanted = 0;
  if (is_flag(attr)) {
    int flag = 0;
    std::memcpy(&flag, value, sizeof(flag));
    wanted = flag != 0 ? 1 : 0;
  } else {
    std::memcpy(&wanted, value, sizeof(wanted));
    const bool high =
        attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    const bool settable = attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD || (high && wanted == 0);
    if (!settable) return CUDA_ERROR_INVALID_VALUE;
  }
  // Those behind are no settings.
  if (attr <= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) state->attributes[attr].store(wanted);
  return post(commands::PoolSet{
      .pool = state->name, .attribute = static_cast<std::uint32_t>(attr), .value = wanted});
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  const PoolState* state = find_own(pool);
  if (state == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  commands::PoolGet::Reply reply;
  const CUresult result = ask(
      commands::PoolGet{.pool = state->name, .attribute = static_cast<std::uint32_t>(attr)}, reply);
  if (result != CUDA_SUCCESS) return result;
  if (is_flag(attr)) {
    const int flag = reply.value != 0 ? 1 : 0;
    std::memcpy(value, &flag, sizeof(flag));
  } else {
    std::memcpy(value, &reply.value, sizeof(reply.value));
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  PoolState* state = find(pool);
  if (state == nullptr || (map == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const CUresult result = check_access(*state, map[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (map[i].location.id == state->device) continue;
    const bool open = map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUresult result = set_access(*state, pool, map[i].location.id, open);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                            CUmemLocation* location) {
  const PoolState* state = find(memPool);
  if (flags == nullptr || state == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool host = cuda::is_host(*location);
  const bool of_device =
      location->type == CU_MEM_LOCATION_TYPE_DEVICE && check_device(location->id) == CUDA_SUCCESS;
  if (!host && !of_device) return CUDA_ERROR_INVALID_VALUE;
  // The host has none to the memory of a device.
  const bool open = of_device && (location->id == state->device || accesses(*state, location->id));
  *flags = open ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  if (pool == nullptr || poolProps == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdevice device = 0;
  const CUresult bad =
      device_of("cuMemPoolCreate", &poolProps->location, poolProps->allocType, device);
  if (bad != CUDA_SUCCESS) return bad;
  if (!cuda::are_shareable(poolProps->handleTypes)) return CUDA_ERROR_INVALID_VALUE;
  constexpr auto kFile = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE && poolProps->handleTypes != kFile) {
    return refused("cuMemPoolCreate", "pools are shared by file descriptors only");
  }
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  if (cuda::is_endless(poolProps->maxSize)) return CUDA_ERROR_OUT_OF_MEMORY;
  MemoryState& memory = session().memory();
  const auto made = memory.pools.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made.state->device = device;
  made.state->shareable = poolProps->handleTypes == kFile;
  if (made.state->shareable) random_bytes(made.state->tag.data(), made.state->tag.size());
  made.state->name = made.handle;
  made.state->bytes_max = poolProps->maxSize;
  const CUresult result = session().post_and_note(
      commands::PoolCreate{.pool = made.handle, .device = device, .bytes_max = poolProps->maxSize},
      [&] { memory.pools.publish(made.handle); });
  if (result != CUDA_SUCCESS) {
    memory.pools.discard(made.handle);
    return result;
  }
  *pool = handle_of(made.handle);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
  PoolState* state = find_own(pool);
  if (handle_out == nullptr || flags != 0 || state == nullptr || !state->shareable ||
      handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Fd file;
  const CUresult result = session().memory().shared().export_pool(state->name, state->tag, file);
  if (result != CUDA_SUCCESS) return result;
  state->exported = true;
  const int number = file.release();
  std::memcpy(handle_out, &number, sizeof(number));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags) {
  if (pool_out == nullptr || flags != 0 || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MemoryState& memory = session().memory();
  PoolTag tag;
  CUdevice device = 0;
  const CUresult result =
      memory.shared().import_pool(static_cast<int>(address_of(handle)), tag, device);
  if (result != CUDA_SUCCESS) return result;
  const auto made = memory.pools.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made.state->device = device;
  made.state->imported = true;
  made.state->tag = tag;
  memory.pools.publish(made.handle);
  *pool_out = handle_of(made.handle);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  if (shareData_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MemoryState& memory = session().memory();
  const auto found = memory.map().find(ptr);
  if (!found || found->base != ptr || found->kind != MemoryKind::kPool) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const PoolState* state = memory.pools.find(found->pool);
  if (state == nullptr || !state->exported) return CUDA_ERROR_INVALID_VALUE;
  SharedHandle handle{};
  const CUresult result = memory.shared().share(*found, handle);
  set_pool_tag(handle, state->tag);
  static_assert(sizeof(handle) == sizeof(*shareData_out));
  if (result == CUDA_SUCCESS) std::memcpy(shareData_out, handle.data(), handle.size());
  return result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData* shareData) {
  const PoolState* state = find(pool);
  if (ptr_out == nullptr || shareData == nullptr || state == nullptr || !state->imported) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MemoryState& memory = session().memory();
  SharedHandle handle{};
  std::memcpy(handle.data(), shareData, handle.size());
  if (pool_tag_of(handle) != state->tag) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  const CUresult result = memory.shared().open(handle, *ptr_out, state->accessors.load());
  if (result != CUDA_SUCCESS) return result;
  memory.map().update(*ptr_out, [&](Memory& opened) { opened.pool = address_of(pool); });
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  MemoryState& memory = session().memory();
  PoolState* state = find(pool);
  if (state == nullptr || state->is_default) return CUDA_ERROR_INVALID_VALUE;
  const CUdevice device = state->device;
  const bool imported = state->imported;
  // Pointers that were imported outlive it, and keep their access.
  for (CUdevice accessor = 0; !imported && accessor < kAccessorsMax; ++accessor) {
    const CUresult lost = set_access(*state, pool, accessor, false);
    if (lost != CUDA_SUCCESS) return lost;
  }
  if (!memory.pools.drop(address_of(pool))) return CUDA_ERROR_INVALID_VALUE;
  // A device whose pool dies has its default one again.
  if (memory.current_pool(device) == pool) {
    memory.set_current_pool(device, memory.default_pool(device));
  }
  return imported ? CUDA_SUCCESS : post(commands::PoolDestroy{.pool = address_of(pool)});
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  CUdevice device = 0;
  const CUresult result = device_asked("cuMemGetDefaultMemPool", location, type, device);
  return result == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool_out, device) : result;
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  CUdevice device = 0;
  const CUresult result = device_asked("cuMemGetMemPool", location, type, device);
  return result == CUDA_SUCCESS ? cuDeviceGetMemPool(pool, device) : result;
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  CUdevice device = 0;
  const CUresult result = device_asked("cuMemSetMemPool", location, type, device);
  return result == CUDA_SUCCESS ? cuDeviceSetMemPool(device, pool) : result;
}

}  // namespace flyt::client::hooks
