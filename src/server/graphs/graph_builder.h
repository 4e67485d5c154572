// GraphBuilder: graphs of the driver's made of images.
#pragma once

#include "cuda/types.h"
#include "server/graphs/graph_image.h"
#include "server/graphs/kernel_capture.h"
#include "server/request.h"

namespace flyt::server {

// One thread's. The context in which graphs were made is current.
class GraphBuilder {
 public:
  explicit GraphBuilder(Request& request)
      : request_(request), driver_(request.driver()), capture_(request.driver()) {}

  // The caller's to destroy. CUDA_ERROR_INVALID_HANDLE or _CONTEXT: something that a node names has
  // ended.
  CUresult build(const GraphImage& image, CUgraph& graph);

 private:
  CUresult add_all(const GraphImage& image, CUgraph graph);
  CUresult add_edges(const GraphImage& image, CUgraph graph, const std::vector<CUgraphNode>& nodes);
  CUresult add(const NodeImage& node, CUgraph graph, CUgraphNode& made);
  CUresult add_child(const NodeImage& node, CUgraph graph, CUgraphNode& made);
  CUresult add_kernel(CUgraphNodeParams& params, CUgraph graph, CUgraphNode& made);
  CUresult set_attributes(const NodeImage& node, CUgraphNode made) const;

  Request& request_;
  const driver::Table& driver_;
  KernelCapture capture_;
};

// The same image as the driver knows it now that it was made; null if it is not as it was.
GraphImageRef with_natives(const driver::Table& driver, const GraphImage& image, CUgraph graph);

}  // namespace flyt::server
