// What the sessions of one server share.
#include "server/hooks_ipc.h"

#include <cstring>
#include <memory>
#include <utility>

#include "server/exchange.h"
#include "server/hooks_pool.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

constexpr std::size_t kHandleBytes = 64;
constexpr std::uint64_t kMagic = 0x3130434970'74796cULL;

// A handle as programs pass it on.
struct Handle {
  std::uint64_t magic = kMagic;
  Token token{};
  SharedKind kind{};
  std::uint32_t zero = 0;
  std::array<std::byte, 32> rest{};  // The client's own.
};
static_assert(sizeof(Handle) == kHandleBytes);

// What is to be known of shared memory: a range of a block.
struct MemoryFacts {
  std::uint64_t block_bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::int32_t device = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(MemoryFacts) <= SharedObject::kFactsBytes);

template <class Facts>
void set_facts(SharedObject& object, const Facts& facts) {
  static_assert(sizeof facts <= SharedObject::kFactsBytes);
  std::memcpy(object.facts.data(), &facts, sizeof facts);
}

template <class Facts>
Facts facts_of(const SharedObject& object) {
  Facts facts{};
  std::memcpy(&facts, object.facts.data(), sizeof facts);
  return facts;
}

bool parse(Bytes bytes, Handle& handle) {
  if (bytes.size() != sizeof handle) return false;
  std::memcpy(&handle, bytes.data(), sizeof handle);
  return handle.magic == kMagic && handle.zero == 0;
}

// Hands an object to the exchange and answers with a handle for it.
template <class Reply>
void share(Request request, CUresult result, const SharedObject& object) {
  Reply reply;
  if (result != CUDA_SUCCESS) return request.reply(result, reply);
  const auto token = request.session().exchange().share(object);
  if (!token) {
    request.session().log().warn("cannot share", {{"why", token.error().message}});
    return request.reply(CUDA_ERROR_NOT_SUPPORTED, reply);
  }
  const Handle handle{.token = *token, .kind = object.kind};
  reply.handle = bytes_at(&handle, sizeof handle);
  request.reply(CUDA_SUCCESS, reply);
}

// CUDA_ERROR_INVALID_VALUE for what no session of this user has given out.
CUresult find(Request& request, Bytes bytes, SharedKind kind, SharedObject& object) {
  Handle handle;
  if (!parse(bytes, handle) || handle.kind != kind) return CUDA_ERROR_INVALID_VALUE;
  auto found = request.session().exchange().find(handle.token, kind);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  object = std::move(*found);
  return CUDA_SUCCESS;
}

CUresult export_file(const driver::Table& driver, CUmemGenericAllocationHandle allocation,
                     Fd& file) {
  if (driver.cuMemExportToShareableHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  int number = -1;
  const CUresult result = driver.cuMemExportToShareableHandle(
      &number, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (result == CUDA_SUCCESS) file = Fd(number);
  return result;
}

// What is to be known of a shared pool.
struct PoolFacts {
  std::int32_t device = 0;
};
static_assert(sizeof(PoolFacts) <= SharedObject::kFactsBytes);

}  // namespace

void share_memory(Request request, const commands::ShareMemory& command) {
  SharedObject object;
  MemoryFacts facts;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  const auto block = request.session().memory().arena.block_around(command.address, command.bytes);
  if (block) {
    facts = {block->bytes, command.address - block->address, command.bytes, block->device, 0};
    result = block->handle == 0 ? CUDA_ERROR_NOT_SUPPORTED
                                : export_file(request.driver(), block->handle, object.file);
  }
  set_facts(object, facts);
  share<commands::ShareMemory::Reply>(std::move(request), result, object);
}

void share_allocation(Request request, const commands::ShareAllocation& command) {
  SharedObject object;
  MemoryFacts facts;
  const CUresult result = request.session().memory().virtual_memory.use(
      command.allocation,
      [&](CUmemGenericAllocationHandle native, std::uint64_t bytes, CUdevice device) {
        facts = {bytes, 0, bytes, device, 0};
        return export_file(request.driver(), native, object.file);
      });
  set_facts(object, facts);
  share<commands::ShareAllocation::Reply>(std::move(request), result, object);
}

CUresult unshare(Request& request, const commands::Unshare& command) {
  Handle handle;
  // Of another session's object the exchange takes no notice.
  if (parse(command.handle, handle)) request.session().exchange().withdraw(handle.token);
  return CUDA_SUCCESS;
}

CUresult open_shared(Request& request, const commands::OpenShared& command,
                     commands::OpenShared::Reply& reply) {
  SharedObject object;
  const CUresult bad = find(request, command.handle, SharedKind::kMemory, object);
  if (bad != CUDA_SUCCESS) return bad;
  const auto facts = facts_of<MemoryFacts>(object);
  const driver::Table& driver = request.driver();
  if (driver.cuMemImportFromShareableHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemGenericAllocationHandle native = 0;
  CUresult result = driver.cuMemImportFromShareableHandle(
      &native, pointer_at(static_cast<std::uint64_t>(object.file.get())),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return result;
  result = request.session().memory().virtual_memory.adopt(
      command.allocation, native, facts.block_bytes, facts.device, reply.block_id);
  if (result != CUDA_SUCCESS) return result;
  reply.bytes = facts.block_bytes;
  reply.offset = facts.offset;
  reply.size = facts.bytes;
  reply.device = facts.device;
  return CUDA_SUCCESS;
}

void share_event(Request request, const commands::ShareEvent& command) {
  SharedObject object{.kind = SharedKind::kEvent};
  CUevent event = command.event;
  CUipcEventHandle native{};
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  if (request.resolve(event)) {
    const driver::Table& driver = request.driver();
    result = driver.cuIpcGetEventHandle == nullptr ? CUDA_ERROR_NOT_SUPPORTED
                                                   : driver.cuIpcGetEventHandle(&native, event);
  }
  set_facts(object, native);
  share<commands::ShareEvent::Reply>(std::move(request), result, object);
}

void share_pool(Request request, const commands::SharePool& command) {
  SharedObject object{.kind = SharedKind::kPool};
  const auto device = request.session().memory().pools.device_of(command.pool);
  set_facts(object, PoolFacts{device.value_or(0)});
  const CUresult result = device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  share<commands::SharePool::Reply>(std::move(request), result, object);
}

CUresult open_pool(Request& request, const commands::OpenPool& command,
                   commands::OpenPool::Reply& reply) {
  SharedObject object;
  const CUresult bad = find(request, command.handle, SharedKind::kPool, object);
  if (bad != CUDA_SUCCESS) return bad;
  reply.device = facts_of<PoolFacts>(object).device;
  return CUDA_SUCCESS;
}

CUresult open_event(Request& request, const commands::OpenEvent& command) {
  SharedObject object;
  if (find(request, command.handle, SharedKind::kEvent, object) != CUDA_SUCCESS) {
    return CUDA_ERROR_MAP_FAILED;
  }
  const driver::Table& driver = request.driver();
  if (driver.cuIpcOpenEventHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUevent native = nullptr;
  const CUresult result = driver.cuIpcOpenEventHandle(&native, facts_of<CUipcEventHandle>(object));
  if (result != CUDA_SUCCESS) return result;
  auto owner = std::make_shared<EventOwner>(driver, request.home(), native,
                                            CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  Session& session = request.session();
  if (!session.handles().put(wire::HandleKind::kEvent, address_of(command.event), native,
                             std::move(owner))) {
    session.end("open_event: the handle is malformed or in use");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}

}  // namespace flyt::server::hooks
