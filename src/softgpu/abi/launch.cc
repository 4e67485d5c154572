// Kernel launches.
#include <algorithm>
#include <cstring>
#include <vector>

#include "softgpu/abi/enter.h"
#include "softgpu/launch.h"

namespace flyt::softgpu {
namespace {

CUresult launch(CUfunction handle, LaunchRequest request, CUstream stream_handle, void** pointers,
                void** extra, bool packed = false) {
  return with_work(
      stream_handle, [&](Driver& driver, Context& context, const StreamOfCall& stream) -> CUresult {
        std::shared_ptr<Function> function;
        CUresult bad = find_function(driver, context, handle, true, function);
        if (bad != CUDA_SUCCESS) return bad;
        if (function->module()->context() != stream.context->handle()) {
          return CUDA_ERROR_INVALID_HANDLE;
        }
        request.sms = stream.stream->sms();
        bad = check_launch(*function, request);
        if (bad != CUDA_SUCCESS) return bad;
        if (!packed) {
          bad = pack_parameters(function->code(), pointers, extra, request.parameters);
          if (bad != CUDA_SUCCESS) return bad;
        }
        request.handle = handle;
        return submit_launch(driver, stream.context, stream.stream, function, std::move(request));
      });
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

constexpr std::size_t kOldParameterBytesMax = 32764;  // Whatever the function is.

CUresult set_parameter(CUfunction handle, int offset, const void* value, std::size_t size) {
  return with_old_launch(handle, [&](const ptx::Function&, OldLaunch& old_launch) {
    if (offset < 0 || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::size_t end = static_cast<std::size_t>(offset) + size;
    if (end > kOldParameterBytesMax) return CUDA_ERROR_INVALID_VALUE;
    old_launch.values.resize(std::max(old_launch.values.size(), end));
    if (size != 0) std::memcpy(old_launch.values.data() + offset, value, size);
    return CUDA_SUCCESS;
  });
}

CUresult launch_old(CUfunction handle, int width, int height, CUstream stream) {
  LaunchRequest request;
  const auto take = [&](const ptx::Function& code, const OldLaunch& old_launch) -> CUresult {
    if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (old_launch.parameter_bytes > code.parameter_bytes) {
      return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    request.grid = {static_cast<unsigned>(width), static_cast<unsigned>(height), 1};
    request.block = old_launch.block;
    request.shared_bytes = old_launch.shared_bytes;
    request.parameters = old_launch.values;
    request.parameters.resize(old_launch.parameter_bytes);
    request.parameters.resize(code.parameter_bytes);  // What was not given is zero.
    return CUDA_SUCCESS;
  };
  const CUresult bad = with_old_launch(handle, take);
  if (bad != CUDA_SUCCESS) return bad;
  return launch(handle, std::move(request), stream, nullptr, nullptr, true);
}

// The event that an attribute has the launch record; null for other attributes.
const CUevent* event_of(const CUlaunchAttribute& attribute) {
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
    return &attribute.value.programmaticEvent.event;
  }
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
    return &attribute.value.launchCompletionEvent.event;
  }
  return nullptr;
}

// Such events have no times and are of one process.
CUresult check_launch_event(CUevent handle) {
  return with_context([handle](Driver& driver, Context&) -> CUresult {
    std::shared_ptr<Event> event;
    if (const CUresult bad = find_event(driver, handle, event); bad != CUDA_SUCCESS) return bad;
    return event->timed() || event->shared() != nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

bool is_default_stream(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
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
  std::vector<CUevent> events;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (const CUevent* const event = event_of(config->attrs[i])) {
      if (const CUresult bad = check_launch_event(*event); bad != CUDA_SUCCESS) return bad;
      events.push_back(*event);
      continue;
    }
    const CUresult bad = apply_attribute(config->attrs[i], request);
    if (bad != CUDA_SUCCESS) return with_context([bad](Driver&, Context&) { return bad; });
    request.attributes.push_back(config->attrs[i]);
  }
  CUresult result = launch(f, std::move(request), config->hStream, kernelParams, extra);
  // Behind the kernel: later than it has to be, never too early.
  for (const CUevent event : events) {
    if (result == CUDA_SUCCESS) result = cuEventRecord(event, config->hStream);
  }
  return result;
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

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launchParamsList,
                                              unsigned int numDevices, unsigned int flags) {
  constexpr unsigned int kFlags = 0x3;  // No synchronisation before, and none behind.
  const bool good = launchParamsList != nullptr && numDevices != 0 && (flags & ~kFlags) == 0;
  if (!good || numDevices > 1) {
    return with_context([good](Driver&, Context&) {
      return good ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    });
  }
  const CUDA_LAUNCH_PARAMS& one = *launchParamsList;
  if (is_default_stream(one.hStream)) {
    return with_context([](Driver&, Context&) { return CUDA_ERROR_INVALID_HANDLE; });
  }
  return cuLaunchCooperativeKernel(one.function, one.gridDimX, one.gridDimY, one.gridDimZ,
                                   one.blockDimX, one.blockDimY, one.blockDimZ, one.sharedMemBytes,
                                   one.hStream, one.kernelParams);
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return with_old_launch(hfunc, [&](const ptx::Function&, OldLaunch& old_launch) {
    if (numbytes > kOldParameterBytesMax) return CUDA_ERROR_INVALID_VALUE;
    old_launch.parameter_bytes = numbytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return set_parameter(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return set_parameter(hfunc, offset, &value, sizeof value);
}

// References of a module are bound by their names; as parameters NVIDIA's driver takes none any
// more.
CUresult cuParamSetTexRef(CUfunction hfunc, int, CUtexref hTexRef) {
  return with_old_launch(hfunc, [&](const ptx::Function&, OldLaunch&) -> CUresult {
    const bool known = current_driver()->texture_references().find(from_handle(hTexRef)) != nullptr;
    return known ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
  });
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
