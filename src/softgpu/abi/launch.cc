// Kernel launches.
#include <cstring>

#include "softgpu/abi/enter.h"
#include "softgpu/launch.h"

namespace flyt::softgpu {
namespace {

// Parameters from an array with a pointer to each.
CUresult pack(const ptx::Function& code, void** pointers, std::vector<std::byte>& out) {
  out.assign(code.parameter_bytes, std::byte{0});
  if (code.parameters.empty()) return CUDA_SUCCESS;
  if (pointers == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < code.parameters.size(); ++i) {
    const ptx::Parameter& parameter = code.parameters[i];
    if (parameter.size == 0) continue;
    if (pointers[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(out.data() + parameter.offset, pointers[i], parameter.size);
  }
  return CUDA_SUCCESS;
}

// Parameters from one buffer, as the `extra` argument tells it.
CUresult pack_extra(const ptx::Function& code, void** extra, std::vector<std::byte>& out) {
  constexpr std::size_t kEntriesMax = 16;
  const void* buffer = nullptr;
  const std::size_t* size = nullptr;
  for (std::size_t i = 0; i < kEntriesMax && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[i + 1];
    } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const std::size_t*>(extra[i + 1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (buffer == nullptr && size == nullptr) {
    return code.parameters.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (buffer == nullptr || size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Too little is filled up, too much does not fit.
  if (*size > code.parameter_bytes) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  out.assign(code.parameter_bytes, std::byte{0});
  std::memcpy(out.data(), buffer, *size);
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction handle, LaunchRequest request, CUstream stream_handle, void** pointers,
                void** extra, bool packed = false) {
  return with_stream(
      stream_handle, [&](Driver& driver, Context& context, const StreamOfCall& stream) -> CUresult {
        std::shared_ptr<Function> function;
        CUresult bad = find_function(driver, context, handle, true, function);
        if (bad != CUDA_SUCCESS) return bad;
        if (function->module()->context() != stream.context->handle()) {
          return CUDA_ERROR_INVALID_HANDLE;
        }
        bad = check_launch(*function, request);
        if (bad != CUDA_SUCCESS) return bad;
        if (pointers != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (!packed) {
          bad = extra != nullptr ? pack_extra(function->code(), extra, request.parameters)
                                 : pack(function->code(), pointers, request.parameters);
          if (bad != CUDA_SUCCESS) return bad;
        }
        submit_launch(driver, stream.context, stream.stream, function, std::move(request));
        return CUDA_SUCCESS;
      });
}

// Attributes that change what runs; the others are hints, or need what is refused elsewhere.
CUresult apply(const CUlaunchAttribute& attribute, LaunchRequest& request) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      request.cooperative = attribute.value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      request.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y,
                         attribute.value.clusterDim.z};
      return request.cluster[0] == 0 || request.cluster[1] == 0 || request.cluster[2] == 0
                 ? CUDA_ERROR_INVALID_VALUE
                 : CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

template <class Body>
CUresult with_old_launch(CUfunction handle, Body body) {
  return with_context([&](Driver& driver, Context& context) -> CUresult {
    std::shared_ptr<Function> function;
    const CUresult bad = find_function(driver, context, handle, false, function);
    if (bad != CUDA_SUCCESS) return bad;
    OldLaunch old_launch = function->old_launch();
    const CUresult result = body(function->code(), old_launch);
    if (result == CUDA_SUCCESS) function->set_old_launch(std::move(old_launch));
    return result;
  });
}

CUresult set_parameter(CUfunction handle, int offset, const void* value, std::size_t size) {
  return with_old_launch(handle, [&](const ptx::Function& code, OldLaunch& old_launch) {
    if (offset < 0 || value == nullptr || static_cast<std::size_t>(offset) > code.parameter_bytes ||
        size > code.parameter_bytes - static_cast<std::size_t>(offset)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    old_launch.parameters.resize(code.parameter_bytes);
    std::memcpy(old_launch.parameters.data() + offset, value, size);
    return CUDA_SUCCESS;
  });
}

CUresult launch_old(CUfunction handle, int width, int height, CUstream stream) {
  LaunchRequest request;
  const CUresult bad = with_old_launch(handle, [&](const ptx::Function&, OldLaunch& old_launch) {
    if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
    request.grid = {static_cast<unsigned>(width), static_cast<unsigned>(height), 1};
    request.block = old_launch.block;
    request.shared_bytes = old_launch.shared_bytes;
    request.parameters = old_launch.parameters;
    return CUDA_SUCCESS;
  });
  if (bad != CUDA_SUCCESS) return bad;
  return launch(handle, std::move(request), stream, nullptr, nullptr, true);
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  LaunchRequest request;
  request.grid = {gridDimX, gridDimY, gridDimZ};
  request.block = {blockDimX, blockDimY, blockDimZ};
  request.shared_bytes = sharedMemBytes;
  return launch(f, std::move(request), hStream, kernelParams, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr)) {
    return with_context([](Driver&, Context&) { return CUDA_ERROR_INVALID_VALUE; });
  }
  LaunchRequest request;
  request.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
  request.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  request.shared_bytes = config->sharedMemBytes;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUresult bad = apply(config->attrs[i], request);
    if (bad != CUDA_SUCCESS) return with_context([bad](Driver&, Context&) { return bad; });
  }
  return launch(f, std::move(request), config->hStream, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  LaunchRequest request;
  request.grid = {gridDimX, gridDimY, gridDimZ};
  request.block = {blockDimX, blockDimY, blockDimZ};
  request.shared_bytes = sharedMemBytes;
  request.cooperative = true;
  return launch(f, std::move(request), hStream, kernelParams, nullptr);
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return with_old_launch(hfunc, [&](const ptx::Function& code, OldLaunch& old_launch) {
    if (numbytes > code.parameter_bytes) return CUDA_ERROR_INVALID_VALUE;
    old_launch.parameters.resize(code.parameter_bytes);
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return set_parameter(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return set_parameter(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return set_parameter(hfunc, offset, ptr, numbytes);
}

CUresult cuLaunch(CUfunction f) { return launch_old(f, 1, 1, nullptr); }

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return launch_old(f, grid_width, grid_height, nullptr);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  return launch_old(f, grid_width, grid_height, hStream);
}

}  // extern "C"
