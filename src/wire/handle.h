// Handle: a 64-bit name of an object, chosen by the client and told to the server.
//
// The value is what the application holds as its CUstream, CUevent, ... pointer. It looks like a
// canonical user-space pointer, aligned to 16, in a range where Linux maps nothing by itself
// (0x6000'0000'0000 - 0x6fff'ffff'ffff), and is never dereferenced:
//
//   bit 63..47   46..44   43..38   37..26       25..4    3..0
//       0        110      kind     generation   index    0
//
// Index 0 and generation 0 are never used, so that a context index of 0 in a frame header means
// "none". 0, 1 and 2 (the default streams of CUDA) are not handles; they stay what they are.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

namespace flyt::wire {

// Numbers are part of the protocol: never changed, never reused.
enum class HandleKind : std::uint8_t {
  kContext = 1,
  kStream = 2,
  kEvent = 3,
  kModule = 4,
  kFunction = 5,
  kLibrary = 6,
  kKernel = 7,
  kLink = 8,
  kMemAllocation = 9,  // CUmemGenericAllocationHandle
  kPool = 10,
  kGraph = 11,
  kGraphNode = 12,
  kGraphExec = 13,
  kArray = 14,
  kMipmappedArray = 15,
  kTexture = 16,
  kSurface = 17,
  kTextureReference = 18,
  kSurfaceReference = 19,
  kUserObject = 20,
  kGreenContext = 21,
  kExternalMemory = 22,
  kExternalSemaphore = 23,
  kGraphicsResource = 24,
  kResourceDescription = 25,  // CUdevResourceDesc
  kHostCall = 26,             // A registered host function or callback of the client.
  kUpload = 27,               // Bytes sent ahead of the command that uses them (module images).
  kLogCallback = 28,
};
inline constexpr std::uint8_t kHandleKindMax = 28;

// "stream", "event", ...; "unknown" for a number that is no kind.
std::string_view to_string(HandleKind kind);

inline constexpr std::uint32_t kHandleIndexBits = 22;
inline constexpr std::uint32_t kHandleGenerationBits = 12;
inline constexpr std::uint32_t kHandleIndexMax = (1U << kHandleIndexBits) - 1;
inline constexpr std::uint32_t kHandleGenerationMax = (1U << kHandleGenerationBits) - 1;

// A value type; `value` 0 is the null handle. Anything from a peer or an application is checked
// with valid() or valid_as() before its parts are used.
struct Handle {
  std::uint64_t value = 0;

  static constexpr std::uint64_t kTag = 0b110;

  // index in [1, kHandleIndexMax], generation in [1, kHandleGenerationMax].
  static constexpr Handle make(HandleKind kind, std::uint32_t generation, std::uint32_t index) {
    return Handle{kTag << 44 | std::uint64_t{static_cast<std::uint8_t>(kind)} << 38 |
                  std::uint64_t{generation} << 26 | std::uint64_t{index} << 4};
  }

  constexpr std::uint32_t index() const {
    return static_cast<std::uint32_t>(value >> 4) & kHandleIndexMax;
  }
  constexpr std::uint32_t generation() const {
    return static_cast<std::uint32_t>(value >> 26) & kHandleGenerationMax;
  }
  constexpr HandleKind kind() const { return static_cast<HandleKind>(value >> 38 & 63); }

  // The bits have the shape of a handle of some kind; whether it is alive only a table knows.
  constexpr bool valid() const {
    const std::uint64_t kind_number = value >> 38 & 63;
    return value >> 44 == kTag && (value & 15) == 0 && kind_number >= 1 &&
           kind_number <= kHandleKindMax && index() != 0 && generation() != 0;
  }
  constexpr bool valid_as(HandleKind wanted) const { return valid() && kind() == wanted; }

  explicit constexpr operator bool() const { return value != 0; }
  friend constexpr auto operator<=>(const Handle&, const Handle&) = default;
};
static_assert(sizeof(Handle) == 8);

// The generation that follows `generation` when an index is used again.
constexpr std::uint32_t next_generation(std::uint32_t generation) {
  return generation >= kHandleGenerationMax ? 1 : generation + 1;
}

// Streams that CUDA names by small numbers instead of pointers.
inline constexpr std::uint64_t kStreamNull = 0;
inline constexpr std::uint64_t kStreamLegacy = 1;
inline constexpr std::uint64_t kStreamPerThread = 2;

}  // namespace flyt::wire
