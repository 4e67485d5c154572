// What may change in an executable graph, and taking it over.
#pragma once

#include "softgpu/graph.h"

namespace flyt::softgpu {

// May work of an executable graph become `with`? Copies and fills of more than one row and the
// kinds of memory that are copied between stay as they are, and so do contexts.
CUgraphExecUpdateResult check_change(const Work& own, const Work& with);

// Compares the graphs node by node, along dependencies from the nodes at their ends, whatever the
// order in which nodes were added. Says in `info` what stands in the way of apply_update(), if
// anything does.
bool check_update(const Graph& own, const Graph& with, CUgraphExecUpdateResultInfo& info);
// Takes the work of `with` over. Both have the same shape.
void apply_update(Graph& own, const Graph& with);

}  // namespace flyt::softgpu
