// link: several modules become one, as the linker does it.
#include <string>
#include <unordered_map>

#include "softgpu/ptx/parser.h"

namespace flyt::ptx {
namespace {

bool strong(Linkage linkage) {
  return linkage == Linkage::kVisible || linkage == Linkage::kInternal;
}

class Linker {
 public:
  explicit Linker(JitLog* log) : log_(log) {}

  Result<std::shared_ptr<const Module>> run(
      std::span<const std::shared_ptr<const Module>> modules) {
    for (const auto& module : modules) {
      if (module->version_major() * 100 + module->version_minor() > version_) {
        version_ = module->version_major() * 100 + module->version_minor();
        builder_.set_version(module->version_major(), module->version_minor());
      }
      if (module->target() >= target_) {
        target_ = module->target();
        builder_.set_target(target_, module->target_suffix());
      }
      if (!add(*module)) return Error{ErrorCode::kInvalid, error_};
    }
    for (const Variable& variable : builder_.variables()) {
      if (variable.linkage == Linkage::kExtern && variable.space != Space::kShared) {
        return refuse("Undefined reference to '" + variable.name + "'");
      }
    }
    return builder_.finish();
  }

 private:
  Error refuse(std::string message) {
    if (log_ != nullptr) log_->error(0, message);
    error_ = message;
    return Error{ErrorCode::kInvalid, std::move(message)};
  }

  bool add(const Module& module) {
    std::vector<std::uint32_t> functions;
    std::vector<std::uint32_t> variables;
    std::vector<std::uint32_t> taken_functions;
    std::vector<std::uint32_t> taken_variables;
    for (const Function& function : module.functions()) {
      if (!place_function(function, functions, taken_functions)) return false;
    }
    for (const Variable& variable : module.variables()) {
      if (!place_variable(variable, variables, taken_variables)) return false;
    }
    for (const std::uint32_t index : taken_functions) {
      renumber(builder_.functions()[index].code, functions, variables);
    }
    for (const std::uint32_t index : taken_variables) {
      for (Relocation& relocation : builder_.variables()[index].relocations) {
        const bool function = relocation.target == Relocation::Target::kFunction;
        relocation.index = (function ? functions : variables)[relocation.index];
      }
    }
    return true;
  }

  bool place_function(const Function& function, std::vector<std::uint32_t>& places,
                      std::vector<std::uint32_t>& taken) {
    auto& all = builder_.functions();
    const auto next = static_cast<std::uint32_t>(all.size());
    // A static function is seen by its own module only; an undefined one may be anybody's.
    const bool internal = function.linkage == Linkage::kInternal && function.defined;
    if (internal && !function.kernel) {
      places.push_back(next);
      taken.push_back(next);
      all.push_back(function);
      return true;
    }
    const auto [found, added] = functions_.try_emplace(function.name, next);
    places.push_back(found->second);
    if (added) {
      taken.push_back(next);
      all.push_back(function);
      return true;
    }
    Function& before = all[found->second];
    if (!function.defined) return true;
    if (before.defined && strong(before.linkage) && strong(function.linkage)) {
      refuse("Multiple definition of '" + function.name + "'");
      return false;
    }
    if (before.defined && !strong(function.linkage)) return true;
    before = function;
    taken.push_back(found->second);
    return true;
  }

  bool place_variable(const Variable& variable, std::vector<std::uint32_t>& places,
                      std::vector<std::uint32_t>& taken) {
    auto& all = builder_.variables();
    const auto next = static_cast<std::uint32_t>(all.size());
    const bool dynamic = variable.space == Space::kShared && variable.size == 0;
    if (variable.linkage == Linkage::kInternal || dynamic) {
      places.push_back(next);
      taken.push_back(next);
      all.push_back(variable);
      return true;
    }
    const auto [found, added] = variables_.try_emplace(variable.name, next);
    places.push_back(found->second);
    if (added) {
      taken.push_back(next);
      all.push_back(variable);
      return true;
    }
    Variable& before = all[found->second];
    if (variable.linkage == Linkage::kExtern) return true;
    if (strong(before.linkage) && strong(variable.linkage)) {
      refuse("Multiple definition of '" + variable.name + "'");
      return false;
    }
    const bool larger_common = before.linkage == Linkage::kCommon && variable.size > before.size;
    if (before.linkage != Linkage::kExtern && !strong(variable.linkage) && !larger_common) {
      return true;
    }
    before = variable;
    taken.push_back(found->second);
    return true;
  }

  static void renumber(Code& code, const std::vector<std::uint32_t>& functions,
                       const std::vector<std::uint32_t>& variables) {
    for (Operand& operand : code.operands) {
      if (operand.kind == Operand::Kind::kVariable) operand.index = variables[operand.index];
      if (operand.kind == Operand::Kind::kFunction) operand.index = functions[operand.index];
    }
  }

  JitLog* log_;
  ModuleBuilder builder_;
  std::unordered_map<std::string, std::uint32_t> functions_;
  std::unordered_map<std::string, std::uint32_t> variables_;
  std::uint32_t version_ = 0;
  std::uint32_t target_ = 0;
  std::string error_;
};

}  // namespace

Result<std::shared_ptr<const Module>> link(std::span<const std::shared_ptr<const Module>> modules,
                                           JitLog* log) {
  return Linker(log).run(modules);
}

}  // namespace flyt::ptx
