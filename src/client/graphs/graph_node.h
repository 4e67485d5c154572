// GraphNode: what a program says that a node does, as it travels, and what the server tells of one.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "client/graphs/graphs.h"
#include "cuda/types.h"

namespace flyt::client {

// A value type for one command.
class GraphNode {
 public:
  // What `given` says, which is checked as far as this side must: CUDA_ERROR_INVALID_VALUE,
  // CUDA_ERROR_INVALID_HANDLE. Host memory that it names is reached by the GPU from now on.
  CUresult take(const CUgraphNodeParams& given);

  Bytes parameters() const { return bytes_at(&params_, sizeof params_); }
  Bytes data() const { return data_; }
  // What of that memory CUDA does not know: as long as the node exists.
  const LentMemories& lent() const { return lent_; }

 private:
  CUresult take_kernel();
  CUresult take_memset();
  CUresult take_host();
  CUresult take_words();
  CUresult take_access();

  CUgraphNodeParams params_{};
  Bytes data_;
  std::vector<std::byte> own_;
  LentMemories lent_;
};

// The same for a copy: its host memory, at addresses of the GPU's.
CUresult take_graph_copy(CUDA_MEMCPY3D& copy, LentMemories& lent);

// Asks what a node of that type does; what `out` points to stays until it is asked again.
CUresult ask_graph_node(CUgraphNode node, CUgraphNodeType type, CUgraphNodeParams& out);

}  // namespace flyt::client
