#include "softgpu/device_launches.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/bytes.h"
#include "softgpu/context.h"
#include "softgpu/device.h"

namespace flyt::softgpu {
namespace {

using ptx::DeviceError;

constexpr std::uint64_t kRegionBytes = 1 * kMiB;
constexpr std::uint64_t kParameterAlign = 64;
// Errors of so many threads are kept; of more of them nobody hears.
constexpr std::size_t kErrorsMax = 1u << 16;

struct ErrorText {
  DeviceError error;
  std::string_view name;
  std::string_view text;
};

constexpr std::array kErrorTexts = {
    ErrorText{DeviceError::kNone, "cudaSuccess", "no error"},
    ErrorText{DeviceError::kInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    ErrorText{DeviceError::kOutOfMemory, "cudaErrorMemoryAllocation", "out of memory"},
    ErrorText{DeviceError::kInvalidConfiguration, "cudaErrorInvalidConfiguration",
              "invalid configuration argument"},
    ErrorText{DeviceError::kInvalidDirection, "cudaErrorInvalidMemcpyDirection",
              "invalid copy direction for memcpy"},
    ErrorText{DeviceError::kTooDeep, "cudaErrorLaunchMaxDepthExceeded",
              "launch would exceed maximum depth of nested launches"},
    ErrorText{DeviceError::kTooManyPending, "cudaErrorLaunchPendingCountExceeded",
              "launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount"},
    ErrorText{DeviceError::kInvalidFunction, "cudaErrorInvalidDeviceFunction",
              "invalid device function"},
    ErrorText{DeviceError::kInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    ErrorText{DeviceError::kInvalidHandle, "cudaErrorInvalidResourceHandle",
              "invalid resource handle"},
    ErrorText{DeviceError::kOutOfResources, "cudaErrorLaunchOutOfResources",
              "too many resources requested for launch"},
    ErrorText{DeviceError::kNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

std::string_view text_for(DeviceError error, bool name) {
  const auto* const found = std::find_if(kErrorTexts.begin(), kErrorTexts.end(),
                                         [error](const auto& one) { return one.error == error; });
  if (found == kErrorTexts.end()) return "unrecognized error code";
  return name ? found->name : found->text;
}

// The runtime's word for what a launch of the host's would be refused with.
DeviceError error_for(CUresult refused) {
  if (refused == CUDA_SUCCESS) return DeviceError::kNone;
  if (refused == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) return DeviceError::kOutOfResources;
  return DeviceError::kInvalidConfiguration;
}

}  // namespace

DeviceLaunches::~DeviceLaunches() {
  const Lock lock(mutex_);
  family_.pending.fetch_sub(children_.size() + tails_.size());
  if (base_ == 0) return;
  context_.device().map().remove(base_, kRegionBytes);
  context_.device().memory().release(base_, kRegionBytes);
}

std::vector<DeviceLaunches::Task> DeviceLaunches::take_children() {
  const Lock lock(mutex_);
  family_.pending.fetch_sub(children_.size());
  return std::exchange(children_, {});
}

std::vector<DeviceLaunches::Task> DeviceLaunches::take_tails() {
  const Lock lock(mutex_);
  family_.pending.fetch_sub(tails_.size());
  return std::exchange(tails_, {});
}

std::shared_ptr<Function> DeviceLaunches::kernel_of(std::uint32_t function) const {
  const auto& kernels = ptx::module_of(*module_->program().code).kernels();
  const auto found = std::find(kernels.begin(), kernels.end(), function);
  if (found == kernels.end()) return nullptr;
  const auto kernel = static_cast<std::uint32_t>(found - kernels.begin());
  // The host's function has what the host has set; one that it has not asked for yet is not made
  // here, for it would lack what was set for the kernel.
  if (auto known = driver_.functions().find(module_->known_function(kernel))) return known;
  const Program& program = module_->program();
  const auto& info = ptx::kernel_info(*program.code, kernel);
  return std::make_shared<Function>(
      module_, kernel, default_settings(program.function(kernel), info, module_->device()));
}

std::optional<std::uint64_t> DeviceLaunches::room_for(std::uint64_t bytes) {
  if (base_ == 0) {
    const auto base = context_.device().memory().allocate(kRegionBytes);
    if (!base) return std::nullopt;
    base_ = *base;
    ranges_.emplace(base_, kRegionBytes);
    context_.device().map().add(base_, kRegionBytes);
  }
  return ranges_->allocate(bytes, kParameterAlign);
}

std::uint64_t DeviceLaunches::parameter_buffer(std::uint64_t thread,
                                               const ptx::ChildConfig& config) {
  auto kernel = kernel_of(config.function);
  if (kernel == nullptr) {
    note_error(thread, DeviceError::kInvalidFunction);
    return 0;
  }
  LaunchRequest request;
  request.grid = config.grid;
  request.block = config.block;
  request.shared_bytes = config.shared_bytes;
  if (const CUresult refused = check_launch(*kernel, request); refused != CUDA_SUCCESS) {
    note_error(thread, error_for(refused));
    return 0;
  }
  const std::uint64_t wanted = std::max<std::uint64_t>(kernel->code().parameter_bytes, 1);
  const std::uint64_t bytes = (wanted + kParameterAlign - 1) / kParameterAlign * kParameterAlign;
  std::optional<std::uint64_t> room;
  {
    const Lock lock(mutex_);
    room = room_for(bytes);
    if (room) buffers_[*room] = {std::move(kernel), std::move(request), bytes};
  }
  if (!room) note_error(thread, DeviceError::kOutOfMemory);
  return room.value_or(0);
}

DeviceError DeviceLaunches::launch(std::uint64_t buffer, std::uint64_t stream) {
  const Lock lock(mutex_);
  const auto found = buffers_.find(buffer);
  if (found == buffers_.end()) return DeviceError::kInvalidValue;
  Task task{.kernel = std::move(found->second.kernel),
            .request = std::move(found->second.request),
            .copy = {}};
  const auto* const written = static_cast<const std::byte*>(pointer_at(buffer));
  task.request.parameters.assign(written, written + task.kernel->code().parameter_bytes);
  ranges_->release(buffer, found->second.bytes);
  buffers_.erase(found);
  return add(std::move(task), stream);
}

DeviceError DeviceLaunches::copy(const ptx::ChildCopy& copy, std::uint64_t stream) {
  const Lock lock(mutex_);
  return add({.kernel = nullptr, .request = {}, .copy = copy}, stream);
}

DeviceError DeviceLaunches::add(Task task, std::uint64_t stream) {
  if (stream >= kStreamsBuiltIn && !is_handle(stream)) return DeviceError::kInvalidHandle;
  const bool tail = stream == kTailStream;
  if (!tail && depth_ + 1 >= KernelFamily::kDepthMax) return DeviceError::kTooDeep;
  if (family_.pending.fetch_add(1) >= KernelFamily::kPendingMax) {
    family_.pending.fetch_sub(1);
    return DeviceError::kTooManyPending;
  }
  (tail ? tails_ : children_).push_back(std::move(task));
  return DeviceError::kNone;
}

void DeviceLaunches::note_error(std::uint64_t thread, DeviceError error) {
  const Lock lock(mutex_);
  if (errors_.size() < kErrorsMax || errors_.contains(thread)) errors_[thread] = error;
}

DeviceError DeviceLaunches::last_error(std::uint64_t thread, bool taken) {
  const Lock lock(mutex_);
  const auto found = errors_.find(thread);
  if (found == errors_.end()) return DeviceError::kNone;
  const DeviceError error = found->second;
  if (taken) errors_.erase(found);
  return error;
}

std::uint64_t DeviceLaunches::text_of(DeviceError error, bool name) {
  const std::string_view text = text_for(error, name);
  const Lock lock(mutex_);
  // One text for all numbers that mean nothing.
  const auto known = std::find_if(texts_.begin(), texts_.end(), [&](const auto& one) {
    return text_for(one.first.first, one.first.second) == text;
  });
  if (known != texts_.end()) return known->second;
  const auto room = room_for(text.size() + 1);
  if (!room) return 0;
  std::memcpy(pointer_at(*room), text.data(), text.size());
  static_cast<char*>(pointer_at(*room))[text.size()] = '\0';
  texts_[{error, name}] = *room;
  return *room;
}

std::int32_t DeviceLaunches::device() const { return context_.device().number(); }

std::int32_t DeviceLaunches::device_count() const { return driver_.device_count(); }

DeviceError DeviceLaunches::attribute(std::int32_t attribute, std::int32_t device,
                                      std::int32_t& value) const {
  if (device != context_.device().number()) return DeviceError::kInvalidDevice;
  const auto known = context_.device().attribute(static_cast<CUdevice_attribute>(attribute));
  if (!known) return DeviceError::kInvalidValue;
  value = *known;
  return DeviceError::kNone;
}

DeviceError DeviceLaunches::limit(std::int32_t limit, std::uint64_t& value) const {
  std::size_t known = 0;
  if (limit < 0 || limit >= static_cast<std::int32_t>(CU_LIMIT_MAX) ||
      context_.limit(static_cast<CUlimit>(limit), &known) != CUDA_SUCCESS) {
    return DeviceError::kInvalidValue;
  }
  value = known;
  return DeviceError::kNone;
}

DeviceError DeviceLaunches::function_attributes(
    std::uint32_t function, std::span<std::uint32_t, kFunctionWords> words) const {
  const auto kernel = kernel_of(function);
  if (kernel == nullptr) return DeviceError::kInvalidFunction;
  const auto ask = [&](CUfunction_attribute attribute) {
    int value = 0;
    const CUresult known =
        get_attribute(ptx::module_of(*module_->program().code), kernel->code(), kernel->info(),
                      kernel->settings(), context_.device(), attribute, &value);
    return known == CUDA_SUCCESS ? static_cast<std::uint32_t>(value) : 0;
  };
  // Three sizes of 8 bytes, then numbers of 4.
  words[0] = ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  words[2] = ask(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
  words[4] = ask(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  std::size_t at = 6;
  for (const CUfunction_attribute attribute :
       {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_NUM_REGS,
        CU_FUNC_ATTRIBUTE_PTX_VERSION, CU_FUNC_ATTRIBUTE_BINARY_VERSION,
        CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
        CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED}) {
    words[at++] = ask(attribute);
  }
  return DeviceError::kNone;
}

DeviceError DeviceLaunches::occupancy(std::uint32_t function, std::int32_t threads,
                                      std::uint64_t shared_bytes, std::int32_t& blocks) const {
  const auto kernel = kernel_of(function);
  if (kernel == nullptr) return DeviceError::kInvalidFunction;
  if (threads <= 0) return DeviceError::kInvalidValue;
  blocks = static_cast<std::int32_t>(
      blocks_per_multiprocessor(*kernel, static_cast<unsigned>(threads), shared_bytes));
  return DeviceError::kNone;
}

}  // namespace flyt::softgpu
