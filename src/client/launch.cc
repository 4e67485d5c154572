#include "client/launch.h"

#include <algorithm>
#include <cstring>

#include "client/call.h"
#include "commands/launch.h"

namespace flyt::client {
namespace {

constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15ULL;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * kMix;
  return hash ^ (hash >> 29);
}

// What the driver's verdict depends on. The size of the grid alone never decides, as long as it is
// within the device's limits, unless attributes (clusters, cooperation) say so.
std::uint64_t verdict_key(const LaunchShape& shape, const PackedParameters& parameters,
                          Bytes attributes) {
  std::uint64_t key = mix(shape.block[0], shape.block[1]);
  key = mix(key, std::uint64_t{shape.block[2]} << 32 | shape.shared_bytes);
  if (parameters.from_buffer()) key = mix(key, parameters.bytes().size() + 1);
  if (!attributes.empty()) {
    for (const std::uint32_t dimension : shape.grid) key = mix(key, dimension);
    Reader reader(attributes);
    while (reader.remaining() >= sizeof(std::uint64_t))
      key = mix(key, reader.take<std::uint64_t>());
  }
  return key == 0 ? 1 : key;
}

bool grid_fits(const LaunchShape& shape, const Device& device) {
  const std::array<std::uint32_t, 3> limits = {
      static_cast<std::uint32_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)),
      static_cast<std::uint32_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)),
      static_cast<std::uint32_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z))};
  for (std::size_t i = 0; i < limits.size(); ++i) {
    if (shape.grid[i] == 0 || shape.grid[i] > limits[i]) return false;
  }
  return true;
}

template <class Command>
Command make_command(CUfunction function, const LaunchShape& shape, Bytes parameters,
                     Bytes attributes) {
  return Command{.function = function,
                 .stream = shape.stream,
                 .grid_x = shape.grid[0],
                 .grid_y = shape.grid[1],
                 .grid_z = shape.grid[2],
                 .block_x = shape.block[0],
                 .block_y = shape.block[1],
                 .block_z = shape.block[2],
                 .shared_bytes = shape.shared_bytes,
                 .parameters = parameters,
                 .attributes = attributes};
}

CUresult ask_for_verdict(CUfunction function, const LaunchShape& shape,
                         const PackedParameters& parameters, Bytes attributes) {
  return ask(
      make_command<commands::TryLaunchKernel>(function, shape, parameters.bytes(), attributes));
}

}  // namespace

CUresult PackedParameters::take_extra(void** extra) {
  const void* buffer = nullptr;
  const std::size_t* size = nullptr;
  for (std::size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[i + 1];
    } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const std::size_t*>(extra[i + 1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (buffer == nullptr && size == nullptr) return CUDA_SUCCESS;
  if (buffer == nullptr || size == nullptr || *size > kBytesMax) return CUDA_ERROR_INVALID_VALUE;
  bytes_ = bytes_at(buffer, *size);
  from_buffer_ = true;
  return CUDA_SUCCESS;
}

CUresult PackedParameters::pack(const KernelCode& code, void** parameters, void** extra) {
  if (extra != nullptr) {
    if (const CUresult bad = take_extra(extra); bad != CUDA_SUCCESS) return bad;
    if (from_buffer_) {
      const bool useless = bytes_.empty() && !code.parameters.empty();
      return parameters != nullptr || useless ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
  }
  if (code.parameters.empty()) return CUDA_SUCCESS;
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::byte* space = inline_.data();
  if (code.parameter_bytes > kInlineBytes) {
    if (code.parameter_bytes > kBytesMax) return CUDA_ERROR_INVALID_VALUE;
    large_.resize(code.parameter_bytes);
    space = large_.data();
  } else {
    std::memset(space, 0, code.parameter_bytes);
  }
  for (std::size_t i = 0; i < code.parameters.size(); ++i) {
    std::memcpy(space + code.parameters[i].offset, parameters[i], code.parameters[i].size);
  }
  bytes_ = bytes_at(space, code.parameter_bytes);
  return CUDA_SUCCESS;
}

CUresult PackedAttributes::pack(const CUlaunchConfig& config) {
  if (config.numAttrs > kCountMax || (config.numAttrs != 0 && config.attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned int i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    CUresult bad = CUDA_SUCCESS;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_IGNORE) continue;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
      bad = check(attribute.value.programmaticEvent.event);
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
      bad = check(attribute.value.launchCompletionEvent.event);
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
      bad = refused("CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE",
                    "graphs that the device changes are not remoted");
    }
    if (bad != CUDA_SUCCESS) return bad;
    // Byte by byte: only the value's own bytes are sure to be set, the rest is the caller's stack.
    std::memcpy(static_cast<void*>(&attributes_[count_++]), &attribute, sizeof attribute);
  }
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction function, const LaunchShape& shape, void** parameters, void** extra,
                Bytes attributes) {
  Callable callable;
  if (const CUresult no = find_callable(function, callable); no != CUDA_SUCCESS) return no;
  LaunchShape resolved = shape;
  if (const CUresult no = check(resolved.stream); no != CUDA_SUCCESS) return no;
  if (!grid_fits(shape, *session().devices().find(context().device))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  PackedParameters packed;
  if (const CUresult no = packed.pack(*callable.code, parameters, extra); no != CUDA_SUCCESS) {
    return no;
  }
  const std::uint64_t key = verdict_key(shape, packed, attributes);
  if (callable.facts->accepted.contains(key)) {
    return post(
        make_command<commands::LaunchKernel>(function, resolved, packed.bytes(), attributes));
  }
  const CUresult verdict = ask_for_verdict(function, resolved, packed, attributes);
  if (verdict == CUDA_SUCCESS) callable.facts->accepted.add(key);
  return verdict;
}

}  // namespace flyt::client
