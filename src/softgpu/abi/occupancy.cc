// How many blocks and clusters fit.
#include <algorithm>
#include <iterator>

#include "softgpu/abi/enter.h"
#include "softgpu/launch.h"

namespace flyt::softgpu {
namespace {

template <class Body>
CUresult with_function(CUfunction handle, Body body) {
  return with_context([&](Driver& driver, Context& context) -> CUresult {
    std::shared_ptr<Function> function;
    const CUresult bad = find_function(driver, context, handle, true, function);
    return bad != CUDA_SUCCESS ? bad : body(driver, context, *function);
  });
}

bool good_shape(const CUlaunchConfig& config) {
  const unsigned extents[] = {config.gridDimX,  config.gridDimY,  config.gridDimZ,
                              config.blockDimX, config.blockDimY, config.blockDimZ};
  return std::all_of(std::begin(extents), std::end(extents),
                     [](unsigned extent) { return extent != 0 && extent >> 31 == 0; });
}

// The same for calls whose configuration names a stream, which brings its context.
template <class Body>
CUresult with_configured(CUfunction handle, const CUlaunchConfig* config, const int* out,
                         Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (handle == nullptr || config == nullptr || out == nullptr || !good_shape(*config)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    StreamOfCall stream;
    CUresult bad = find_stream(driver, config->hStream, stream);
    std::shared_ptr<Function> function;
    if (bad == CUDA_SUCCESS) bad = find_function(driver, *stream.context, handle, true, function);
    return bad != CUDA_SUCCESS ? bad : body(driver, *stream.context, *function);
  });
}

// The block size with the most resident threads; of equals the larger one.
void best_block(const Function& function, unsigned multiprocessors, CUoccupancyB2DSize shared_of,
                std::size_t shared, unsigned limit, int* grid, int* block) {
  const Device& device = function.module()->device();
  int most = 0;
  CUresult bad =
      get_attribute(function.module()->program().module(), function.code(), function.info(),
                    function.settings(), device, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &most);
  if (bad != CUDA_SUCCESS) return;
  const unsigned warp = device.limits().warp;
  unsigned largest = static_cast<unsigned>(most);
  if (limit != 0) largest = std::min(largest, limit);
  unsigned best_threads = 0;
  for (unsigned threads = (largest + warp - 1) / warp * warp; threads >= warp; threads -= warp) {
    const unsigned size = std::min(threads, largest);
    const std::size_t bytes = shared_of == nullptr ? shared : shared_of(static_cast<int>(size));
    const unsigned blocks = blocks_per_multiprocessor(function, size, bytes);
    if (blocks * size <= best_threads) continue;
    best_threads = blocks * size;
    *block = static_cast<int>(size);
    *grid = static_cast<int>(blocks * multiprocessors);
  }
}

// The clusters of a configuration, checked as for a launch.
CUresult find_clusters(const Function& function, const CUlaunchConfig& config,
                       LaunchRequest& request) {
  if (config.numAttrs != 0 && config.attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  request.grid = {config.gridDimX, config.gridDimY, config.gridDimZ};
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const CUresult bad = apply_attribute(config.attrs[i], request);
    if (bad != CUDA_SUCCESS) return bad;
  }
  return check_cluster(function, request);
}

// Of the current context, which may be a part of the device.
unsigned current_multiprocessors(const Context& context) {
  std::shared_ptr<Partition> partition;
  const bool known = current_partition(context, partition) == CUDA_SUCCESS;
  return multiprocessors_for(context.device(), known ? partition->sms().get() : nullptr);
}

// The stream of a configuration says where its blocks would run.
unsigned multiprocessors_of(Driver& driver, const Context& context, const CUlaunchConfig& config) {
  StreamOfCall stream;
  if (config.hStream == nullptr || find_stream(driver, config.hStream, stream) != CUDA_SUCCESS) {
    return current_multiprocessors(context);
  }
  return multiprocessors_for(context.device(), stream.stream->sms().get());
}

unsigned resident_blocks(const Function& function, const CUlaunchConfig& config,
                         unsigned multiprocessors) {
  const unsigned threads = config.blockDimX * config.blockDimY * config.blockDimZ;
  return blocks_per_multiprocessor(function, threads, config.sharedMemBytes) * multiprocessors;
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags) {
  return with_function(func, [&](Driver&, Context&, const Function& function) -> CUresult {
    if (numBlocks == nullptr || blockSize <= 0 ||
        (flags & ~unsigned{CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE}) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *numBlocks = static_cast<int>(
        blocks_per_multiprocessor(function, static_cast<unsigned>(blockSize), dynamicSMemSize));
    return CUDA_SUCCESS;
  });
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
  return with_function(func, [&](Driver&, Context& context, const Function& function) -> CUresult {
    if (minGridSize == nullptr || blockSize == nullptr || blockSizeLimit < 0 ||
        (flags & ~unsigned{CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE}) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *minGridSize = 0;
    *blockSize = 0;
    best_block(function, current_multiprocessors(context), blockSizeToDynamicSMemSize,
               dynamicSMemSize, static_cast<unsigned>(blockSizeLimit), minGridSize, blockSize);
    return CUDA_SUCCESS;
  });
}

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(
      minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize) {
  return with_function(func, [&](Driver&, Context&, const Function& function) -> CUresult {
    if (dynamicSmemSize == nullptr || numBlocks <= 0 || blockSize <= 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const DeviceLimits& limits = function.module()->device().limits();
    const unsigned most = blocks_per_multiprocessor(function, static_cast<unsigned>(blockSize), 0);
    if (static_cast<unsigned>(numBlocks) > most) return CUDA_ERROR_INVALID_VALUE;
    const unsigned each = limits.shared_multiprocessor_bytes / static_cast<unsigned>(numBlocks);
    const unsigned taken = limits.shared_reserved_bytes + function.info().shared_bytes;
    const unsigned left = each > taken ? each - taken : 0;
    *dynamicSmemSize =
        std::min(left, static_cast<unsigned>(std::max(function.settings().max_dynamic_shared, 0)));
    return CUDA_SUCCESS;
  });
}

CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                            const CUlaunchConfig* config) {
  return with_configured(
      func, config, clusterSize,
      [&](Driver& driver, const Context& context, const Function& function) -> CUresult {
        LaunchRequest request;
        const CUresult bad = find_clusters(function, *config, request);
        if (bad != CUDA_SUCCESS) return bad;
        const DeviceLimits& limits = function.module()->device().limits();
        unsigned most = function.settings().nonportable_cluster != 0
                            ? limits.cluster_blocks_nonportable
                            : limits.cluster_blocks;
        const unsigned room =
            resident_blocks(function, *config, multiprocessors_of(driver, context, *config));
        while (most > room) most /= 2;
        *clusterSize = static_cast<int>(most);
        return CUDA_SUCCESS;
      });
}

CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                      const CUlaunchConfig* config) {
  return with_configured(
      func, config, numClusters,
      [&](Driver& driver, const Context& context, const Function& function) -> CUresult {
        LaunchRequest request;
        const CUresult bad = find_clusters(function, *config, request);
        if (bad != CUDA_SUCCESS) return bad;
        const auto& [x, y, z] = request.cluster;
        const unsigned blocks =
            resident_blocks(function, *config, multiprocessors_of(driver, context, *config));
        // As NVIDIA's driver has it, where neither the kernel nor the configuration has clusters.
        *numClusters = request.in_clusters ? static_cast<int>(blocks / (x * y * z)) : 0;
        return CUDA_SUCCESS;
      });
}

}  // extern "C"
