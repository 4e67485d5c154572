// GraphEdges: what a client says about edges, beside which nodes they join.
#pragma once

#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "cuda/types.h"

namespace flyt::server {

// A value type for one call of the driver.
class GraphEdges {
 public:
  // Nothing, or one CUgraphEdgeData for each of `count` edges; else false.
  bool take(Bytes bytes, std::size_t count) {
    if (bytes.empty()) return true;
    if (bytes.size() != count * sizeof(CUgraphEdgeData)) return false;
    data_.resize(count);
    std::memcpy(data_.data(), bytes.data(), bytes.size());
    return true;
  }
  // Null where nothing was said.
  const CUgraphEdgeData* data() const { return data_.empty() ? nullptr : data_.data(); }

 private:
  std::vector<CUgraphEdgeData> data_;
};

}  // namespace flyt::server
