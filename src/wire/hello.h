// Hello: the first bytes each way. Its shape is frozen for ever; what is new travels in records
// that an older peer skips.
//
//   offset  size
//   0       8     magic "FLYT\r\n\x1a\n"
//   8       2     kind: 1 client hello, 2 welcome, 3 refusal
//   10      2     lowest version offered   (welcome: the version chosen)
//   12      2     highest version offered  (welcome: the version chosen)
//   14      2     number of records
//   16      4     bytes of all records
//   20      4     zero; readers ignore it
//   24      ...   records: u16 id, u16 length, `length` bytes
//
// A record with an id of 0x8000 or more must be understood: who does not know it refuses. Other
// unknown records are skipped. A known record that is malformed or comes twice where it may come
// once is refused.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/limits.h"

namespace flyt::wire {

inline constexpr std::array<std::uint8_t, 8> kHelloMagic{'F',  'L',  'Y',  'T',
                                                         '\r', '\n', 0x1a, '\n'};
inline constexpr std::size_t kHelloPrefixBytes = 24;
inline constexpr std::size_t kHelloBytesMax = kHelloPrefixBytes + kHelloRecordsBytesMax;

enum class HelloKind : std::uint16_t { kClient = 1, kWelcome = 2, kRefusal = 3 };

// Numbers are never changed or reused.
enum class HelloRecord : std::uint16_t {
  kName = 1,           // text: the program (client) or the server's name
  kProcess = 2,        // u32 process id, u32 user id
  kWindow = 3,         // Window, any number of times
  kSessionToken = 4,   // 16 bytes: in a welcome the session's, in a hello the session to join
  kRole = 5,           // u16 ConnectionRole
  kDriver = 6,         // u32 cuDriverGetVersion, then text: kSoftDriver, "nvidia" or a path
  kLimits = 7,         // Limits
  kReason = 8,         // u16 RefusalCode, then text
  kHighestOp = 9,      // u16: the API ops known are those up to this one
  kCredential = 10,    // bytes that prove who the client is
  kSharedMemory = 11,  // empty. Hello: wanted. Welcome: granted; the rings follow on the socket
  kLane = 12,          // u16 number, u16 LanePacking: of a bulk connection
  kRecovery = 13,      // 16 bytes. Hello: the session that is to go on, or all zero: a new one that
                       // could. Welcome: its token, if it can
  kReturns = 14,       // u32 milliseconds. Welcome: for so long after its death another server may
                       // come in this one's place, where the session can go on
};
inline constexpr std::uint16_t kMustUnderstand = 0x8000;

// The software GPU, wherever the server found it. It runs PTX, which decides what code it is sent.
inline constexpr std::string_view kSoftDriver = "soft";

enum class ConnectionRole : std::uint16_t {
  kCommands = 0,  // The session's one ordered stream of commands.
  kBulk = 1,      // A lane: a further connection of a session, for data alone.
  kMonitor = 2,   // NVML's commands alone, and no session of CUDA.
  kAdmin = 3,     // Commands of api/admin alone, on a server's control socket.
};

// Whether the data of a lane is packed on its way.
enum class LanePacking : std::uint16_t {
  kAuto = 0,  // Where that is quicker.
  kOff = 1,
  kOn = 2,  // Wherever it makes the data smaller.
};

enum class RefusalCode : std::uint16_t {
  kUnspecified = 0,
  kVersion = 1,    // No common version.
  kMalformed = 2,  // The hello breaks a rule.
  kDenied = 3,     // The client may not use this server.
  kFull = 4,       // No room for another session.
  kNoDriver = 5,   // The server has no working driver.
  kNoSession = 6,  // The token names no session here.
  kWindows = 7,    // The address windows cannot be had.
  kGpuFull = 8,    // The GPU takes no further session now.
};

enum class WindowPurpose : std::uint32_t { kArena = 1, kVmm = 2, kPinned = 3 };

// A range of virtual addresses that must mean the same on both sides. A client lists those that
// it could reserve (several of one purpose: alternatives in order of preference); a welcome lists
// those the server took, at most one of each purpose.
struct Window {
  WindowPurpose purpose = WindowPurpose::kArena;
  std::uint32_t reserved = 0;
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const Window&, const Window&) = default;
};
static_assert(sizeof(Window) == 24);

// What the sender of the record is prepared for; the smaller of both sides' holds.
struct Limits {
  std::uint32_t frame_payload_bytes = kFramePayloadBytesMax;
  std::uint32_t calls_waiting = kCallsWaitingMax;
  std::uint64_t commands_in_flight = kCommandsInFlightMax;
  std::uint64_t bytes_in_flight = kBytesInFlightMax;
  friend bool operator==(const Limits&, const Limits&) = default;
};
static_assert(sizeof(Limits) == 24);

using SessionToken = std::array<std::uint8_t, 16>;  // All zero: none.

struct ClientHello {
  std::uint16_t version_min = kVersionMin;
  std::uint16_t version_max = kVersionMax;
  std::string name;
  std::uint32_t process_id = 0;
  std::uint32_t user_id = 0;
  ConnectionRole role = ConnectionRole::kCommands;
  SessionToken token{};
  std::vector<Window> windows;
  Limits limits;
  std::uint16_t highest_op = 0;
  std::string credential;
  bool shared_memory = false;  // Would go on in shared memory (transport/shm.h).
  std::uint16_t lane = 0;      // kBulk only, as is the next one: below kLanesMax.
  LanePacking packing = LanePacking::kAuto;
  bool recoverable = false;  // Would go on in another process if this session's is killed.
  SessionToken recovers{};   // The session that is to go on; all zero: none. With `recoverable`.
  friend bool operator==(const ClientHello&, const ClientHello&) = default;
};

struct Welcome {
  std::uint16_t version = kVersionMax;
  std::string name;
  std::uint32_t process_id = 0;  // Of the server process of this session.
  SessionToken token{};
  std::string driver;
  std::uint32_t driver_version = 0;
  std::vector<Window> windows;
  Limits limits;
  std::uint16_t highest_op = 0;
  bool shared_memory = false;    // Goes on in shared memory, which follows.
  SessionToken recovery{};       // By which the session can go on later; all zero: it cannot.
  std::uint32_t returns_ms = 0;  // How long a client waits for another server in its place.
  friend bool operator==(const Welcome&, const Welcome&) = default;
};

struct Refusal {
  RefusalCode code = RefusalCode::kUnspecified;
  std::string reason;
  friend bool operator==(const Refusal&, const Refusal&) = default;
};

// Texts longer than kHelloTextBytesMax are cut; more than kHelloWindowsMax windows is a bug.
std::vector<std::byte> encode(const ClientHello& hello);
std::vector<std::byte> encode(const Welcome& welcome);
std::vector<std::byte> encode(const Refusal& refusal);

struct HelloPrefix {
  HelloKind kind = HelloKind::kClient;
  std::uint16_t version_min = 0;
  std::uint16_t version_max = 0;
  std::uint16_t record_count = 0;
  std::uint32_t records_bytes = 0;
};

// The first kHelloPrefixBytes bytes. Refuses a wrong magic, an unknown kind, an empty version
// range and records beyond the limits. `records_bytes` more bytes complete the hello.
Result<HelloPrefix> decode_hello_prefix(Bytes bytes);

// Whole hellos, prefix included. Versions are reported, not judged: common_version() does that.
Result<ClientHello> decode_client_hello(Bytes bytes);

// A server's answer: a welcome, or the refusal as an Error whose message holds the reason
// (kDenied, but kUnsupported for RefusalCode::kVersion and kLimit for kGpuFull).
Result<Welcome> decode_answer(Bytes bytes);

// The highest version that both sides speak, or the reason why there is none.
Result<std::uint16_t> common_version(std::uint16_t offered_min, std::uint16_t offered_max);

// The smaller of each limit, refusing what is too small to work with.
Result<Limits> common_limits(const Limits& ours, const Limits& theirs);

}  // namespace flyt::wire
