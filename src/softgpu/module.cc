#include "softgpu/module.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "softgpu/context.h"
#include "softgpu/device.h"

namespace flyt::softgpu {
namespace {

// Variables of unknown size (extern arrays) still need an address.
std::uint64_t variable_bytes(const ptx::Variable& variable) {
  return std::max<std::uint64_t>(variable.size, 1);
}

unsigned threads_max(const ptx::Function& code, const DeviceLimits& limits) {
  const auto product = [](const std::array<std::uint32_t, 3>& extent) {
    return std::uint64_t{std::max(extent[0], 1u)} * std::max(extent[1], 1u) *
           std::max(extent[2], 1u);
  };
  std::uint64_t most = limits.threads_per_block;
  if (code.maxntid[0] != 0) most = std::min(most, product(code.maxntid));
  if (code.reqntid[0] != 0) most = std::min(most, product(code.reqntid));
  return static_cast<unsigned>(most);
}

}  // namespace

const ptx::Function& Function::code() const { return module_->program().function(kernel_); }
const ptx::KernelInfo& Function::info() const {
  return ptx::kernel_info(*module_->program().code, kernel_);
}

Module::Module(Program program, Context& context, Regions& regions)
    : program_(std::move(program)),
      device_(context.device()),
      regions_(regions),
      context_(context.handle()) {}

std::shared_ptr<Module> Module::load(Program program, Context& context, Regions& regions,
                                     ManagedVariables* managed) {
  struct Made : Module {
    Made(Program program, Context& context, Regions& regions)
        : Module(std::move(program), context, regions) {}
  };
  auto module = std::make_shared<Made>(std::move(program), context, regions);
  const auto& variables = module->program_.module().variables();
  module->addresses_.assign(variables.size(), 0);
  module->managed_.resize(variables.size());
  const bool made_before = managed != nullptr && !managed->empty();
  if (managed != nullptr) managed->resize(variables.size());
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (ptx::Image::takes_memory(variables[i]) && !module->place(i, managed)) {
      // The next module must not take variables without initial values for made.
      if (managed != nullptr && !made_before) managed->clear();
      return nullptr;
    }
  }
  module->image_ = ptx::Image::load(module->program_.code, module->addresses_);
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (module->addresses_[i] == 0 || (variables[i].managed && made_before)) continue;
    const auto bytes = module->image_->initial_bytes(static_cast<std::uint32_t>(i));
    const std::size_t size = std::min<std::size_t>(bytes.size(), variable_bytes(variables[i]));
    if (size != 0) std::memcpy(pointer_at(module->addresses_[i]), bytes.data(), size);
  }
  return module;
}

bool Module::place(std::size_t index, ManagedVariables* shared) {
  const ptx::Variable& variable = program_.module().variables()[index];
  if (variable.managed) {
    std::shared_ptr<ManagedVariable> made = shared != nullptr ? (*shared)[index] : nullptr;
    if (made == nullptr) {
      made =
          std::make_shared<ManagedVariable>(regions_, variable_bytes(variable), device_.number());
    }
    if (shared != nullptr) (*shared)[index] = made;
    addresses_[index] = made->address();
    managed_[index] = std::move(made);
    return addresses_[index] != 0;
  }
  const auto address = device_.allocate_variable(variable_bytes(variable));
  if (!address) return false;
  addresses_[index] = *address;
  Region region;
  region.kind = RegionKind::kModule;
  region.base = *address;
  region.size = variable_bytes(variable);
  region.device = device_.number();
  region.context = context_;
  region.sync_memops = true;
  region.readers = device_set(region.device);
  region.writers = region.readers;
  regions_.add(region);
  return true;
}

std::optional<FunctionSettings> Kernel::settings(int device) const {
  const Lock lock(mutex_);
  const auto found = settings_.find(device);
  if (found == settings_.end()) return std::nullopt;
  return found->second;
}

void Kernel::set_settings(int device, const FunctionSettings& settings) {
  const Lock lock(mutex_);
  settings_[device] = settings;
}

Module::~Module() {
  const auto& variables = program_.module().variables();
  for (std::size_t i = 0; i < addresses_.size(); ++i) {
    if (addresses_[i] == 0 || managed_[i] != nullptr) continue;
    regions_.remove(addresses_[i], RegionKind::kModule);
    device_.release_variable(addresses_[i], variable_bytes(variables[i]));
  }
}

std::optional<Module::Variable> Module::variable(std::string_view name) const {
  const auto index = program_.module().find_variable(name);
  if (!index || addresses_[*index] == 0) return std::nullopt;
  if (program_.module().variables()[*index].opaque != ptx::Opaque::kNone) return std::nullopt;
  return Variable{addresses_[*index], program_.module().variables()[*index].size,
                  managed_[*index] != nullptr};
}

std::vector<std::uint64_t> Module::functions() const {
  const Lock lock(mutex_);
  std::vector<std::uint64_t> handles;
  for (const auto& [kernel, handle] : functions_) handles.push_back(handle);
  return handles;
}

std::uint64_t Module::known_function(std::uint32_t kernel) const {
  const Lock lock(mutex_);
  const auto found = functions_.find(kernel);
  return found == functions_.end() ? 0 : found->second;
}

std::vector<std::uint64_t> Module::references() const {
  const Lock lock(mutex_);
  std::vector<std::uint64_t> handles;
  for (const auto& [variable, handle] : references_) handles.push_back(handle);
  return handles;
}

FunctionSettings default_settings(const ptx::Function& code, const ptx::KernelInfo& info,
                                  const Device& device) {
  FunctionSettings settings;
  const unsigned shared = device.limits().shared_bytes;
  settings.max_dynamic_shared =
      info.shared_bytes >= shared ? 0 : static_cast<int>(shared - info.shared_bytes);
  for (std::size_t i = 0; i < 3; ++i) {
    settings.cluster[i] = static_cast<int>(code.reqnctapercluster[i]);
  }
  return settings;
}

CUresult get_attribute(const ptx::Module& module, const ptx::Function& code,
                       const ptx::KernelInfo& info, const FunctionSettings& settings,
                       const Device& device, CUfunction_attribute attribute, int* value) {
  const auto answer = [value](auto number) {
    *value = static_cast<int>(number);
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return answer(threads_max(code, device.limits()));
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return answer(info.shared_bytes);
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      return answer(info.const_bytes);
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return answer(info.local_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return answer(info.registers);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      return answer(module.target());
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return answer(device.settings().capability.number());
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      return answer(0);
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return answer(settings.max_dynamic_shared);
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return answer(settings.carveout);
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      return answer(code.explicitcluster && code.reqnctapercluster[0] == 0);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      return answer(settings.cluster[0]);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      return answer(settings.cluster[1]);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return answer(settings.cluster[2]);
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return answer(settings.nonportable_cluster);
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return answer(settings.scheduling);
    case CU_FUNC_ATTRIBUTE_MAX:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

namespace {

bool allowed(bool condition, int value, int& place) {
  if (condition) place = value;
  return condition;
}

}  // namespace

CUresult set_attribute(const ptx::Function& code, const ptx::KernelInfo& info, const Device& device,
                       CUfunction_attribute attribute, int value, FunctionSettings& settings) {
  const DeviceLimits& limits = device.limits();
  const bool fixed_cluster = code.reqnctapercluster[0] != 0;
  bool good = false;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    good = allowed(value >= 0 && info.shared_bytes + static_cast<std::uint64_t>(value) <=
                                     limits.shared_optin_bytes,
                   value, settings.max_dynamic_shared);
  } else if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
    good = allowed(value >= -1 && value <= 100, value, settings.carveout);
  } else if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
    good = allowed(value == 0 || value == 1, value, settings.nonportable_cluster);
  } else if (attribute == CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE) {
    good = allowed(value >= 0 && value <= 2, value, settings.scheduling);
  } else if (attribute == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) {
    good = allowed(value >= 0 && !fixed_cluster, value, settings.cluster[0]);
  } else if (attribute == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT) {
    good = allowed(value >= 0 && !fixed_cluster, value, settings.cluster[1]);
  } else if (attribute == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH) {
    good = allowed(value >= 0 && !fixed_cluster, value, settings.cluster[2]);
  }
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace flyt::softgpu
