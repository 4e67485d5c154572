// How many blocks and clusters fit: the server's driver computes, the client remembers.
#include "client/hooks_occupancy.h"

#include <algorithm>
#include <string>

#include "client/answer_cache.h"
#include "client/call.h"
#include "client/code/launch.h"
#include "commands/occupancy.h"

namespace flyt::client::hooks {
namespace {

// A function of any context can be asked about; its own answers.
struct Asked {
  explicit Asked(CUfunction function)
      : scope(home_of(function)), bad(find_callable(function, callable)) {}
  const ContextScope scope;
  Callable callable;
  const CUresult bad;
};

// One question about a function, by the cache or the server. `value(reply)` picks the answer.
template <class Command, class Value>
CUresult remembered(const Callable& callable, const Command& command, std::uint64_t& out,
                    Value&& value) {
  auto& cache = session().code().occupancy;
  std::string key = cache.key_of(command, callable.facts->version.load());
  // A part of the device has answers of its own.
  if (context().green != 0) key += std::to_string(context().green);
  if (cache.find(key, out)) return CUDA_SUCCESS;
  typename Command::Reply reply;
  const CUresult result = ask(command, reply);
  if (result != CUDA_SUCCESS) return result;
  out = value(reply);
  cache.add(std::move(key), out);
  return CUDA_SUCCESS;
}

CUresult blocks_per_multiprocessor(CUfunction function, int block_size, std::size_t shared_bytes,
                                   unsigned int flags, int& out) {
  const Asked asked(function);
  if (asked.bad != CUDA_SUCCESS) return asked.bad;
  const commands::OccupancyBlocks command{
      .function = function, .block_size = block_size, .shared_bytes = shared_bytes, .flags = flags};
  std::uint64_t blocks = 0;
  const CUresult result = remembered(asked.callable, command, blocks, [](const auto& reply) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(reply.blocks));
  });
  out = static_cast<int>(static_cast<std::uint32_t>(blocks));
  return result;
}

// Tries block sizes from the largest down, as the shared memory they need is only known here.
CUresult potential_with_callback(CUfunction function, CUoccupancyB2DSize shared_of, int limit,
                                 unsigned int flags, int* min_grid_size, int* block_size) {
  const Asked asked(function);
  if (asked.bad != CUDA_SUCCESS) return asked.bad;
  const Device& device = *session().devices().find(context().device);
  const int warp = device.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  const int threads_max = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  const int function_max =
      asked.callable.facts->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK].load();
  const int most =
      std::min(function_max, device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  const int largest = limit == 0 ? most : std::min(limit, most);
  std::int64_t best_threads = 0;
  int best_blocks = 0;
  int best_size = 0;
  for (int size = (largest + warp - 1) / warp * warp; size > 0; size -= warp) {
    const int tried = std::min(size, largest);
    int blocks = 0;
    const CUresult result =
        blocks_per_multiprocessor(function, tried, shared_of(tried), flags, blocks);
    if (result != CUDA_SUCCESS) return result;
    // The server may answer any number.
    if (std::int64_t{blocks} * tried > best_threads) {
      best_threads = std::int64_t{blocks} * tried;
      best_blocks = blocks;
      best_size = tried;
    }
    if (best_threads == threads_max) break;
  }
  const int multiprocessors = context().green != 0
                                  ? static_cast<int>(context().multiprocessors)
                                  : device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  *min_grid_size = static_cast<int>(std::int64_t{best_blocks} * multiprocessors);
  *block_size = best_size;
  return CUDA_SUCCESS;
}

CUresult clusters(CUfunction function, const CUlaunchConfig* config, std::uint8_t which, int* out) {
  if (out == nullptr || config == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ContextScope scope(home_of(config->hStream));
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  const Asked asked(function);
  if (asked.bad != CUDA_SUCCESS) return asked.bad;
  PackedAttributes attributes;
  if (const CUresult no = attributes.pack(*config); no != CUDA_SUCCESS) return no;
  const commands::OccupancyClusters command{.function = function,
                                            .which = which,
                                            .grid_x = config->gridDimX,
                                            .grid_y = config->gridDimY,
                                            .grid_z = config->gridDimZ,
                                            .block_x = config->blockDimX,
                                            .block_y = config->blockDimY,
                                            .block_z = config->blockDimZ,
                                            .shared_bytes = config->sharedMemBytes,
                                            .attributes = attributes.bytes()};
  std::uint64_t count = 0;
  const CUresult result = remembered(asked.callable, command, count, [](const auto& reply) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(reply.count));
  });
  if (result == CUDA_SUCCESS) *out = static_cast<int>(static_cast<std::uint32_t>(count));
  return result;
}

}  // namespace

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags) {
  if (numBlocks == nullptr || blockSize <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  int blocks = 0;
  const CUresult result =
      blocks_per_multiprocessor(func, blockSize, dynamicSMemSize, flags, blocks);
  if (result == CUDA_SUCCESS) *numBlocks = blocks;
  return result;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                              dynamicSMemSize, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
  if (minGridSize == nullptr || blockSize == nullptr || blockSizeLimit < 0 ||
      flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (blockSizeToDynamicSMemSize != nullptr) {
    return potential_with_callback(func, blockSizeToDynamicSMemSize, blockSizeLimit, flags,
                                   minGridSize, blockSize);
  }
  const Asked asked(func);
  if (asked.bad != CUDA_SUCCESS) return asked.bad;
  const commands::OccupancyBlockSize command{.function = func,
                                             .shared_bytes = dynamicSMemSize,
                                             .block_size_limit = blockSizeLimit,
                                             .flags = flags};
  std::uint64_t both = 0;
  const CUresult result = remembered(asked.callable, command, both, [](const auto& reply) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(reply.min_grid_size)) << 32 |
           static_cast<std::uint32_t>(reply.block_size);
  });
  if (result != CUDA_SUCCESS) return result;
  *minGridSize = static_cast<int>(both >> 32);
  *blockSize = static_cast<int>(static_cast<std::uint32_t>(both));
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(
      minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize) {
  if (dynamicSmemSize == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Asked asked(func);
  if (asked.bad != CUDA_SUCCESS) return asked.bad;
  const commands::OccupancyShared command{
      .function = func, .blocks = numBlocks, .block_size = blockSize};
  std::uint64_t bytes = 0;
  const CUresult result =
      remembered(asked.callable, command, bytes, [](const auto& reply) { return reply.bytes; });
  if (result == CUDA_SUCCESS) *dynamicSmemSize = bytes;
  return result;
}

CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                            const CUlaunchConfig* config) {
  return clusters(func, config, 0, clusterSize);
}

CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                      const CUlaunchConfig* config) {
  return clusters(func, config, 1, numClusters);
}

}  // namespace flyt::client::hooks
