// Graph: nodes of work and the edges between them, as a program makes them or a capture does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "cuda/types.h"
#include "softgpu/copy.h"
#include "softgpu/driver.h"
#include "softgpu/graph_memory.h"
#include "softgpu/launch.h"
#include "softgpu/memop.h"

namespace flyt::softgpu {

class Graph;
struct GraphNode;

// What nodes do. Contexts are handles: a graph keeps none alive.
struct EmptyWork {};
struct KernelWork {
  std::uint64_t context = 0;
  std::shared_ptr<Function> function;
  CUfunction func = nullptr;  // As given; null where `kern` was.
  CUkernel kern = nullptr;
  LaunchRequest request;
};
struct CopyWork {
  std::uint64_t context = 0;
  CUDA_MEMCPY3D params{};
  CopyRequest request;
};
struct FillWork {
  std::uint64_t context = 0;
  CUDA_MEMSET_NODE_PARAMS_v2 params{};
  FillRequest request;
};
struct HostWork {
  CUhostFn fn = nullptr;
  void* user_data = nullptr;
  // A callback of cuStreamAddCallback, if not null.
  CUstreamCallback callback = nullptr;
  CUstream stream = nullptr;
};
struct ChildWork {
  std::shared_ptr<Graph> graph;
};
struct RecordWork {
  CUevent handle = nullptr;
  std::shared_ptr<Event> event;
};
struct WaitWork {
  CUevent handle = nullptr;
  std::shared_ptr<Event> event;
};
struct WordsWork {
  std::uint64_t context = 0;
  std::vector<CUstreamBatchMemOpParams> batch;
  std::vector<MemoryWord> words;
  unsigned flags = 0;
};
struct AllocWork {
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 params{};
  std::vector<CUmemAccessDesc> access;
  std::shared_ptr<GraphAllocation> allocation;
};
struct FreeWork {
  CUdeviceptr address = 0;
};
struct ConditionalWork {
  std::uint64_t handle = 0;
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
  std::uint64_t context = 0;
  std::vector<std::shared_ptr<Graph>> bodies;
  std::vector<CUgraph> told;  // Their handles, for phGraph_out.
};
using Work = std::variant<EmptyWork, KernelWork, CopyWork, FillWork, HostWork, ChildWork,
                          RecordWork, WaitWork, WordsWork, AllocWork, FreeWork, ConditionalWork>;

CUgraphNodeType type_of(const Work& work);
// The context that the work names; 0: that of the stream it is launched into.
std::uint64_t context_of_work(const Work& work);
void rename_context(Work& work, std::uint64_t from, std::uint64_t to);
// Bodies of conditional nodes hold what a device can begin without the host.
bool allowed_in_body(const Work& work);

inline constexpr CUgraphEdgeData kPlainEdge{};
bool operator==(const CUgraphEdgeData& a, const CUgraphEdgeData& b);
inline bool plain(const CUgraphEdgeData& data) { return data == kPlainEdge; }

struct Edge {
  GraphNode* node = nullptr;  // The other end.
  CUgraphEdgeData data{};
};

struct GraphNode {
  std::uint64_t handle = 0;  // A copy within an executable graph has its original's.
  std::uint64_t origin = 0;  // Of what it was cloned from.
  Graph* graph = nullptr;
  Work work;
  std::vector<Edge> dependencies;  // In the order in which they were added.
  std::vector<Edge> dependents;
  bool enabled = true;  // In executable graphs.
  // What the last query of its parameters pointed to.
  std::vector<void*> told_pointers;
};

// A handle of cuGraphConditionalHandleCreate.
struct Conditional {
  unsigned value = 0;
  bool assign = false;  // `value` at each launch.
};

class UserObject;

// Takes the handles of the graphs that the work holds away.
void forget_graphs(Driver& driver, const Work& work);

// Guarded by the GraphStore's mutex.
class Graph {
 public:
  // With `driver`, it and its nodes have handles of their own.
  static std::shared_ptr<Graph> make(Driver* driver);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::uint64_t handle() const { return handle_; }
  const std::vector<std::shared_ptr<GraphNode>>& nodes() const { return nodes_; }

  // Takes the handles of the graphs within it away; its nodes keep these alive.
  void forget_children(Driver& driver) const;

  GraphNode& add(Work work, std::span<const Edge> dependencies);
  void remove(GraphNode& node);
  static void connect(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data);
  static void disconnect(GraphNode& from, GraphNode& to);
  static bool connected(const GraphNode& from, const GraphNode& to);

  // A deep copy: with `driver` a graph of its own, without one the inside of an executable graph,
  // whose nodes are known by the handles of their originals.
  std::shared_ptr<Graph> clone(Driver* driver) const;
  // Of cuGraphClone.
  std::uint64_t origin() const { return origin_; }

  // Every node of it, of its children and of its conditional bodies.
  template <class Visit>
  void each(Visit visit) const;
  // An order in which no node comes before what it depends on; shorter than nodes() where there
  // is a cycle.
  std::vector<GraphNode*> order() const;
  // Has it, or a graph in it, nodes that allocate or free?
  bool has_memory() const;
  // Conditional ones?
  bool has_conditionals() const;
  // Is there neither a clone nor a second instance of it?
  bool is_single() const { return has_memory() || has_conditionals(); }

  // A child's or a body's: it goes with its node.
  bool owned() const { return owned_; }
  void set_owned() { owned_ = true; }
  // The body of a conditional node.
  bool body() const { return body_; }
  void set_body(std::uint64_t outer) {
    body_ = true;
    outer_ = outer;
  }
  // The handle of the graph that the node is in whose body this is, if it has one.
  std::uint64_t outer() const { return outer_; }
  // A capture adds to it.
  unsigned captures = 0;
  // Executable graphs of it.
  std::shared_ptr<unsigned> instances = std::make_shared<unsigned>(0);

  std::map<std::uint64_t, Conditional>& conditionals() { return conditionals_; }
  const std::map<std::uint64_t, Conditional>& conditionals() const { return conditionals_; }
  // References to objects of the program that it holds. False where it has not so many.
  void hold(const std::shared_ptr<UserObject>& object, std::uint64_t count);
  bool let_go(const std::shared_ptr<UserObject>& object, std::uint64_t count);
  // Holds what the other one holds, instead of its own.
  void take_objects(const Graph& other);

 private:
  explicit Graph(Driver* driver) : driver_(driver) {}
  static Work clone_work(const Work& work, Driver* driver);

  Driver* const driver_;
  std::uint64_t handle_ = 0;
  std::uint64_t origin_ = 0;
  bool owned_ = false;
  bool body_ = false;
  std::uint64_t outer_ = 0;
  std::vector<std::shared_ptr<GraphNode>> nodes_;  // In the order in which they were added.
  std::map<std::uint64_t, Conditional> conditionals_;
  std::map<std::shared_ptr<UserObject>, std::uint64_t> objects_;  // And how often it is held.
};

template <class Visit>
void Graph::each(Visit visit) const {
  for (const auto& node : nodes_) {
    visit(*node);
    if (const auto* child = std::get_if<ChildWork>(&node->work)) child->graph->each(visit);
    if (const auto* conditional = std::get_if<ConditionalWork>(&node->work)) {
      for (const auto& body : conditional->bodies) body->each(visit);
    }
  }
}

}  // namespace flyt::softgpu
