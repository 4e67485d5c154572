// translate: a Module becomes a Program; and Image, a Program with addresses.
#include <algorithm>
#include <cstring>

#include "softgpu/interpreter/block.h"
#include "softgpu/interpreter/device_call.h"
#include "softgpu/interpreter/select.h"
#include "softgpu/interpreter/system.h"
#include "softgpu/ptx/types.h"

namespace flyt::ptx {
namespace {

constexpr std::uint64_t kReachWorkMax = 1ull << 28;  // Function visits over all kernels.

// CUDA's device runtime, in camel case. libcu++ calls what is not there, such as
// __cuda_ptx_..._is_not_supported_before_SM_90a__, where a GPU cannot do what is asked for.
bool of_device_runtime(std::string_view name) {
  for (const std::string_view prefix : {"__cuda", "cuda"}) {
    if (name.size() <= prefix.size() || !name.starts_with(prefix)) continue;
    const char next = name[prefix.size()];
    if (next >= 'A' && next <= 'Z') return true;
  }
  return false;
}

class Translation {
 public:
  Translation(std::shared_ptr<const Module> module, JitLog* log)
      : program_(std::make_shared<Program>()), constants_(*program_), log_(log) {
    program_->module = std::move(module);
  }

  Result<std::shared_ptr<const Program>> run() {
    const Module& module = *program_->module;
    const auto& functions = module.functions();
    program_->functions.resize(functions.size());
    references_.resize(functions.size());
    align_frames();
    for (std::uint32_t i = 0; i < functions.size(); ++i) {
      if (!functions[i].defined) {
        program_->functions[i].system = system_call_named(functions[i].name);
        program_->functions[i].device_call = device_call_named(functions[i].name);
        program_->functions[i].frame_bytes = static_cast<std::uint32_t>(
            align_up(functions[i].parameter_bytes, program_->frame_align));
      }
    }
    if (!lay_out_shared()) return Error{ErrorCode::kLimit, error_};
    for (std::uint32_t i = 0; i < functions.size(); ++i) {
      if (!functions[i].defined) continue;
      Selector selector(*program_, constants_, i, log_);
      if (!selector.run(references_[i])) {
        return Error{ErrorCode::kUnsupported, selector.error()};
      }
    }
    for (const std::uint32_t kernel : module.kernels()) {
      if (!add_kernel(kernel)) return Error{error_code_, error_};
    }
    return std::shared_ptr<const Program>(program_);
  }

 private:
  bool refuse(std::uint32_t line, std::string message) {
    if (log_ != nullptr) log_->error(line, message);
    error_ = "PTX line " + std::to_string(line) + ": " + message;
    return false;
  }

  void align_frames() {
    std::uint32_t& align = program_->frame_align;
    for (const Function& function : program_->module->functions()) {
      for (const FrameVariable& variable : function.code.frame) {
        align = std::max(align, variable.align);
      }
      if (function.kernel) continue;  // Its parameters lie elsewhere.
      for (const auto* list : {&function.returns, &function.parameters}) {
        for (const Parameter& parameter : *list) align = std::max(align, parameter.align);
      }
    }
  }

  bool refuse_undefined(const Function& function) {
    if (!of_device_runtime(function.name)) {
      return refuse(function.line, "Undefined reference to '" + function.name + "'");
    }
    error_code_ = ErrorCode::kNotFound;
    return refuse(function.line,
                  "'" + function.name + "' of CUDA's device runtime is not supported");
  }

  // Which functions name which variables and call whom, straight from the operands. A first look
  // for the layout of shared memory, which must be known before code is made.
  void scan(std::uint32_t index, References& into) const {
    const Code& code = program_->module->functions()[index].code;
    for (const Operand& operand : code.operands) {
      if (operand.kind == Operand::Kind::kVariable) into.variables.push_back(operand.index);
      if (operand.kind == Operand::Kind::kFunction) into.callees.push_back(operand.index);
    }
    into.indirect_calls = !code.prototypes.empty();
  }

  // Every function that may run in a kernel, itself first.
  bool reach(std::uint32_t kernel, const std::vector<References>& references,
             std::vector<std::uint32_t>& reached) {
    std::vector<bool>& seen = seen_;
    seen.assign(references.size(), false);
    reached.assign(1, kernel);
    seen[kernel] = true;
    bool indirect = false;
    const auto add = [&](std::uint32_t function) {
      // A kernel is named to be launched, and has its own memory then.
      if (seen[function] || program_->module->functions()[function].kernel) return;
      seen[function] = true;
      reached.push_back(function);
    };
    for (std::size_t i = 0; i < reached.size(); ++i) {
      const References& each = references[reached[i]];
      for (const std::uint32_t callee : each.callees) add(callee);
      work_ += each.callees.size() + 1;
      if (each.indirect_calls && !indirect) {
        indirect = true;
        for (const std::uint32_t function : addressed_) add(function);
      }
    }
    work_ += references.size() / 64;
    return work_ < kReachWorkMax || refuse(0, "the call graph is too large");
  }

  // A variable has one offset in all kernels, such that those of a kernel do not overlap. What
  // many kernels use comes first, so that it costs the others little.
  bool lay_out_shared() {
    const Module& module = *program_->module;
    std::vector<References> scanned(module.functions().size());
    for (std::uint32_t i = 0; i < scanned.size(); ++i) scan(i, scanned[i]);
    find_addressed_in(scanned);
    const auto& variables = module.variables();
    program_->shared_offsets.assign(variables.size(), 0);
    std::vector<std::vector<std::uint32_t>> users(variables.size());
    static_shared_.assign(module.functions().size(), kReservedSharedBytes);
    std::vector<std::uint32_t> reached;
    for (const std::uint32_t kernel : module.kernels()) {
      if (!reach(kernel, scanned, reached)) return false;
      for (const std::uint32_t function : reached) {
        work_ += scanned[function].variables.size();
        for (const std::uint32_t variable : scanned[function].variables) {
          const bool dynamic = variables[variable].size == 0;
          if (variables[variable].space != Space::kShared || dynamic) continue;
          auto& list = users[variable];
          if (list.empty() || list.back() != kernel) list.push_back(kernel);
        }
      }
    }
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < variables.size(); ++i) {
      if (!users[i].empty()) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return users[a].size() > users[b].size();
    });
    return place(order, users);
  }

  bool place(const std::vector<std::uint32_t>& order,
             const std::vector<std::vector<std::uint32_t>>& users) {
    std::uint64_t most = kReservedSharedBytes;
    for (const std::uint32_t index : order) {
      const Variable& variable = program_->module->variables()[index];
      std::uint64_t offset = 0;
      for (const std::uint32_t kernel : users[index]) {
        offset = std::max<std::uint64_t>(offset, static_shared_[kernel]);
      }
      offset = align_up(offset, std::max(variable.align, 1u));
      if (offset + variable.size > kSharedStride / 2) {
        return refuse(variable.line, "shared variables are larger than the limit");
      }
      program_->shared_offsets[index] = static_cast<std::uint32_t>(offset);
      for (const std::uint32_t kernel : users[index]) {
        static_shared_[kernel] = static_cast<std::uint32_t>(offset + variable.size);
      }
      most = std::max(most, offset + variable.size);
    }
    // Dynamic shared memory begins at one place for all kernels too.
    program_->dynamic_shared_offset = static_cast<std::uint32_t>(align_up(most, 1024));
    const auto& variables = program_->module->variables();
    for (std::uint32_t i = 0; i < variables.size(); ++i) {
      if (variables[i].space == Space::kShared && variables[i].size == 0) {
        program_->shared_offsets[i] = program_->dynamic_shared_offset;
      }
    }
    return true;
  }

  // Functions whose address is taken, in code or by an initial value.
  void find_addressed_in(const std::vector<References>& references) {
    std::vector<bool> taken(references.size(), false);
    for (const References& each : references) {
      for (const std::uint32_t callee : each.callees) taken[callee] = true;
    }
    for (const Variable& variable : program_->module->variables()) {
      for (const Relocation& relocation : variable.relocations) {
        if (relocation.target == Relocation::Target::kFunction) taken[relocation.index] = true;
      }
    }
    addressed_.clear();
    const auto& functions = program_->module->functions();
    for (std::uint32_t i = 0; i < taken.size(); ++i) {
      if (taken[i] && functions[i].defined && !functions[i].kernel) addressed_.push_back(i);
    }
  }
  // The local memory of the deepest call chain. False: it recurses, or calls what it computes.
  bool stack_depth(std::uint32_t kernel, std::uint32_t& bytes) {
    struct Visit {
      std::uint32_t function = 0;
      std::size_t next = 0;
      std::uint32_t below = 0;
    };
    enum : std::uint8_t { kNew, kOpen, kDone };
    std::vector<Visit> visits = {{kernel, 0, 0}};
    if (depth_state_.empty()) {
      depth_state_.assign(references_.size(), kNew);
      depth_.assign(references_.size(), 0);
      unbounded_.assign(references_.size(), false);
    }
    bool bounded = true;
    while (!visits.empty()) {
      Visit& visit = visits.back();
      const References& references = references_[visit.function];
      depth_state_[visit.function] = kOpen;
      if (references.indirect_calls || references.unbounded_stack) bounded = false;
      bool deeper = false;
      while (visit.next < references.callees.size() && !deeper) {
        const std::uint32_t callee = references.callees[visit.next];
        if (program_->module->functions()[callee].kernel) {  // It is launched, not called.
          ++visit.next;
          continue;
        }
        if (depth_state_[callee] == kOpen) bounded = false;
        if (depth_state_[callee] == kNew) {
          deeper = true;
          visits.push_back({callee, 0, 0});
          break;
        }
        if (depth_state_[callee] == kDone && unbounded_[callee]) bounded = false;
        visit.below = std::max(visit.below, depth_[callee]);
        ++visit.next;
      }
      if (deeper) continue;
      const std::uint64_t total =
          std::uint64_t{program_->functions[visit.function].frame_bytes} + visit.below;
      depth_[visit.function] =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(total, kStackBytesMax + 1));
      depth_state_[visit.function] = kDone;
      unbounded_[visit.function] = !bounded;
      visits.pop_back();
    }
    bytes = depth_[kernel];
    return bounded;
  }

  // ptxas reuses registers; a third of the virtual ones is near the truth for small kernels. What
  // it makes of a large one can only be guessed, and the guess keeps no block from being launched:
  // all registers of a multiprocessor are enough for as many threads as the kernel may have, and
  // for as many blocks of them as it asks for. They are given out in units, to whole warps.
  static std::uint32_t estimate_registers(const Function& kernel, std::uint32_t virtual_ones) {
    std::uint64_t threads = kThreadsPerBlockMax;
    bool limited = false;
    for (const auto& extent : {kernel.maxntid, kernel.reqntid}) {
      if (extent[0] == 0) continue;
      std::uint64_t product = 1;
      for (const std::uint32_t each : extent) product *= std::max(each, 1u);
      threads = std::min(threads, product);
      limited = true;
    }
    const std::uint64_t warps = (threads + kLanes - 1) / kLanes;
    const std::uint64_t blocks = limited ? std::max(kernel.minnctapersm, 1u) : 1;
    const std::uint64_t share = kRegistersPerBlock / (warps * blocks) / kRegisterUnit;
    const std::uint64_t most = std::clamp<std::uint64_t>(share * kRegisterUnit / kLanes, 16, 128);
    const auto guess = std::clamp<std::uint64_t>(virtual_ones / 3 + 8, 16, most);
    if (kernel.maxnreg == 0) return static_cast<std::uint32_t>(guess);
    return std::min(static_cast<std::uint32_t>(guess), std::max(kernel.maxnreg, 16u));
  }

  bool add_kernel(std::uint32_t index) {
    const Module& module = *program_->module;
    std::vector<std::uint32_t> reached;
    if (!reach(index, references_, reached)) return false;
    KernelInfo info;
    info.function = index;
    info.shared_bytes = static_shared_[index] - kReservedSharedBytes;
    std::uint32_t registers = 0;
    for (const std::uint32_t function : reached) {
      const Function& each = module.functions()[function];
      if (!each.defined && program_->functions[function].system == SystemCall::kNone) {
        return refuse_undefined(each);
      }
      info.uses_printf |= program_->functions[function].system == SystemCall::kPrint;
      const FunctionCode& code = program_->functions[function];
      registers = std::max(registers, code.bytes32 / kRow32Bytes + code.bytes64 / kRow64Bytes * 2);
    }
    info.recursive = !stack_depth(index, info.local_bytes);
    if (info.shared_bytes > kSharedBytesMax) {
      return refuse(module.functions()[index].line, "kernel uses too much shared data");
    }
    if (info.local_bytes > kStackBytesMax) {
      return refuse(module.functions()[index].line, "kernel uses too much local memory");
    }
    info.registers = estimate_registers(module.functions()[index], registers);
    for (const Variable& variable : module.variables()) {
      if (variable.space == Space::kConst) {
        info.const_bytes += static_cast<std::uint32_t>(variable.size);
      }
    }
    program_->kernels.push_back(info);
    return true;
  }

  std::shared_ptr<Program> program_;
  ConstantPool constants_;
  JitLog* log_;
  std::string error_;
  ErrorCode error_code_ = ErrorCode::kInvalid;
  std::vector<References> references_;
  std::vector<std::uint32_t> addressed_;
  std::vector<std::uint32_t> static_shared_;
  std::vector<bool> seen_;
  std::vector<std::uint8_t> depth_state_;
  std::vector<std::uint32_t> depth_;
  std::vector<bool> unbounded_;
  std::uint64_t work_ = 0;
};

std::uint64_t relocated(const Program& program, const std::vector<std::uint64_t>& addresses,
                        const Relocation& relocation) {
  const auto addend = static_cast<std::uint64_t>(relocation.addend);
  if (relocation.target == Relocation::Target::kFunction) {
    return kFunctionWindow + std::uint64_t{relocation.index} * kFunctionStride + addend;
  }
  const Variable& variable = program.module->variables()[relocation.index];
  if (variable.space == Space::kShared) {
    const std::uint64_t offset = program.shared_offsets[relocation.index] + addend;
    return relocation.generic ? kSharedWindow + offset : offset;
  }
  return addresses[relocation.index] + addend;
}

}  // namespace

Result<std::shared_ptr<const Program>> translate(std::shared_ptr<const Module> module,
                                                 JitLog* log) {
  return Translation(std::move(module), log).run();
}

const Module& module_of(const Program& program) { return *program.module; }

const KernelInfo& kernel_info(const Program& program, std::uint32_t index) {
  FLYT_ASSERT(index < program.kernels.size());
  return program.kernels[index];
}

std::shared_ptr<const Image> Image::load(std::shared_ptr<const Program> program,
                                         std::vector<std::uint64_t> addresses) {
  constexpr std::size_t kAlign = 64;
  const auto image = std::make_shared<Image>();
  addresses.resize(program->module->variables().size());
  image->storage_.resize(program->constants.size() + kAlign);
  void* start = image->storage_.data();
  std::size_t space = image->storage_.size();
  start = std::align(kAlign, program->constants.size(), start, space);
  auto* rows = static_cast<std::byte*>(start);
  if (!program->constants.empty()) {
    std::memcpy(rows, program->constants.data(), program->constants.size());
  }
  for (const ConstantRelocation& relocation : program->relocations) {
    const std::uint64_t address =
        addresses[relocation.variable] + static_cast<std::uint64_t>(relocation.addend);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      std::memcpy(rows + relocation.offset + lane * 8, &address, 8);
    }
  }
  image->constants_ = {rows, program->constants.size()};
  image->program_ = std::move(program);
  image->addresses_ = std::move(addresses);
  return image;
}

std::vector<std::byte> Image::initial_bytes(std::uint32_t index) const {
  const Variable& variable = program_->module->variables()[index];
  std::vector<std::byte> bytes = variable.initial;
  for (const Relocation& relocation : variable.relocations) {
    const std::uint64_t address = relocated(*program_, addresses_, relocation) >> relocation.shift;
    if (relocation.offset > bytes.size() || relocation.size > bytes.size() - relocation.offset) {
      continue;
    }
    std::memcpy(bytes.data() + relocation.offset, &address, relocation.size);
  }
  return bytes;
}

}  // namespace flyt::ptx
