#include "server/graphs/graph_rebuild.h"

#include <cstring>

#include "server/graphs/graph_image.h"

namespace flyt::server {

CUresult GraphEdgesBefore::ask(const driver::Table& driver, CUgraphNode node) {
  const bool with_data = driver.cuGraphNodeGetDependencies_v2 != nullptr;
  std::size_t count = 0;
  CUresult result = with_data ? driver.cuGraphNodeGetDependencies_v2(node, nullptr, nullptr, &count)
                              : driver.cuGraphNodeGetDependencies(node, nullptr, &count);
  nodes.assign(count, nullptr);
  edges.assign(with_data ? count : 0, CUgraphEdgeData{});
  if (result != CUDA_SUCCESS || count == 0) return result;
  return with_data ? driver.cuGraphNodeGetDependencies_v2(node, nodes.data(), edges.data(), &count)
                   : driver.cuGraphNodeGetDependencies(node, nodes.data(), &count);
}

CUresult GraphRebuild::rebuild(CUgraph from, CUgraph& to) {
  CUresult result = driver_.cuGraphCreate(&to, 0);
  if (result != CUDA_SUCCESS) return result;
  result = add_all(from, to);
  if (result != CUDA_SUCCESS) driver_.cuGraphDestroy(to);
  return result;
}

CUresult GraphRebuild::add_all(CUgraph from, CUgraph to) {
  std::size_t count = 0;
  CUresult result = driver_.cuGraphGetNodes(from, nullptr, &count);
  std::vector<CUgraphNode> nodes(count);
  if (result == CUDA_SUCCESS && count != 0) {
    result = driver_.cuGraphGetNodes(from, nodes.data(), &count);
  }
  std::unordered_map<CUgraphNode, CUgraphNode> twins;
  for (std::size_t i = 0; i < nodes.size() && result == CUDA_SUCCESS; ++i) {
    result = add(to, nodes[i], twins[nodes[i]]);
  }
  for (std::size_t i = 0; i < nodes.size() && result == CUDA_SUCCESS; ++i) {
    GraphEdgesBefore before;
    result = before.ask(driver_, nodes[i]);
    if (result != CUDA_SUCCESS || before.nodes.empty()) continue;
    for (CUgraphNode& node : before.nodes) node = twins[node];
    const std::vector<CUgraphNode> behind(before.nodes.size(), twins[nodes[i]]);
    result =
        before.edges.empty() || driver_.cuGraphAddDependencies_v2 == nullptr
            ? driver_.cuGraphAddDependencies(to, before.nodes.data(), behind.data(), behind.size())
            : driver_.cuGraphAddDependencies_v2(to, before.nodes.data(), behind.data(),
                                                before.edges.data(), behind.size());
  }
  return result;
}

CUresult GraphRebuild::add(CUgraph to, CUgraphNode from, CUgraphNode& made) {
  CUgraphNodeType type{};
  CUresult result = driver_.cuGraphNodeGetType(from, &type);
  if (result != CUDA_SUCCESS) return result;
  if (type == CU_GRAPH_NODE_TYPE_KERNEL) return add_kernel(to, from, made);
  if (type == CU_GRAPH_NODE_TYPE_GRAPH) return add_child(to, from, made);
  if (type == CU_GRAPH_NODE_TYPE_EMPTY) {
    return driver_.cuGraphAddEmptyNode(&made, to, nullptr, 0);
  }
  if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    CUDA_MEMCPY3D copy{};
    result = driver_.cuGraphMemcpyNodeGetParams(from, &copy);
    return result == CUDA_SUCCESS
               ? driver_.cuGraphAddMemcpyNode(&made, to, nullptr, 0, &copy, part_.context)
               : result;
  }
  if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
    CUDA_MEMSET_NODE_PARAMS fill{};
    result = driver_.cuGraphMemsetNodeGetParams(from, &fill);
    return result == CUDA_SUCCESS
               ? driver_.cuGraphAddMemsetNode(&made, to, nullptr, 0, &fill, part_.context)
               : result;
  }
  if (type == CU_GRAPH_NODE_TYPE_HOST) {
    CUDA_HOST_NODE_PARAMS host{};
    result = driver_.cuGraphHostNodeGetParams(from, &host);
    return result == CUDA_SUCCESS ? driver_.cuGraphAddHostNode(&made, to, nullptr, 0, &host)
                                  : result;
  }
  return add_event(to, from, type, made);
}

CUresult GraphRebuild::add_event(CUgraph to, CUgraphNode from, CUgraphNodeType type,
                                 CUgraphNode& made) const {
  CUevent event = nullptr;
  if (type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
    const CUresult result = driver_.cuGraphEventWaitNodeGetEvent(from, &event);
    return result == CUDA_SUCCESS ? driver_.cuGraphAddEventWaitNode(&made, to, nullptr, 0, event)
                                  : result;
  }
  if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
    const CUresult result = driver_.cuGraphEventRecordNodeGetEvent(from, &event);
    return result == CUDA_SUCCESS ? driver_.cuGraphAddEventRecordNode(&made, to, nullptr, 0, event)
                                  : result;
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult GraphRebuild::add_child(CUgraph to, CUgraphNode from, CUgraphNode& made) {
  CUgraph child = nullptr;
  CUgraph fresh = nullptr;
  CUresult result = driver_.cuGraphChildGraphNodeGetGraph(from, &child);
  if (result == CUDA_SUCCESS) result = rebuild(child, fresh);
  if (result != CUDA_SUCCESS) return result;
  // The node has a copy of its own.
  result = driver_.cuGraphAddChildGraphNode(&made, to, nullptr, 0, fresh);
  driver_.cuGraphDestroy(fresh);
  return result;
}

CUresult GraphRebuild::add_kernel(CUgraph to, CUgraphNode from, CUgraphNode& made) {
  CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
  CUresult result = driver_.cuGraphKernelNodeGetParams_v2(from, &kernel);
  if (result != CUDA_SUCCESS) return result;
  if (kernel.kern == nullptr) {
    result = capture_.add(to, kernel, made);
  } else {
    kernel.func = nullptr;
    kernel.ctx = part_.context;
    result = driver_.cuGraphAddKernelNode_v2(&made, to, nullptr, 0, &kernel);
  }
  if (result == CUDA_SUCCESS) copy_attributes(made, from);
  return result;
}

// What a node has beyond its parameters.
void GraphRebuild::copy_attributes(CUgraphNode to, CUgraphNode from) const {
  for (const CUkernelNodeAttrID attribute : kNodeAttributes) {
    CUkernelNodeAttrValue old{};
    CUkernelNodeAttrValue fresh{};
    if (driver_.cuGraphKernelNodeGetAttribute(from, attribute, &old) != CUDA_SUCCESS) continue;
    driver_.cuGraphKernelNodeGetAttribute(to, attribute, &fresh);
    if (std::memcmp(&old, &fresh, sizeof old) == 0) continue;
    driver_.cuGraphKernelNodeSetAttribute(to, attribute, &old);
  }
}

}  // namespace flyt::server
