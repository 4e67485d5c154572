// What graphs own: objects of the program, and memory.
#include <cstring>

#include "client/call.h"
#include "client/graphs/graphs.h"
#include "client/hooks_graph.h"
#include "client/memory_state.h"
#include "client/streams/host_call_scope.h"
#include "commands/graph.h"

namespace flyt::client::hooks {

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
  if (object_out == nullptr || destroy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Graphs& graphs = session().graphs();
  const auto made = graphs.user_objects.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  HostCallWorker& calls = session().memory().host_calls();
  const std::uint64_t function = calls.add_of_graphs(
      [&graphs, handle = made.handle, ptr, destroy](CUresult) {
        graphs.user_objects.drop(handle);
        const HostCallScope scope(HostCall::kFunction);
        destroy(ptr);
      },
      true);
  // Known before it can end.
  graphs.user_objects.publish(made.handle);
  const CUresult result = function == 0
                              ? CUDA_ERROR_OUT_OF_MEMORY
                              : ask(commands::CreateUserObject{.object = made.handle,
                                                               .function = function,
                                                               .references = initialRefcount,
                                                               .flags = flags});
  if (result != CUDA_SUCCESS) {
    calls.remove_of_graphs(function);
    graphs.user_objects.drop(made.handle);
    return result;
  }
  *object_out = static_cast<CUuserObject>(pointer_at(made.handle));
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  return ask(commands::RetainUserObject{.object = address_of(object), .count = count});
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  return ask(commands::ReleaseUserObject{.object = address_of(object), .count = count});
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags) {
  return ask(commands::GraphRetainObject{
      .graph = address_of(graph), .object = address_of(object), .count = count, .flags = flags});
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  return ask(commands::GraphReleaseObject{
      .graph = address_of(graph), .object = address_of(object), .count = count});
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  if (const CUresult no = check_device(device); no != CUDA_SUCCESS) return no;
  return ask(commands::TrimGraphMemory{.device = device});
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  if (const CUresult no = check_device(device); no != CUDA_SUCCESS) return no;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  commands::GetGraphMemory::Reply reply;
  const CUresult result =
      ask(commands::GetGraphMemory{.device = device, .attribute = static_cast<std::uint32_t>(attr)},
          reply);
  if (result == CUDA_SUCCESS) std::memcpy(value, &reply.value, sizeof reply.value);
  return result;
}

// Marks can only be set back.
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  if (const CUresult no = check_device(device); no != CUDA_SUCCESS) return no;
  cuuint64_t wanted = 1;
  if (value != nullptr) std::memcpy(&wanted, value, sizeof wanted);
  if (wanted != 0) return CUDA_ERROR_INVALID_VALUE;
  return ask(
      commands::ResetGraphMemory{.device = device, .attribute = static_cast<std::uint32_t>(attr)});
}

}  // namespace flyt::client::hooks
