// Which family of instructions an opcode belongs to.
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

// The type that decides: that of the operation, which stands last.
std::optional<Type> last_type(const Selector& s) {
  constexpr std::uint32_t kDecisive[] = {"f32"_n,   "f64"_n,  "f16"_n,
                                         "f16x2"_n, "bf16"_n, "bf16x2"_n};
  for (const std::uint32_t name : kDecisive) {
    if (s.has(name)) return type_named(name);
  }
  return std::nullopt;
}

using Family = bool (*)(Selector& s);

bool arithmetic(Selector& s) {
  if (s.has("f32x2"_n)) return select_float_pairs(s);
  const auto type = last_type(s);
  if (!type.has_value()) return s.has("cc"_n) ? select_carry(s) : select_integer(s);
  if (*type == Type::kF32 || *type == Type::kF64) return select_float(s);
  return select_half(s, *type);
}

// Null where it is of none.
Family common_family(std::uint32_t opcode) {
  switch (opcode) {
    case "add"_n:
    case "sub"_n:
    case "mul"_n:
    case "mad"_n:
    case "fma"_n:
    case "div"_n:
    case "neg"_n:
    case "abs"_n:
    case "min"_n:
    case "max"_n:
    case "rem"_n:
    case "ex2"_n:
    case "tanh"_n:
      return &arithmetic;
    case "addc"_n:
    case "subc"_n:
    case "madc"_n:
      return &select_carry;
    case "mul24"_n:
    case "mad24"_n:
    case "sad"_n:
    case "dp4a"_n:
    case "dp2a"_n:
      return &select_integer;
    case "rcp"_n:
    case "sqrt"_n:
    case "rsqrt"_n:
    case "sin"_n:
    case "cos"_n:
    case "lg2"_n:
    case "copysign"_n:
    case "testp"_n:
      return &select_float;
    case "and"_n:
    case "or"_n:
    case "xor"_n:
    case "not"_n:
    case "cnot"_n:
    case "shl"_n:
    case "shr"_n:
    case "shf"_n:
    case "lop3"_n:
    case "prmt"_n:
    case "bfe"_n:
    case "bfi"_n:
    case "bfind"_n:
    case "brev"_n:
    case "clz"_n:
    case "popc"_n:
    case "fns"_n:
    case "szext"_n:
    case "bmsk"_n:
      return &select_bits;
    case "setp"_n:
    case "set"_n:
    case "selp"_n:
    case "slct"_n:
      return &select_compare;
    case "cvt"_n:
      return &select_convert;
    case "mov"_n:
      return &select_move;
  }
  return nullptr;
}

Family other_family(std::uint32_t opcode) {
  switch (opcode) {
    case "ld"_n:
    case "ldu"_n:
    case "st"_n:
    case "prefetch"_n:
    case "prefetchu"_n:
    case "cvta"_n:
    case "isspacep"_n:
    case "mapa"_n:
    case "getctarank"_n:
    case "alloca"_n:
    case "stacksave"_n:
    case "stackrestore"_n:
    case "applypriority"_n:
    case "discard"_n:
    case "createpolicy"_n:
      return &select_memory;
    case "atom"_n:
    case "red"_n:
      return &select_atomic;
    case "shfl"_n:
    case "vote"_n:
    case "match"_n:
    case "redux"_n:
    case "activemask"_n:
    case "elect"_n:
      return &select_warp;
    case "bra"_n:
    case "brx"_n:
    case "ret"_n:
    case "exit"_n:
    case "trap"_n:
    case "brkpt"_n:
    case "nanosleep"_n:
    case "pmevent"_n:
    case "griddepcontrol"_n:
    case "setmaxnreg"_n:
      return &select_control;
    case "call"_n:
      return &select_call;
    case "bar"_n:
    case "barrier"_n:
    case "membar"_n:
    case "fence"_n:
      return &select_barrier;
    case "cp"_n:
    case "mbarrier"_n:
      return &select_async;
    case "mma"_n:
    case "wmma"_n:
    case "ldmatrix"_n:
    case "stmatrix"_n:
    case "movmatrix"_n:
    case "wgmma"_n:
      return &select_matrix;
    case "tensormap"_n:
      return &select_tensor_map;
    case "tex"_n:
    case "tld4"_n:
    case "txq"_n:
      return &select_texture;
    case "suld"_n:
    case "sust"_n:
    case "sured"_n:
    case "suq"_n:
      return &select_surface;
  }
  return video_known(opcode) ? &select_video : nullptr;
}

Family family_of(std::uint32_t opcode) {
  const Family common = common_family(opcode);
  return common != nullptr ? common : other_family(opcode);
}

}  // namespace

bool opcode_known(std::string_view opcode) { return family_of(hash_of(opcode)) != nullptr; }

bool Selector::instruction(const Instruction& instruction) {
  instruction_ = &instruction;
  taken_ = 0;
  parts_ = 0;
  negated_ = 0;
  used32_ = 0;
  used64_ = 0;
  const Family family = family_of(opcode());
  if (family == nullptr || !family(*this)) {
    return error_.empty() ? refuse("is not supported") : false;
  }
  if (!error_.empty()) return false;
  const std::uint32_t count = instruction.modifier_count;
  const std::uint32_t all = count == 32 ? ~0u : (1u << count) - 1;
  if (taken_ != all) return refuse("has a modifier that is not supported");
  for (std::size_t i = 0; i < instruction.operand_count; ++i) {
    const auto asked = [i](std::uint32_t bits) { return i < 32 && (bits >> i & 1) != 0; };
    const Operand& one = operand(i);
    if (one.part != 0 && !asked(parts_)) return refuse("takes no part of a register");
    if (one.minus && !asked(negated_)) return refuse("takes no negated register");
  }
  return true;
}

std::string_view Selector::part(std::size_t index) {
  parts_ |= 1u << index;
  const std::uint32_t part = operand(index).part;
  return part == 0 ? std::string_view() : code().spellings[part - 1];
}

bool Selector::minus(std::size_t index) {
  negated_ |= 1u << index;
  return operand(index).minus;
}

}  // namespace flyt::ptx
