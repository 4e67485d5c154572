// GraphExec: an executable graph: what cuGraphInstantiate makes and cuGraphLaunch runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "softgpu/graph.h"
#include "softgpu/graph_plan.h"

namespace flyt::softgpu {

// Guarded by the GraphStore's mutex.
class GraphExec {
 public:
  // `home`: the context that is current, or 0. `error_node`: the handle of the node that stands in
  // the way, or 0.
  static CUresult make(const Graph& graph, std::uint64_t flags, std::uint64_t home,
                       std::shared_ptr<GraphExec>* out, std::uint64_t* error_node,
                       CUgraphInstantiateResult* result);
  ~GraphExec();
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;

  std::uint64_t flags() const { return flags_; }
  const Graph& graph() const { return *graph_; }
  Graph& graph() { return *graph_; }
  // By the handle of the node it was made from; null where it has none of it.
  GraphNode* node(std::uint64_t handle) const;
  // A node was changed: later launches run a new plan.
  void changed() { plan_ = nullptr; }

  // Does it end with the context? That is one of those its nodes name; where they name none, the
  // one that was current when it was made.
  bool belongs_to(std::uint64_t context) const;
  // It can only be destroyed any more.
  void end() { ended_ = true; }
  bool ended() const { return ended_; }

  // Takes over the parameters of another graph of the same shape.
  CUresult update(const Graph& graph, CUgraphExecUpdateResultInfo* info);

  // After its last launch, behind what the stream has to do. The stream is not capturing.
  CUresult launch(Driver& driver, const std::shared_ptr<Context>& context, Stream& stream);
  const Ticket& last_launch() const { return last_launch_; }
  // Makes ready what a launch would have to.
  CUresult prepare() { return back_memory(); }

 private:
  GraphExec(std::shared_ptr<Graph> graph, std::uint64_t flags, std::uint64_t home);
  const std::shared_ptr<const GraphPlan>& plan();
  // Backs what the graph allocates and claims what it leaves behind. Tells what an earlier launch
  // left that must be freed first.
  CUresult claim_memory(Driver& driver, std::vector<std::uint64_t>& free_first);
  CUresult back_memory();

  const std::shared_ptr<Graph> graph_;
  const std::uint64_t flags_;
  const std::uint64_t home_;
  bool ended_ = false;
  std::map<std::uint64_t, GraphNode*> nodes_;
  std::shared_ptr<const GraphPlan> plan_;
  Ticket last_launch_;
};

// At a context's end: executable graphs of it are of no use any more, and what graphs name of it is
// nothing of a context that gets its handle later.
void end_graphs(Driver& driver, const Context& context);

}  // namespace flyt::softgpu
