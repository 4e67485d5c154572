// Desk: what a program and its machine's client manager say to each other, on a socket of their
// own. The program asks once; the manager answers, maybe often, until it grants or refuses. The
// connection then stays open, silent, for as long as the program uses the GPU.
//
//   offset  size
//   0       8     magic "FLYTGPU\n"
//   8       2     version
//   10      2     kind (DeskKind)
//   12      4     bytes of the body
//   16      ...   body
//
// A text is u16 length and its bytes. Bodies:
//   ask      u16 DeskPurpose, u32 process id, text program
//   waiting  u32 requests before it, text why
//   granted  u64 generation, text URL, text token
//   refused  u16 ErrorCode, text why
//   status   text JSON
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace flyt::wire {

inline constexpr std::array<std::uint8_t, 8> kDeskMagic{'F', 'L', 'Y', 'T', 'G', 'P', 'U', '\n'};
inline constexpr std::uint16_t kDeskVersion = 1;
inline constexpr std::size_t kDeskHeaderBytes = 16;
inline constexpr std::size_t kDeskTextBytesMax = 4096;
inline constexpr std::size_t kDeskBodyBytesMax = 2 * (2 + kDeskTextBytesMax) + 8;

// Numbers are never changed or reused.
enum class DeskKind : std::uint16_t {
  kAsk = 1,
  kWaiting = 2,
  kGranted = 3,
  kRefused = 4,
  kStatus = 5,
};

enum class DeskPurpose : std::uint16_t {
  kUse = 1,     // For as long as the connection is open.
  kAwait = 2,   // Until it could be used; somebody else will ask then.
  kStatus = 3,  // Tell how things are, and no more.
  kAgain = 4,   // As kUse, of one that what was granted last did not let in.
};

struct DeskAsk {
  DeskPurpose purpose = DeskPurpose::kUse;
  std::uint32_t process_id = 0;
  std::string program;
  friend bool operator==(const DeskAsk&, const DeskAsk&) = default;
};
struct DeskWaiting {
  std::uint32_t ahead = 0;
  std::string why;  // For people; may be empty.
  friend bool operator==(const DeskWaiting&, const DeskWaiting&) = default;
};
struct DeskGranted {
  std::uint64_t generation = 0;  // Of the virtual GPU: grows when another one takes its place.
  std::string url;
  std::string token;  // Empty: the server wants none.
  friend bool operator==(const DeskGranted&, const DeskGranted&) = default;
};
struct DeskRefused {
  ErrorCode code = ErrorCode::kInvalid;
  std::string why;
  friend bool operator==(const DeskRefused&, const DeskRefused&) = default;
};
struct DeskStatus {
  std::string json;
  friend bool operator==(const DeskStatus&, const DeskStatus&) = default;
};
using DeskMessage = std::variant<DeskAsk, DeskWaiting, DeskGranted, DeskRefused, DeskStatus>;

// Texts that are longer than kDeskTextBytesMax are cut.
std::vector<std::byte> encode(const DeskMessage& message);

// Takes one message off the front of `bytes`: none if it is not all there yet. kInvalid: it can be
// none, however much follows; kUnsupported: another version.
Result<std::optional<DeskMessage>> take_desk_message(std::vector<std::byte>& bytes);

}  // namespace flyt::wire
