// Module: what one PTX text (or several, linked) declares, verified and typed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "softgpu/ptx/code.h"
#include "softgpu/ptx/jit_log.h"

namespace flyt::ptx {

// Limits of hostile input; each is far above what compilers emit.
inline constexpr std::size_t kSourceBytesMax = 256u << 20;
inline constexpr std::size_t kInstructionsMax = 16u << 20;
inline constexpr std::size_t kRegistersMax = 1u << 20;      // In one function.
inline constexpr std::size_t kAllRegistersMax = 16u << 20;  // In all that are linked.
inline constexpr std::size_t kFunctionsMax = 1u << 18;
inline constexpr std::size_t kVariablesMax = 1u << 18;
inline constexpr std::size_t kParametersMax = 4096;
inline constexpr std::uint64_t kVariableBytesMax = 8ull << 30;
inline constexpr std::uint64_t kInitialBytesMax = 256u << 20;  // Of all variables of a module.
inline constexpr std::uint64_t kParameterBytesMax = 32764;     // Of one kernel.
inline constexpr std::uint64_t kSharedBytesMax = 256u << 10;   // Static, of one kernel.
inline constexpr std::uint64_t kLocalBytesMax = 512u << 10;    // Of one thread's frame.
inline constexpr std::uint32_t kAlignMax = 4096;
inline constexpr unsigned kNestingMax = 64;  // Of blocks and of constant expressions.

// What a variable is that code can only name: it holds no bytes that programs see.
enum class Opaque : std::uint8_t { kNone, kTexture, kSurface };

enum class Linkage : std::uint8_t { kInternal, kVisible, kExtern, kWeak, kCommon };

struct Parameter {
  std::string name;
  std::uint32_t offset = 0;  // From the start of the parameter block, bytes.
  std::uint32_t size = 0;
  std::uint32_t align = 1;
  std::int32_t in_register = -1;    // Of device functions that declare it as .reg.
  bool unsized = false;             // The last one of a variadic function: the array's address.
  std::uint32_t element_bytes = 0;  // Of an array; 0: it is none.
};

// An address that the loader writes into a variable's initial bytes.
struct Relocation {
  enum class Target : std::uint8_t { kVariable, kFunction };
  std::uint64_t offset = 0;  // Where, in the variable.
  std::uint32_t size = 8;    // Bytes to write: 8, 4, or 1 (see `shift`).
  std::uint32_t shift = 0;   // The address is shifted right by this many bits first (mask()).
  Target target = Target::kVariable;
  bool generic = false;     // For .shared/.local targets; device memory has one address anyway.
  std::uint32_t index = 0;  // In Module::variables() or Module::functions().
  std::int64_t addend = 0;
};

struct Variable {
  std::string name;
  Space space = Space::kGlobal;
  Linkage linkage = Linkage::kInternal;
  std::uint64_t size = 0;  // Bytes. 0: of unknown size (an extern array, dynamic shared memory).
  std::uint32_t align = 1;
  std::uint32_t element_bytes = 0;  // Of an array; 0: it is none.
  bool managed = false;             // .attribute(.managed)
  Opaque opaque = Opaque::kNone;
  std::uint32_t line = 0;
  std::vector<std::byte> initial;  // Empty, or a prefix; the rest is zero.
  std::vector<Relocation> relocations;
};

// A kernel or device function. `kernel` and the bounds matter for kernels only.
struct Function {
  std::string name;
  Linkage linkage = Linkage::kInternal;
  bool kernel = false;
  bool defined = false;  // Has a body here; otherwise it is a declaration.
  std::uint32_t line = 0;
  std::vector<Parameter> returns;     // Laid out in front of `parameters` in one block.
  std::vector<Parameter> parameters;  // Kernels: as CUDA's cuFuncGetParamInfo tells them.
  std::uint32_t parameter_bytes = 0;  // Kernels: bytes of the kernel parameter buffer.
  std::array<std::uint32_t, 3> reqntid = {0, 0, 0};  // 0: not given.
  std::array<std::uint32_t, 3> maxntid = {0, 0, 0};
  std::uint32_t minnctapersm = 0;
  std::uint32_t maxnreg = 0;
  std::array<std::uint32_t, 3> reqnctapercluster = {0, 0, 0};
  std::uint32_t maxclusterrank = 0;
  bool explicitcluster = false;
  Code code;  // The body, symbolic; see code.h.
};

Prototype prototype_of(const std::vector<Parameter>& returns,
                       const std::vector<Parameter>& parameters);

// Immutable once made; safe from any thread.
class Module {
 public:
  const std::vector<Function>& functions() const { return functions_; }
  const std::vector<Variable>& variables() const { return variables_; }
  // Indices into functions() of the kernels, in the order of the text.
  const std::vector<std::uint32_t>& kernels() const { return kernels_; }
  std::optional<std::uint32_t> find_function(std::string_view name) const;
  std::optional<std::uint32_t> find_variable(std::string_view name) const;
  // Of all functions.
  std::uint64_t register_count() const { return register_count_; }

  std::uint32_t version_major() const { return version_major_; }
  std::uint32_t version_minor() const { return version_minor_; }
  std::uint32_t target() const { return target_; }                   // 90 for sm_90 and sm_90a.
  std::string_view target_suffix() const { return target_suffix_; }  // "", "a" or "f".

 private:
  friend class ModuleBuilder;

  std::vector<Function> functions_;
  std::vector<Variable> variables_;
  std::vector<std::uint32_t> kernels_;
  std::vector<std::uint32_t> functions_by_name_;  // Sorted.
  std::vector<std::uint32_t> variables_by_name_;
  std::uint64_t register_count_ = 0;
  std::uint32_t version_major_ = 0;
  std::uint32_t version_minor_ = 0;
  std::uint32_t target_ = 0;
  std::string target_suffix_;
};

// Parses one PTX text (a trailing NUL is ignored). Refusals name the line and the reason, in the
// error as in `log` (which may be null). The text need not outlive the call.
Result<std::shared_ptr<const Module>> parse(std::string_view text, JitLog* log);

// Joins modules as the linker does: extern declarations meet their definitions, weak and common
// ones give way, two strong definitions of a name are an error. What stays undefined is an error
// unless the interpreter provides it (vprintf, malloc, free, __assertfail).
Result<std::shared_ptr<const Module>> link(std::span<const std::shared_ptr<const Module>> modules,
                                           JitLog* log);

}  // namespace flyt::ptx
