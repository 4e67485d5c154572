#include "softgpu/launch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "softgpu/capture.h"
#include "softgpu/interpreter/grid.h"
#include "softgpu/kernel_run.h"

namespace flyt::softgpu {
namespace {

constexpr unsigned kSharedUnit = 128;

std::uint64_t product(const std::array<unsigned, 3>& extent) {
  return std::uint64_t{extent[0]} * extent[1] * extent[2];
}

CUresult check_block(const Function& function, const LaunchRequest& request) {
  const ptx::Function& code = function.code();
  const DeviceLimits& limits = function.module()->device().limits();
  for (std::size_t i = 0; i < 3; ++i) {
    if (request.grid[i] == 0 || request.block[i] == 0 || request.grid[i] > limits.grid[i] ||
        request.block[i] > limits.block[i]) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  const std::uint64_t threads = product(request.block);
  if (threads > limits.threads_per_block) return CUDA_ERROR_INVALID_VALUE;
  const auto product_of = [](const std::array<std::uint32_t, 3>& extent) {
    return std::uint64_t{std::max(extent[0], 1u)} * std::max(extent[1], 1u) *
           std::max(extent[2], 1u);
  };
  if (code.maxntid[0] != 0 && threads > product_of(code.maxntid)) return CUDA_ERROR_INVALID_VALUE;
  if (code.reqntid[0] != 0) {
    for (std::size_t i = 0; i < 3; ++i) {
      if (request.block[i] != std::max(code.reqntid[i], 1u)) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

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

}  // namespace

CUresult check_cluster(const Function& function, LaunchRequest& request) {
  const FunctionSettings settings = function.settings();
  const DeviceLimits& limits = function.module()->device().limits();
  request.in_clusters = product(request.cluster) != 0 || settings.cluster[0] != 0;
  if (product(request.cluster) == 0) {
    for (std::size_t i = 0; i < 3; ++i) {
      request.cluster[i] = static_cast<unsigned>(std::max(settings.cluster[i], 1));
    }
  } else if (settings.cluster[0] != 0) {
    for (std::size_t i = 0; i < 3; ++i) {
      if (request.cluster[i] != static_cast<unsigned>(std::max(settings.cluster[i], 1))) {
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
      }
    }
  }
  const std::uint64_t size = product(request.cluster);
  const unsigned most =
      settings.nonportable_cluster != 0 ? limits.cluster_blocks_nonportable : limits.cluster_blocks;
  if (size > most) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  for (std::size_t i = 0; i < 3; ++i) {
    if (request.grid[i] % request.cluster[i] != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  return CUDA_SUCCESS;
}

CUresult pack_parameters(const ptx::Function& code, void** pointers, void** extra,
                         std::vector<std::byte>& out) {
  // A list of nothing is none.
  if (extra == nullptr || extra[0] == CU_LAUNCH_PARAM_END) return pack(code, pointers, out);
  return pointers != nullptr ? CUDA_ERROR_INVALID_VALUE : pack_extra(code, extra, out);
}

CUresult apply_attribute(const CUlaunchAttribute& attribute, LaunchRequest& request) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      request.cooperative = attribute.value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      request.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y,
                         attribute.value.clusterDim.z};
      return request.cluster[0] == 0 || request.cluster[1] == 0 || request.cluster[2] == 0
                 ? CUDA_ERROR_INVALID_CLUSTER_SIZE
                 : CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      request.programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
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

CUresult check_launch(const Function& function, LaunchRequest& request) {
  if (const CUresult bad = check_block(function, request); bad != CUDA_SUCCESS) return bad;
  if (request.shared_bytes > static_cast<unsigned>(function.settings().max_dynamic_shared)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult bad = check_cluster(function, request); bad != CUDA_SUCCESS) return bad;
  if (request.cooperative) {
    const std::uint64_t resident =
        std::uint64_t{blocks_per_multiprocessor(
            function, static_cast<unsigned>(product(request.block)), request.shared_bytes)} *
        multiprocessors_for(function.module()->device(), request.sms.get());
    if (product(request.grid) > resident) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return CUDA_SUCCESS;
}

std::shared_ptr<const ImageBindings> bindings_for(const Driver& driver, const Function& function) {
  static const auto kNone = std::make_shared<const ImageBindings>();
  const Module& module = *function.module();
  if (module.references().empty()) return kNone;
  return std::make_shared<const ImageBindings>(driver.bindings_of(module));
}

ptx::Launch make_launch(Driver& driver, const Context& context, LaunchRequest request) {
  const Device& device = context.device();
  ptx::Launch launch;
  launch.grid = request.grid;
  launch.block = request.block;
  launch.cluster = request.cluster;
  launch.in_clusters = request.in_clusters;
  launch.dynamic_shared_bytes = request.shared_bytes;
  launch.cooperative = request.cooperative;
  launch.sm_count = device.limits().multiprocessors;
  launch.sms = request.sms;
  launch.parameters = std::move(request.parameters);
  launch.time_max_ns = device.settings().kernel_timeout_ns;
  launch.grid_id = driver.next_grid();
  std::size_t stack = 0;
  if (context.limit(CU_LIMIT_STACK_SIZE, &stack) == CUDA_SUCCESS) {
    launch.stack_bytes = static_cast<std::uint32_t>(stack);
  }
  return launch;
}

CUresult submit_launch(Driver& driver, const std::shared_ptr<Context>& context,
                       const std::shared_ptr<Stream>& stream,
                       const std::shared_ptr<Function>& function, LaunchRequest request) {
  if (stream->capturing()) {
    return capture_kernel(driver, *stream, *context, function, std::move(request));
  }
  ptx::Launch launch = make_launch(driver, *context, std::move(request));
  stream->await_room();
  context->make_stacks();
  // The context ends only after what was submitted to it, so the operation may refer to it.
  context->submit(*stream, [&driver, &context = *context, function, launch = std::move(launch),
                            bindings = bindings_for(driver, *function)]() mutable {
    run_kernel(driver, context, *function, std::move(launch), *bindings, nullptr);
  });
  return CUDA_SUCCESS;
}

void run_launch(Driver& driver, Context& context, const Function& function,
                const LaunchRequest& request, SetConditional set_conditional) {
  run_kernel(driver, context, function, make_launch(driver, context, request),
             *bindings_for(driver, function), set_conditional);
}

unsigned multiprocessors_for(const Device& device, const SmSet* sms) {
  return sms == nullptr ? device.limits().multiprocessors : static_cast<unsigned>(sms->size());
}

unsigned blocks_per_multiprocessor(const Function& function, unsigned threads,
                                   std::uint64_t dynamic_shared_bytes) {
  const DeviceLimits& limits = function.module()->device().limits();
  const ptx::KernelInfo& info = function.info();
  if (threads == 0 || threads > limits.threads_per_block) return 0;
  const unsigned warps = (threads + limits.warp - 1) / limits.warp;
  unsigned blocks = std::min(limits.blocks_per_multiprocessor,
                             limits.threads_per_multiprocessor / (warps * limits.warp));
  const unsigned per_warp = (std::max(info.registers, 1u) * limits.warp + ptx::kRegisterUnit - 1) /
                            ptx::kRegisterUnit * ptx::kRegisterUnit;
  blocks = std::min(blocks, limits.registers / per_warp / warps);
  const std::uint64_t dynamic_most =
      static_cast<std::uint64_t>(std::max(function.settings().max_dynamic_shared, 0));
  if (dynamic_shared_bytes > std::max<std::uint64_t>(dynamic_most, limits.shared_optin_bytes) ||
      info.shared_bytes + dynamic_shared_bytes > limits.shared_optin_bytes) {
    return 0;
  }
  const std::uint64_t shared =
      (info.shared_bytes + dynamic_shared_bytes + limits.shared_reserved_bytes + kSharedUnit - 1) /
      kSharedUnit * kSharedUnit;
  return static_cast<unsigned>(
      std::min<std::uint64_t>(blocks, limits.shared_multiprocessor_bytes / shared));
}

}  // namespace flyt::softgpu
