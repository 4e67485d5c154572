#include "client/code/launch.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "client/call.h"
#include "client/memory_state.h"
#include "commands/launch.h"

namespace flyt::client {
namespace {

constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15ULL;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * kMix;
  return hash ^ (hash >> 29);
}

using ClusterShape = std::array<std::uint32_t, 3>;

// The bytes of an attribute's value that its kind uses; the caller may have left the rest unset.
std::size_t value_bytes(CUlaunchAttributeID id) {
  using Value = CUlaunchAttributeValue;
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
      return 0;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return offsetof(CUaccessPolicyWindow, missProp) + sizeof(CUaccessPolicyWindow::missProp);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      return sizeof(Value::memSyncDomainMap);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      return sizeof(Value::clusterDim);
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return sizeof(Value::programmaticEvent);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return sizeof(CUevent) + sizeof(int);
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return sizeof(int);
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      break;
  }
  return sizeof(Value);
}

// Which of the grid's blocks are left beside whole clusters.
std::uint64_t mix_rests(std::uint64_t key, const LaunchShape& shape, const ClusterShape& cluster) {
  for (std::size_t i = 0; i < cluster.size(); ++i) {
    key = mix(key, cluster[i] == 0 ? shape.grid[i] : shape.grid[i] % cluster[i]);
  }
  return key;
}

// What of the grid's size the driver looks at because of an attribute, once it is within the
// device's limits: all of it for a cooperative launch, the rests for one with clusters.
std::uint64_t mix_grid(std::uint64_t key, const LaunchShape& shape,
                       const CUlaunchAttribute& attribute) {
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) return mix_rests(key, shape, {});
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION ||
      attribute.id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION) {
    const auto& cluster = attribute.value.clusterDim;
    return mix_rests(key, shape, {cluster.x, cluster.y, cluster.z});
  }
  return key;
}

// The clusters that a function was compiled for; of no blocks, if it was for none.
ClusterShape own_clusters(const FunctionFacts& facts) {
  ClusterShape cluster{};
  for (std::size_t i = 0; i < cluster.size(); ++i) {
    cluster[i] = static_cast<std::uint32_t>(
        facts.attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i].load(
            std::memory_order_relaxed));
  }
  return cluster;
}

std::uint64_t mix_attribute(std::uint64_t key, const CUlaunchAttribute& attribute) {
  Reader reader(bytes_at(&attribute, sizeof attribute));
  while (reader.remaining() >= sizeof(std::uint64_t)) key = mix(key, reader.take<std::uint64_t>());
  return key;
}

// What the driver's verdict depends on.
std::uint64_t verdict_key(const LaunchShape& shape, const FunctionFacts& facts,
                          const PackedParameters& parameters, Bytes attributes) {
  std::uint64_t key = mix(shape.block[0], shape.block[1]);
  key = mix(key, std::uint64_t{shape.block[2]} << 32 | shape.shared_bytes);
  if (parameters.from_buffer()) key = mix(key, parameters.bytes().size() + 1);
  Reader reader(attributes);
  while (reader.remaining() >= sizeof(CUlaunchAttribute)) {
    const auto attribute = reader.take<CUlaunchAttribute>();
    key = mix_grid(mix_attribute(key, attribute), shape, attribute);
  }
  if (const ClusterShape own = own_clusters(facts); own[0] != 0) key = mix_rests(key, shape, own);
  // A part of the device may refuse what all of it takes.
  if (context().green != 0) key = mix(key, context().green);
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

// Whether a launch without attributes keeps every limit that the driver checks. What breaks one is
// still for the driver to judge: it knows the right error.
bool within_limits(const LaunchShape& shape, const FunctionFacts& facts, const Device& device) {
  const auto fact = [&](CUfunction_attribute attribute) {
    return static_cast<std::uint64_t>(facts.attributes[attribute].load(std::memory_order_relaxed));
  };
  const auto limit = [&](CUdevice_attribute attribute) {
    return static_cast<std::uint32_t>(device.attribute(attribute));
  };
  constexpr std::uint32_t kNeeded = 1U << CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK |
                                    1U << CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  if (!facts.described.load(std::memory_order_acquire) ||
      (facts.known.load(std::memory_order_relaxed) & kNeeded) != kNeeded ||
      fact(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) != 0) {
    return false;
  }
  const std::uint64_t threads = std::uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  return shape.block[0] <= limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) &&
         shape.block[1] <= limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y) &&
         shape.block[2] <= limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z) && threads != 0 &&
         threads <= fact(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) &&
         shape.shared_bytes <= fact(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
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
    // What the caller left unset must neither travel nor make two equal launches look different.
    CUlaunchAttribute& copy = attributes_[count_++];
    std::memset(static_cast<void*>(&copy), 0, sizeof copy);
    copy.id = attribute.id;
    std::memcpy(static_cast<void*>(&copy.value), &attribute.value, value_bytes(attribute.id));
  }
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction function, const LaunchShape& shape, void** parameters, void** extra,
                Bytes attributes) {
  Callable callable;
  if (const CUresult no = find_callable(function, callable); no != CUDA_SUCCESS) return no;
  LaunchShape resolved = shape;
  if (const CUresult no = check(resolved.stream); no != CUDA_SUCCESS) return no;
  const Device& device = *session().devices().find(context().device);
  if (!grid_fits(shape, device)) return CUDA_ERROR_INVALID_VALUE;
  PackedParameters packed;
  if (const CUresult no = packed.pack(*callable.code, parameters, extra); no != CUDA_SUCCESS) {
    return no;
  }
  give_work(resolved.stream);
  session().memory().mirror().begin_all_in(packed.bytes());
  FunctionFacts& facts = *callable.facts;
  const bool ordinary = attributes.empty() && !packed.from_buffer() && facts.accepted.any() &&
                        within_limits(shape, facts, device);
  const std::uint64_t key = ordinary ? 0 : verdict_key(shape, facts, packed, attributes);
  if (ordinary || facts.accepted.contains(key)) {
    return post(
        make_command<commands::LaunchKernel>(function, resolved, packed.bytes(), attributes));
  }
  const CUresult verdict = ask_for_verdict(function, resolved, packed, attributes);
  if (verdict == CUDA_SUCCESS) facts.accepted.add(key);
  return verdict;
}

}  // namespace flyt::client
