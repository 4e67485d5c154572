// How many blocks and clusters fit.
#include "server/hooks_occupancy.h"

#include "server/launch_attributes.h"

namespace flyt::server::hooks {

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
  return command.which == 0
             ? driver.cuOccupancyMaxPotentialClusterSize(&reply.count, function, &config)
             : driver.cuOccupancyMaxActiveClusters(&reply.count, function, &config);
}

}  // namespace flyt::server::hooks
