// GraphRebuild: a graph of the driver's put together anew for other multiprocessors.
#pragma once

#include <unordered_map>
#include <vector>

#include "cuda/types.h"
#include "driver/table.h"
#include "server/graphs/kernel_capture.h"
#include "server/lease/sm_part.h"

namespace flyt::server {

// What a node depends on, and how.
struct GraphEdgesBefore {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;  // Empty from drivers that know none.

  CUresult ask(const driver::Table& driver, CUgraphNode node);
};

// Nodes come in the order of the original's, whatever it is edges that order them: a driver pairs
// the nodes of an update by that. One thread's, with the part's context current.
class GraphRebuild {
 public:
  GraphRebuild(const driver::Table& driver, const SmPart& part)
      : driver_(driver), part_(part), capture_(driver) {}
  GraphRebuild(const GraphRebuild&) = delete;
  GraphRebuild& operator=(const GraphRebuild&) = delete;

  // CUDA_ERROR_NOT_SUPPORTED for nodes that own something.
  CUresult rebuild(CUgraph from, CUgraph& to);

 private:
  CUresult add_all(CUgraph from, CUgraph to);
  CUresult add(CUgraph to, CUgraphNode from, CUgraphNode& made);
  CUresult add_kernel(CUgraph to, CUgraphNode from, CUgraphNode& made);
  CUresult add_child(CUgraph to, CUgraphNode from, CUgraphNode& made);
  CUresult add_event(CUgraph to, CUgraphNode from, CUgraphNodeType type, CUgraphNode& made) const;
  void copy_attributes(CUgraphNode to, CUgraphNode from) const;

  const driver::Table& driver_;
  const SmPart& part_;
  KernelCapture capture_;
};

}  // namespace flyt::server
