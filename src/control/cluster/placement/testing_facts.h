// Nodes and requests for tests and benchmarks of placement.
#pragma once

#include <string>

#include "base/bytes.h"
#include "control/cluster/placement/facts.h"

namespace flyt::placement {

inline GpuFacts test_gpu(std::uint32_t index, std::uint32_t groups = 4,
                         std::uint64_t memory = 16 * kGiB) {
  GpuFacts gpu;
  gpu.index = index;
  gpu.kind = "soft";
  gpu.groups.assign(groups, 8);
  gpu.memory_bytes = memory;
  return gpu;
}

// As an H200 is cut: 15 groups of 8, and one of 12.
inline GpuFacts test_hopper(std::uint32_t index) {
  GpuFacts gpu = test_gpu(index, 15, 128 * kGiB);
  gpu.groups.push_back(12);
  gpu.rest_is_group = true;
  return gpu;
}

inline NodeFacts test_node(const std::string& name, std::uint32_t gpus = 1,
                           std::uint32_t groups = 4) {
  NodeFacts node;
  node.name = name;
  node.host = name;
  for (std::uint32_t i = 0; i < gpus; ++i) node.gpus.push_back(test_gpu(i, groups));
  return node;
}

inline Request test_request(const std::string& id, std::uint32_t sms = 8,
                            std::uint64_t memory = kGiB) {
  Request request;
  request.id = id;
  request.sms = sms;
  request.memory_bytes = memory;
  return request;
}

}  // namespace flyt::placement
