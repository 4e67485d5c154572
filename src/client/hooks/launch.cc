// Kernel launches.
#include "client/hooks_launch.h"

#include <algorithm>
#include <cstring>

#include "client/call.h"
#include "client/code/launch.h"
#include "client/memory_state.h"

namespace flyt::client::hooks {
namespace {

// What any kernel can take, whatever the function is.
constexpr std::size_t kLegacyParameterBytesMax = 32764;

// The state that old programs build up before cuLaunch*.
CUresult legacy_of(CUfunction handle, LegacyLaunch*& out) {
  FunctionState* function = session().code().functions.find(address_of(handle));
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!function->legacy) function->legacy = std::make_unique<LegacyLaunch>();
  out = function->legacy.get();
  return CUDA_SUCCESS;
}

CUresult set_parameter(CUfunction handle, int offset, const void* value, std::size_t bytes) {
  LegacyLaunch* legacy = nullptr;
  if (const CUresult no = legacy_of(handle, legacy); no != CUDA_SUCCESS) return no;
  if (offset < 0 || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t end = static_cast<std::size_t>(offset) + bytes;
  if (end > kLegacyParameterBytesMax) return CUDA_ERROR_INVALID_VALUE;
  if (legacy->values.size() < end) legacy->values.resize(end);
  if (bytes != 0) std::memcpy(legacy->values.data() + offset, value, bytes);
  return CUDA_SUCCESS;
}

CUresult launch_legacy(CUfunction handle, int width, int height, CUstream stream) {
  LegacyLaunch* legacy = nullptr;
  if (const CUresult no = legacy_of(handle, legacy); no != CUDA_SUCCESS) return no;
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  const LaunchShape shape{
      .grid = {static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height), 1},
      .block = legacy->block,
      .shared_bytes = legacy->shared_bytes,
      .stream = stream};
  // What was not given is zero; that there is too much the driver says.
  std::vector<std::byte> parameters = legacy->values;
  parameters.resize(legacy->parameter_bytes);
  const FunctionState* function = session().code().functions.find(address_of(handle));
  std::size_t bytes = std::max<std::size_t>(parameters.size(), function->code->parameter_bytes);
  if (bytes == 0) return launch(handle, shape, nullptr, nullptr, {});
  parameters.resize(bytes);
  std::array<void*, 5> extra = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters.data(),
                                CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  return launch(handle, shape, nullptr, extra.data(), {});
}

// A launch may record events.
void count_records(const CUlaunchConfig& config) {
  const auto count = [](CUevent event) {
    EventState* state = session().memory().events.find(address_of(event));
    if (state != nullptr) state->records.fetch_add(1);
  };
  for (unsigned int i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
      count(attribute.value.programmaticEvent.event);
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
      count(attribute.value.launchCompletionEvent.event);
    }
  }
}

bool is_default_stream(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

}  // namespace

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  const LaunchShape shape{.grid = {gridDimX, gridDimY, gridDimZ},
                          .block = {blockDimX, blockDimY, blockDimZ},
                          .shared_bytes = sharedMemBytes,
                          .stream = hStream};
  return launch(f, shape, kernelParams, extra, {});
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ContextScope scope(home_of(config->hStream));
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  PackedAttributes attributes;
  if (const CUresult no = attributes.pack(*config); no != CUDA_SUCCESS) return no;
  const LaunchShape shape{.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                          .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                          .shared_bytes = config->sharedMemBytes,
                          .stream = config->hStream};
  const CUresult result = launch(f, shape, kernelParams, extra, attributes.bytes());
  if (result == CUDA_SUCCESS) count_records(*config);
  return result;
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  CUlaunchAttribute cooperative{};
  cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  cooperative.value.cooperative = 1;
  const LaunchShape shape{.grid = {gridDimX, gridDimY, gridDimZ},
                          .block = {blockDimX, blockDimY, blockDimZ},
                          .shared_bytes = sharedMemBytes,
                          .stream = hStream};
  return launch(f, shape, kernelParams, nullptr, bytes_at(&cooperative, sizeof cooperative));
}

// One device is an ordinary cooperative launch; to several at once none of their drivers is asked.
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launchParamsList,
                                              unsigned int numDevices, unsigned int flags) {
  constexpr unsigned int kFlags = 0x3;  // No synchronisation before, and none behind.
  if (launchParamsList == nullptr || numDevices == 0 || (flags & ~kFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (numDevices > 1) {
    return refused("cuLaunchCooperativeKernelMultiDevice",
                   "a kernel is launched on one device at a time");
  }
  const CUDA_LAUNCH_PARAMS& one = *launchParamsList;
  if (is_default_stream(one.hStream)) return CUDA_ERROR_INVALID_HANDLE;
  const ContextScope scope(home_of(one.hStream));
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  return cuLaunchCooperativeKernel(one.function, one.gridDimX, one.gridDimY, one.gridDimZ,
                                   one.blockDimX, one.blockDimY, one.blockDimZ, one.sharedMemBytes,
                                   one.hStream, one.kernelParams);
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  LegacyLaunch* legacy = nullptr;
  if (const CUresult no = legacy_of(hfunc, legacy); no != CUDA_SUCCESS) return no;
  if (numbytes > kLegacyParameterBytesMax) return CUDA_ERROR_INVALID_VALUE;
  legacy->parameter_bytes = numbytes;
  return CUDA_SUCCESS;
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

// References of a module are bound by their names; as parameters NVIDIA's driver takes none any
// more. The reference does not bring its context along.
CUresult cuParamSetTexRef(CUfunction hfunc, int, CUtexref hTexRef) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  if (const CUresult no = check(hfunc); no != CUDA_SUCCESS) return no;
  const CUresult no = check(hTexRef);
  return no == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : no;
}

CUresult cuLaunch(CUfunction f) { return launch_legacy(f, 1, 1, nullptr); }

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return launch_legacy(f, grid_width, grid_height, nullptr);
}

// The only launch to which its stream brings no context.
CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  const ContextScope scope(home_of(hStream));
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  return launch_legacy(f, grid_width, grid_height, hStream);
}

}  // namespace flyt::client::hooks
