// How many blocks and clusters fit.
#include "server/hooks_occupancy.h"

#include <algorithm>
#include <span>

#include "server/code/launch_attributes.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

// What fits into any group of multiprocessors: an H200 takes no more in a part of them.
constexpr unsigned kClusterBlocksMax = 8;

unsigned cluster_blocks(const CUlaunchConfig& config) {
  for (const CUlaunchAttribute& each : std::span(config.attrs, config.numAttrs)) {
    if (each.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& size = each.value.clusterDim;
    return size.x * size.y * size.z;
  }
  return 1;
}

}  // namespace

CUresult occupancy_blocks(Request& request, const commands::OccupancyBlocks& command,
                          commands::OccupancyBlocks::Reply& reply) {
  CUfunction function = command.function;
  if (!request.resolve(function)) return CUDA_ERROR_INVALID_HANDLE;
  return request.driver().cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      &reply.blocks, function, command.block_size, command.shared_bytes, command.flags);
}

CUresult occupancy_block_size(Request& request, const commands::OccupancyBlockSize& command,
                              commands::OccupancyBlockSize::Reply& reply) {
  CUfunction function = command.function;
  if (!request.resolve(function)) return CUDA_ERROR_INVALID_HANDLE;
  return request.driver().cuOccupancyMaxPotentialBlockSizeWithFlags(
      &reply.min_grid_size, &reply.block_size, function, nullptr, command.shared_bytes,
      command.block_size_limit, command.flags);
}

CUresult occupancy_shared(Request& request, const commands::OccupancyShared& command,
                          commands::OccupancyShared::Reply& reply) {
  CUfunction function = command.function;
  if (!request.resolve(function)) return CUDA_ERROR_INVALID_HANDLE;
  std::size_t bytes = 0;
  const CUresult result = request.driver().cuOccupancyAvailableDynamicSMemPerBlock(
      &bytes, function, command.blocks, command.block_size);
  reply.bytes = bytes;
  return result;
}

CUresult occupancy_clusters(Request& request, const commands::OccupancyClusters& command,
                            commands::OccupancyClusters::Reply& reply) {
  CUfunction function = command.function;
  if (!request.resolve(function)) return CUDA_ERROR_INVALID_HANDLE;
  LaunchAttributes attributes;
  if (const CUresult bad = attributes.take(request, command.attributes); bad != CUDA_SUCCESS) {
    return bad;
  }
  const CUlaunchConfig config = attributes.config(command, nullptr);
  const driver::Table& driver = request.driver();
  const CUresult result =
      command.which == 0
          ? driver.cuOccupancyMaxPotentialClusterSize(&reply.count, function, &config)
          : driver.cuOccupancyMaxActiveClusters(&reply.count, function, &config);
  // Libraries choose by this once, and the multiprocessors may be others later.
  if (request.session().movable()) {
    const bool larger = cluster_blocks(config) > kClusterBlocksMax;
    if (command.which == 0) reply.count = std::min<int>(reply.count, kClusterBlocksMax);
    if (command.which != 0 && larger) reply.count = 0;
  }
  return result;
}

}  // namespace flyt::server::hooks
