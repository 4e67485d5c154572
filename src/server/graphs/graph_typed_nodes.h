// Nodes of one kind, by the driver's calls that are for that kind alone: they leave what they do
// not name, contexts above all, as it is.
#pragma once

#include <cstddef>

#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::server {

struct NewNode {
  CUgraphNode* node = nullptr;
  CUgraph graph = nullptr;
  const CUgraphNode* after = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
};

// CUDA_ERROR_INVALID_VALUE for a kind that has no call of its own, and for edges with data, which
// none of these calls takes.
CUresult add_typed_node(const driver::Table& driver, const NewNode& made,
                        CUgraphNodeParams& params);
CUresult set_typed_node(const driver::Table& driver, CUgraphNode node,
                        const CUgraphNodeParams& params);
CUresult set_typed_exec_node(const driver::Table& driver, CUgraphExec exec, CUgraphNode node,
                             const CUgraphNodeParams& params);

}  // namespace flyt::server
