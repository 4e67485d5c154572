// Program: the executable form of a module: steps with handlers, and the tables they refer to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "softgpu/interpreter/grid.h"
#include "softgpu/ptx/module.h"

namespace flyt::ptx {

inline constexpr unsigned kLanes = 32;
inline constexpr std::uint32_t kRow32Bytes = kLanes * 4;
inline constexpr std::uint32_t kRow64Bytes = kLanes * 8;
// The runtime's own part of a block's shared memory; variables come behind it.
inline constexpr std::uint32_t kReservedSharedBytes = 1024;
inline constexpr std::uint32_t kFrameAlign = 16;  // Of frames in local memory, at least.
inline constexpr std::size_t kConstantBytesMax = 256u << 20;
inline constexpr std::uint32_t kRegisterFileBytesMax = 512u << 20;  // Of one block.
inline constexpr std::uint32_t kCallDepthMax = 16384;
inline constexpr std::uint32_t kStackBytesDefault = 64u << 10;  // Of a thread that may recurse.
inline constexpr std::uint32_t kStackBytesMax = 512u << 10;

using Mask = std::uint32_t;  // A bit a lane.
inline constexpr Mask kAllLanes = ~Mask{0};

class Warp;
struct Step;

enum class Flow : std::uint8_t {
  kNext,    // Go on with the step behind.
  kSwitch,  // Splits, frames or states changed: choose anew.
  kFault,   // Warp::fault() was called.
};

using Handler = Flow (*)(Warp&, const Step&, Mask);

// A row of the register file: 32 values, 4 or 8 bytes each. Values of 8 and 16 bits lie in 4-byte
// cells whose upper bits mean nothing. 128-bit values are two 8-byte rows, low half first.
struct Row {
  enum class Base : std::uint8_t { k32, k64, kConstant };
  std::uint32_t value = 0;

  static constexpr unsigned kBaseShift = 30;
  static constexpr Row make(Base base, std::uint32_t offset) {
    return {static_cast<std::uint32_t>(base) << kBaseShift | offset};
  }
  constexpr std::uint32_t base() const { return value >> kBaseShift; }
  constexpr std::uint32_t offset() const { return value & ((1u << kBaseShift) - 1); }
  friend constexpr bool operator==(Row, Row) = default;
};

// One instruction, decoded. What d, a, b and c mean is the handler's business.
struct Step {
  Handler handler = nullptr;
  Row d, a, b, c, e;
  std::int64_t value = 0;   // An address offset, or packed options.
  std::uint32_t extra = 0;  // A branch target, an index into a table, a predicate.
  std::uint32_t guard = 0;  // 0: none; else predicate << 1 | negated, plus 2.
  std::uint32_t p = 0;      // A predicate: source or destination.
  std::uint32_t q = 0;      // Another.
};

// Predicates as operands: index << 1 | negated; these two stand for "none".
inline constexpr std::uint32_t kNoPredicate = 0xffffffffu;
inline constexpr std::uint32_t kAlwaysTrue = 0xfffffffeu;

struct Argument {
  bool in_register = false;
  bool is_address = false;   // Of an array of any size: not its bytes are passed.
  std::uint32_t local = 0;   // Offset in the caller's frame.
  std::uint32_t remote = 0;  // Offset in the callee's frame.
  std::uint32_t size = 0;
  Row row;
};

enum class SystemCall : std::uint8_t {
  kNone,
  kPrint,
  kAllocate,
  kRelease,
  kAssert,
  kSetConditional,
  kDeviceRuntime,  // FunctionCode::device_call says which.
};

// Of CUDA's device runtime, each under its name there (device_call.h).
enum class DeviceCall : std::uint8_t {
  kNone,
  kGetParameterBuffer,
  kLaunchDevice,
  kMemcpyAsync,
  kMemcpy2DAsync,
  kMemsetAsync,
  kMemset2DAsync,
  kStreamCreate,
  kStreamDestroy,
  kStreamWaitEvent,
  kEventCreate,
  kEventRecord,
  kEventDestroy,
  kGetLastError,
  kPeekAtLastError,
  kGetErrorName,
  kGetErrorString,
  kGetDevice,
  kGetDeviceCount,
  kGetRuntimeVersion,
  kGetDeviceAttribute,
  kGetDeviceLimit,
  kGetCacheConfig,
  kGetFunctionAttributes,
  kGetOccupancy,
  kDeviceMalloc,
  kDeviceFree,
};

struct CallSite {
  std::uint32_t caller = 0;
  std::uint32_t callee = 0;  // Ignored where the target is in a register.
  std::vector<Argument> arguments;
  std::vector<Argument> returns;
  std::uint32_t block_bytes = 0;  // Of arguments and returns in the callee's frame.
};

struct FunctionCode {
  std::uint32_t entry = 0;  // Index of the first step.
  std::uint32_t end = 0;
  bool defined = false;
  SystemCall system = SystemCall::kNone;
  DeviceCall device_call = DeviceCall::kNone;
  std::uint32_t bytes32 = 0;  // Of register rows.
  std::uint32_t bytes64 = 0;
  std::uint32_t predicates = 0;
  std::uint32_t frame_bytes = 0;
  std::uint32_t parameter_bytes = 0;
};

struct ConstantRelocation {
  std::uint32_t offset = 0;  // In the constants.
  std::uint32_t variable = 0;
  std::int64_t addend = 0;
};

class Program {
 public:
  std::shared_ptr<const Module> module;
  std::vector<Step> steps;
  std::vector<std::uint32_t> lines;  // Of each step.
  std::vector<FunctionCode> functions;
  std::vector<KernelInfo> kernels;
  std::vector<std::uint32_t> rows;  // Lists of rows that steps refer to by `extra`.
  std::vector<CallSite> calls;
  std::vector<std::vector<std::uint32_t>> tables;  // Step indices.
  std::vector<std::byte> constants;                // Rows.
  std::vector<ConstantRelocation> relocations;
  std::vector<std::uint32_t> shared_offsets;  // Of each variable; only .shared ones matter.
  std::uint32_t dynamic_shared_offset = 0;
  // Of all frames: one begins where the caller's ends, and what lies in it is aligned within it.
  std::uint32_t frame_align = kFrameAlign;
};

}  // namespace flyt::ptx
