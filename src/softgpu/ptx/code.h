// Code: the body of one function as the parser leaves it: names resolved, not yet executable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flyt::ptx {

enum class Space : std::uint8_t { kGeneric, kGlobal, kConst, kShared, kLocal, kParam };

// An opcode or modifier by its hash, so that names can stand in switch cases.
struct Name {
  std::uint32_t hash = 0;
  friend constexpr bool operator==(Name, Name) = default;
};

constexpr std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

namespace literals {
constexpr std::uint32_t operator""_n(const char* text, std::size_t size) {
  return hash_of({text, size});
}
}  // namespace literals

// A register of a function.
struct Register {
  enum class Kind : std::uint8_t { kPredicate, kInteger, kFloat, kUntyped };
  Kind kind = Kind::kUntyped;
  std::uint8_t bytes = 4;  // 1, 2, 4, 8, 16; 0 for predicates.
  bool is_signed = false;
};

// A variable inside a function: .local, .shared (module-wide in truth) or .param of a call.
struct FrameVariable {
  std::uint64_t size = 0;
  std::uint32_t align = 1;
  std::uint32_t offset = 0;         // In the frame of one thread.
  std::uint32_t element_bytes = 0;  // Of an array; 0: it is none.
};

struct Operand {
  enum class Kind : std::uint8_t {
    kRegister,   // index
    kInteger,    // bits
    kFloat32,    // bits: 0f1234ABCD
    kFloat64,    // bits: 0d..., or a decimal literal
    kSpecial,    // bits: hash_of("%tid.x")
    kVariable,   // index in Module::variables(), value: addend
    kFrame,      // index in Code::frame, value: addend
    kParameter,  // index in Function::parameters, value: addend
    kReturn,     // index in Function::returns, value: addend
    kFunction,   // index in Module::functions()
    kLabel,      // index in Code::labels
    kTable,      // index in Code::tables (branch targets)
    kPrototype,  // index in Code::prototypes, or call targets
    kVector,     // elements: operands [index, index + count)
    kSink,       // _
  };
  Kind kind = Kind::kSink;
  bool negated = false;     // !%p
  bool memory = false;      // [ ... ]; a register base has its offset in `value`
  bool paired = false;      // The q of p|q.
  bool minus = false;       // -%r
  bool paren = false;       // A vector written in parentheses: arguments of a call.
  std::uint16_t count = 0;  // Of a vector.
  std::uint32_t index = 0;
  std::uint32_t part = 0;  // %r.b0: the index of "b0" in Code::spellings, from 1 on; 0: all of it.
  std::uint64_t bits = 0;
  std::int64_t value = 0;
  // name[%r+1]: what `value` is added to: the register (its index, from 1 on; 0: none) times the
  // bytes of an element. The sum has 32 bits. Of what has no subscript an element has 0 bytes.
  std::uint32_t subscript = 0;
  std::uint32_t element_bytes = 0;
};

struct Instruction {
  Name opcode;
  std::int32_t guard = -1;  // Register, or -1.
  bool guard_negated = false;
  std::uint8_t modifier_count = 0;
  std::uint16_t operand_count = 0;
  std::uint32_t first_modifier = 0;
  std::uint32_t first_operand = 0;
  std::uint32_t line = 0;
  std::uint32_t text = 0;  // Index of the spelling in Code::spellings.
};

// The shape of a call: sizes and alignments of what comes back and what goes in.
struct Prototype {
  struct Slot {
    std::uint32_t size = 0;
    std::uint32_t align = 1;
    std::uint32_t offset = 0;
    bool unsized = false;
  };
  std::vector<Slot> returns;
  std::vector<Slot> parameters;
};

struct Code {
  std::vector<Instruction> instructions;
  std::vector<Name> modifiers;
  std::vector<Operand> operands;
  std::vector<Register> registers;
  std::vector<FrameVariable> frame;
  std::uint32_t frame_bytes = 0;      // Locals, call parameters, own parameters and returns.
  std::vector<std::uint32_t> labels;  // Instruction index of each.
  std::vector<std::vector<std::uint32_t>> tables;  // Labels of a .branchtargets.
  std::vector<Prototype> prototypes;
  std::vector<std::string> spellings;  // "add.rn.f32", each once.
};

}  // namespace flyt::ptx
