// What graphs own: objects of the program, and memory.
#include "server/graphs/graph_memory.h"
#include "server/graphs/graphs.h"
#include "server/graphs/user_object.h"
#include "server/hooks_graph.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

// An object of the client's that somebody whom it knows holds, so that it cannot go meanwhile.
struct FoundObject {
  CUuserObject native = nullptr;
  std::shared_ptr<UserObject> references;
  explicit operator bool() const { return references != nullptr; }
};

FoundObject find(const Request& request, std::uint64_t name) {
  Session& session = request.session();
  const Handles::Entry entry = session.handles().entry(wire::HandleKind::kUserObject, name);
  auto references = std::static_pointer_cast<UserObject>(entry.attachment);
  if (references == nullptr || !references->held(session.graphs())) return {};
  return {static_cast<CUuserObject>(entry.native), std::move(references)};
}

}  // namespace

CUresult create_user_object(Request& request, const commands::CreateUserObject& command) {
  Session& session = request.session();
  const driver::Table& driver = request.driver();
  void* entry = session.memory().host_calls.destructor(command.function, command.object);
  CUuserObject native = nullptr;
  const CUresult result = driver.cuUserObjectCreate(&native, entry, &HostCalls::run_destructor,
                                                    command.references, command.flags);
  if (result != CUDA_SUCCESS) {
    HostCalls::release_destructor(entry);
    return result;
  }
  if (session.handles().put(wire::HandleKind::kUserObject, command.object, native,
                            std::make_shared<UserObject>(command.references))) {
    return result;
  }
  session.end("create_user_object: the handle is malformed or in use");
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult retain_user_object(Request& request, const commands::RetainUserObject& command) {
  const FoundObject object = find(request, command.object);
  if (!object) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = request.driver().cuUserObjectRetain(object.native, command.count);
  if (result == CUDA_SUCCESS) object.references->add(command.count);
  return result;
}

CUresult release_user_object(Request& request, const commands::ReleaseUserObject& command) {
  const FoundObject object = find(request, command.object);
  if (!object || !object.references->has(command.count)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = request.driver().cuUserObjectRelease(object.native, command.count);
  if (result == CUDA_SUCCESS) object.references->remove(command.count);
  return result;
}

CUresult graph_retain_object(Request& request, const commands::GraphRetainObject& command) {
  const CUgraph graph = request.session().graphs().graph(command.graph);
  const FoundObject object = find(request, command.object);
  const bool moves = (command.flags & CU_GRAPH_USER_OBJECT_MOVE) != 0;
  if (graph == nullptr || !object || (moves && !object.references->has(command.count))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result =
      request.driver().cuGraphRetainUserObject(graph, object.native, command.count, command.flags);
  if (result != CUDA_SUCCESS) return result;
  if (moves) object.references->remove(command.count);
  object.references->add(command.count, command.graph);
  return result;
}

CUresult graph_release_object(Request& request, const commands::GraphReleaseObject& command) {
  const CUgraph graph = request.session().graphs().graph(command.graph);
  const FoundObject object = find(request, command.object);
  if (graph == nullptr || !object || !object.references->has(command.count, command.graph)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result =
      request.driver().cuGraphReleaseUserObject(graph, object.native, command.count);
  if (result == CUDA_SUCCESS) object.references->remove(command.count, command.graph);
  return result;
}

// Without a stream the driver waits for the GPU, and so perhaps for a function of the program,
// which another thread's command may have to come before.
void free_graph_memory(Request request, const commands::FreeGraphMemory& command) {
  Session& session = request.session();
  GraphMemory& memory = session.graph_memory();
  if (!memory.contains(command.address)) return request.reply(CUDA_ERROR_INVALID_VALUE);
  if (command.stream != nullptr) {
    CUstream stream = command.stream;
    if (!request.resolve(stream)) return request.reply(CUDA_ERROR_INVALID_HANDLE);
    const CUresult result = request.driver().cuMemFreeAsync(command.address, stream);
    memory.sweep();
    session.graphs().records().look_after_memory();
    return request.reply(result);
  }
  request.forget_payload();
  session.run_slow(std::move(request), [&session, address = command.address](Request slow) {
    CUresult result = CUDA_SUCCESS;
    {
      const auto using_objects = session.use();
      result = session.enter(slow.context());
      if (result == CUDA_SUCCESS) result = session.driver().cuMemFree_v2(address);
    }
    session.on_main([&session, result, answer = std::make_shared<Request>(std::move(slow))] {
      if (session.enter(answer->context()) == CUDA_SUCCESS) session.graph_memory().sweep();
      session.graphs().records().look_after_memory();
      answer->reply(result);
    });
  });
}

CUresult trim_graph_memory(Request& request, const commands::TrimGraphMemory& command) {
  if (request.driver().cuDeviceGraphMemTrim == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult result = request.driver().cuDeviceGraphMemTrim(command.device);
  request.session().graph_memory().count();
  return result;
}

CUresult get_graph_memory(Request& request, const commands::GetGraphMemory& command,
                          commands::GetGraphMemory::Reply& reply) {
  if (request.driver().cuDeviceGetGraphMemAttribute == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (command.attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) return CUDA_ERROR_INVALID_VALUE;
  cuuint64_t value = 0;
  const CUresult result = request.driver().cuDeviceGetGraphMemAttribute(
      command.device, static_cast<CUgraphMem_attribute>(command.attribute), &value);
  reply.value = value;
  return result;
}

CUresult reset_graph_memory(Request& request, const commands::ResetGraphMemory& command) {
  if (request.driver().cuDeviceSetGraphMemAttribute == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (command.attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) return CUDA_ERROR_INVALID_VALUE;
  cuuint64_t zero = 0;
  return request.driver().cuDeviceSetGraphMemAttribute(
      command.device, static_cast<CUgraphMem_attribute>(command.attribute), &zero);
}

}  // namespace flyt::server::hooks
