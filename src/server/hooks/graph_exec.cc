// Executable graphs.
#include <vector>

#include "server/graphs/exec_origin.h"
#include "server/graphs/graph_memory.h"
#include "server/graphs/graph_node_params.h"
#include "server/graphs/graph_typed_nodes.h"
#include "server/graphs/graphs.h"
#include "server/hooks_graph.h"
#include "server/lease/moves.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

struct Exec {
  CUgraphExec native = nullptr;
  std::shared_ptr<ExecOrigin> origin;  // Null where multiprocessors never change.

  // How the driver knows a node of the client's in it; null if it does not.
  CUgraphNode node(Request& request, std::uint64_t name) const {
    return origin != nullptr ? origin->node(name) : request.session().graphs().node(name);
  }
};

// Made again if the multiprocessors have changed since. CUDA_ERROR_ILLEGAL_STATE while a worker
// updates it.
CUresult exec_of(Request& request, std::uint64_t name, Exec& exec) {
  Session& session = request.session();
  const Handles::Entry entry = session.handles().entry(wire::HandleKind::kGraphExec, name);
  if (!entry) return CUDA_ERROR_INVALID_VALUE;
  if (entry.native == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (session.graphs().updating(name)) return CUDA_ERROR_ILLEGAL_STATE;
  exec = {static_cast<CUgraphExec>(entry.native),
          std::static_pointer_cast<ExecOrigin>(entry.attachment)};
  if (exec.origin != nullptr) {
    exec.origin->renew(name, exec.native);
    static_cast<void>(session.enter(request.context()));
  }
  return CUDA_SUCCESS;
}

// What is to be said of a node of a graph that stays in an earlier part has to name that.
void stay_in_part(Session& session, const ExecOrigin& origin, CUgraphNodeParams& params) {
  const auto present = session.moves().part();
  if (present == nullptr || origin.part() == present) return;
  const CUcontext own = origin.part()->context;
  const auto stay = [&](CUcontext& context) {
    if (context == present->context) context = own;
  };
  if (params.type == CU_GRAPH_NODE_TYPE_KERNEL) stay(params.kernel.ctx);
  if (params.type == CU_GRAPH_NODE_TYPE_MEMSET) stay(params.memset.ctx);
  if (params.type == CU_GRAPH_NODE_TYPE_MEMCPY) stay(params.memcpy.copyCtx);
  session.driver().cuCtxSetCurrent(own);
  session.forget_entered();
}

// An executable graph that becomes what a graph is, on a worker.
struct ExecUpdate {
  Exec exec;
  CUgraph graph = nullptr;
  std::uint64_t name = 0;           // Of the graph.
  std::shared_ptr<GraphCopy> copy;  // What the driver is given instead, if not null.
  std::shared_ptr<void> at_work;
  std::uint64_t exec_name = 0;
  GraphImageRef image;  // Of the graph, for the records.
  std::shared_ptr<const void> alone;
  CUgraphExecUpdateResultInfo info{};
  CUresult result = CUDA_SUCCESS;

  CUgraph with() const { return copy != nullptr ? copy->graph() : graph; }
};

void finish(Session& session, ExecUpdate& update, Request& answer) {
  // Before the answer: who has it goes on with both, and the worker may be late to let go of them.
  update.alone.reset();
  update.at_work.reset();
  const auto& origin = update.exec.origin;
  if (origin != nullptr && update.result == CUDA_SUCCESS) origin->note_update(update.with());
  if (update.result == CUDA_SUCCESS) {
    session.graphs().records().exec_updated(update.exec_name, update.image);
  }
  const auto told = [&](CUgraphNode node) {
    if (update.copy != nullptr) node = origin->original_of(update.graph, *update.copy, node);
    return session.graphs().name_node(node, update.name);
  };
  commands::UpdateGraphExec::Reply reply;
  reply.outcome = static_cast<std::uint32_t>(update.info.result);
  reply.node = told(update.info.errorNode);
  reply.from = told(update.info.errorFromNode);
  answer.reply(update.result, reply);
}

// Whether a graph, or one in it, allocates or frees; such a launch can be refused at once.
bool has_memory(const driver::Table& driver, CUgraph graph) {
  std::size_t count = 0;
  if (driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return true;
  std::vector<CUgraphNode> nodes(count);
  if (count == 0 || driver.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) {
    return count != 0;
  }
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    CUgraph child = nullptr;
    driver.cuGraphNodeGetType(node, &type);
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE) return true;
    if (type != CU_GRAPH_NODE_TYPE_GRAPH) continue;
    if (driver.cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS ||
        has_memory(driver, child)) {
      return true;
    }
  }
  return false;
}

CUresult instantiate(const driver::Table& driver, CUgraph graph,
                     CUDA_GRAPH_INSTANTIATE_PARAMS& params, CUgraphExec* exec) {
  if (driver.cuGraphInstantiateWithParams != nullptr) {
    return driver.cuGraphInstantiateWithParams(exec, graph, &params);
  }
  const CUresult result = driver.cuGraphInstantiateWithFlags(exec, graph, params.flags);
  params.result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

template <class Command>
CUresult launch(Request& request, const Command& command) {
  Exec exec;
  CUstream stream = command.stream;
  if (const CUresult bad = exec_of(request, command.exec, exec); bad != CUDA_SUCCESS) return bad;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  request.session().memory().depths.count(request.context(), stream);
  Graphs& graphs = request.session().graphs();
  const bool captured = graphs.capturing(stream);
  // A graph that captures it gets a child.
  const auto cost = captured ? graphs.costs().of_exec(command.exec) : GraphCosts::Cost{};
  const std::uint64_t into = captured ? graphs.captured_graph(stream) : 0;
  if (!cost || (captured && into == 0)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (exec.origin != nullptr) exec.origin->before_launch(request, command.stream, stream);
  const CUresult result = request.driver().cuGraphLaunch(exec.native, stream);
  if (captured && result == CUDA_SUCCESS) graphs.costs().note_child(into, 0, *cost);
  GraphMemory& memory = request.session().graph_memory();
  if (memory.any()) memory.count();
  return result;
}

}  // namespace

CUresult instantiate_graph(Request& request, const commands::InstantiateGraph& command,
                           commands::InstantiateGraph::Reply& reply) {
  Session& session = request.session();
  const CUgraph graph = session.graphs().graph(command.graph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = command.flags;
  const bool uploads = (command.flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
  if (uploads) {
    params.hUploadStream = command.stream;
    if (!request.resolve(params.hUploadStream)) return CUDA_ERROR_INVALID_HANDLE;
  }
  const auto cost = session.graphs().costs().of_copy(graph);
  if (!cost) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraphExec exec = nullptr;
  const auto origin = ExecOrigin::begin(session, command.graph, graph, command.flags);
  static_cast<void>(session.enter(request.context()));
  const CUgraph from = origin != nullptr ? origin->graph() : graph;
  const CUresult result = instantiate(request.driver(), from, params, &exec);
  reply.outcome = static_cast<std::uint32_t>(params.result_out);
  if (from == graph) {
    reply.node = session.graphs().name_node(params.hErrNode_out, command.graph);
  }
  if (result != CUDA_SUCCESS) return result;
  if (origin != nullptr) origin->instantiated();
  reply.has_memory = session.graphs().has_memory_nodes() && has_memory(request.driver(), graph);
  if (reply.has_memory) session.graph_memory().add_exec(command.graph, command.exec);
  if (session.handles().put(wire::HandleKind::kGraphExec, command.exec, exec, origin)) {
    session.graphs().costs().note_exec(command.exec, *cost);
    session.graphs().note_exec(command.exec, request.context());
    session.graphs().records().exec_made(command.exec, command.graph, command.flags);
    return result;
  }
  session.end("instantiate_graph: the handle is malformed or in use");
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult destroy_graph_exec(Request& request, const commands::DestroyGraphExec& command) {
  Session& session = request.session();
  const Handles::Entry entry = session.handles().drop(wire::HandleKind::kGraphExec, command.exec);
  if (!entry) return session.ended_before(CUDA_ERROR_INVALID_VALUE);
  Graphs& graphs = session.graphs();
  graphs.records().exec_ended(command.exec);
  const CUresult result = graphs.end_exec(command.exec, static_cast<CUgraphExec>(entry.native));
  graphs.costs().forget(command.exec);
  graphs.forget_exec(command.exec);
  session.graph_memory().sweep();
  return result;
}

CUresult launch_graph(Request& request, const commands::LaunchGraph& command) {
  return launch(request, command);
}

CUresult try_launch_graph(Request& request, const commands::TryLaunchGraph& command) {
  return launch(request, command);
}

CUresult upload_graph(Request& request, const commands::UploadGraph& command) {
  Exec exec;
  CUstream stream = command.stream;
  if (const CUresult bad = exec_of(request, command.exec, exec); bad != CUDA_SUCCESS) return bad;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  return request.driver().cuGraphUpload(exec.native, stream);
}

CUresult graph_exec_flags(Request& request, const commands::GraphExecFlags& command,
                          commands::GraphExecFlags::Reply& reply) {
  Exec exec;
  if (const CUresult bad = exec_of(request, command.exec, exec); bad != CUDA_SUCCESS) return bad;
  if (request.driver().cuGraphExecGetFlags == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  cuuint64_t flags = 0;
  const CUresult result = request.driver().cuGraphExecGetFlags(exec.native, &flags);
  reply.flags = flags;
  return result;
}

void update_graph_exec(Request request, const commands::UpdateGraphExec& command) {
  commands::UpdateGraphExec::Reply none;
  Session& session = request.session();
  Exec exec;
  const CUresult bad = exec_of(request, command.exec, exec);
  const CUgraph graph = session.graphs().graph(command.graph);
  if (bad != CUDA_SUCCESS) return request.reply(bad, none);
  if (graph == nullptr) return request.reply(CUDA_ERROR_INVALID_VALUE, none);
  if (request.driver().cuGraphExecUpdate_v2 == nullptr) {
    return request.reply(CUDA_ERROR_NOT_SUPPORTED, none);
  }
  request.forget_payload();
  auto update = std::make_shared<ExecUpdate>();
  *update = {exec,
             graph,
             command.graph,
             nullptr,
             session.graphs().at_work(),
             command.exec,
             session.graphs().records().image_of(command.graph)};
  if (exec.origin != nullptr) update->copy = exec.origin->for_update(command.graph, graph);
  update->alone = session.graphs().begin_update(command.exec, command.graph);
  session.run_slow(std::move(request), [&session, update](Request slow) {
    {
      const auto using_objects = session.use();
      update->result = session.enter(slow.context());
      if (update->result == CUDA_SUCCESS) {
        update->result = session.driver().cuGraphExecUpdate_v2(update->exec.native, update->with(),
                                                               &update->info);
      }
    }
    // Numbers are given out by the main thread. What they are for lives until then.
    session.on_main([&session, update, answer = std::make_shared<Request>(std::move(slow))] {
      finish(session, *update, *answer);
    });
  });
}

CUresult set_exec_node(Request& request, const commands::SetExecNode& command) {
  const driver::Table& driver = request.driver();
  Exec whole;
  CUresult bad = exec_of(request, command.exec, whole);
  if (bad != CUDA_SUCCESS) return bad;
  const auto& [exec, origin] = whole;
  const CUgraphNode node = whole.node(request, command.node);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphNodeParams params;
  bad = params.take(request, command.parameters, command.data);
  if (bad != CUDA_SUCCESS) return bad;
  if (command.typed) params.name_context(request);
  if (origin != nullptr) stay_in_part(request.session(), *origin, params.native());
  if (!command.typed && driver.cuGraphExecNodeSetParams == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult result = command.typed
                              ? set_typed_exec_node(driver, exec, node, params.native())
                              : driver.cuGraphExecNodeSetParams(exec, node, &params.native());
  if (result != CUDA_SUCCESS) return result;
  if (origin != nullptr) origin->note_params(command.node, params.native(), command.typed);
  request.session().graphs().records().exec_node_set(command.exec, command.node, command.parameters,
                                                     command.data);
  return result;
}

CUresult enable_exec_node(Request& request, const commands::EnableExecNode& command) {
  Exec exec;
  if (const CUresult bad = exec_of(request, command.exec, exec); bad != CUDA_SUCCESS) return bad;
  const CUgraphNode node = exec.node(request, command.node);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      request.driver().cuGraphNodeSetEnabled(exec.native, node, command.enabled);
  if (result != CUDA_SUCCESS) return result;
  if (exec.origin != nullptr) exec.origin->note_enabled(command.node, command.enabled != 0);
  request.session().graphs().records().exec_node_enabled(command.exec, command.node,
                                                         command.enabled != 0);
  return result;
}

CUresult exec_node_enabled(Request& request, const commands::ExecNodeEnabled& command,
                           commands::ExecNodeEnabled::Reply& reply) {
  Exec exec;
  if (const CUresult bad = exec_of(request, command.exec, exec); bad != CUDA_SUCCESS) return bad;
  const CUgraphNode node = exec.node(request, command.node);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned int enabled = 0;
  const CUresult result = request.driver().cuGraphNodeGetEnabled(exec.native, node, &enabled);
  reply.enabled = enabled;
  return result;
}

}  // namespace flyt::server::hooks
