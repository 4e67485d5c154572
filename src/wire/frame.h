// Frames: what follows the hello. A 24-byte header, then `payload_bytes` bytes; little-endian, no
// padding between frames. The layouts below never change; docs/protocol.md is their specification.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "wire/limits.h"

namespace flyt::wire {

// Ops of the protocol itself; the API's own start at kFirstApiOp.
enum class ProtocolOp : std::uint16_t {
  kGoodbye = 1,  // Client to server, last command: the client leaves in order.
  kPing = 2,     // Wants a reply, does nothing else.
};

// Client to server.
enum CommandFlags : std::uint16_t {
  kWantsReply = 1,  // Exactly one reply frame answers this command.
};
inline constexpr std::uint16_t kCommandFlagsKnown = kWantsReply;

// The number of the client's thread that runs host functions. What it sends may overtake what other
// threads have sent.
inline constexpr std::uint32_t kHostCallThread = 0xffffffff;

struct CommandHeader {
  std::uint32_t payload_bytes = 0;
  std::uint16_t op = 0;
  std::uint16_t flags = 0;
  std::uint64_t sequence = 0;  // 1 for the first command of a session, then one more each.
  std::uint32_t context = 0;   // Handle index of the calling thread's current context; 0: none.
  std::uint32_t thread = 0;    // The client's number of the calling thread.
};
static_assert(sizeof(CommandHeader) == 24 && alignof(CommandHeader) == 8);

// Server to client.
enum class FrameKind : std::uint16_t {
  // sequence: the command answered. Payload: ReplyPrefix, then the command's reply fields.
  kReply = 1,
  // sequence: all commands up to it have been taken off the stream and executed or handed on;
  // argument: the frame bytes of all of them. Returns credits.
  kAck = 2,
  // sequence: a delivery id that the client chose; argument: offset of the payload in it.
  kHostData = 3,
  // sequence: a delivery id; what has not arrived of it never will. No payload.
  kHostDataDropped = 4,
  // sequence: the command that enqueued it; argument: the client's token of the callback.
  kHostCall = 5,
  // argument: 1 stdout, 2 stderr. Payload: text printed by device code.
  kOutput = 6,
  // The last frame of a session that the server gives up. sequence: the last command accepted;
  // argument: EndedCode. Payload: the reason, text.
  kEnded = 7,
  // sequence: the client's token of a watch, which ends with it; argument: 0, what was watched is
  // done and there is nothing else to tell about it; else the client asks. No payload.
  kCompleted = 8,
  // Payload: memory_changes.h. What device work has written to memory that both sides hold.
  kMemory = 9,
  // sequence: a delivery id; argument: offset in it. Payload: u64, how many bytes from there on
  // come
  // by lanes (lane.h).
  kHostDataByLane = 10,
};
inline constexpr std::uint16_t kFrameKindMax = 10;

std::string_view to_string(FrameKind kind);

enum class EndedCode : std::uint64_t {
  kProtocolViolation = 1,  // The client broke a rule of this protocol.
  kServerFault = 2,        // The server cannot go on: its driver died, for example.
  kShutdown = 3,           // The server is being stopped.
  kLimit = 4,              // The session asked for more than it may have.
};

struct FrameHeader {
  std::uint32_t payload_bytes = 0;
  std::uint16_t kind = 0;   // FrameKind
  std::uint16_t flags = 0;  // None are defined: zero.
  std::uint64_t sequence = 0;
  std::uint64_t argument = 0;
};
static_assert(sizeof(FrameHeader) == 24 && alignof(FrameHeader) == 8);

inline constexpr std::size_t kHeaderBytes = 24;
inline constexpr std::size_t kFrameBytesMax = kHeaderBytes + kFramePayloadBytesMax;

// The head of every reply payload. `result` is the answered command's own CUresult. posted_error
// is the CUresult of the earliest posted command that failed since the last reply that told one,
// 0 if none; posted_error_sequence names that command.
struct ReplyPrefix {
  std::uint32_t result = 0;
  std::uint32_t posted_error = 0;
  std::uint64_t posted_error_sequence = 0;
};
static_assert(sizeof(ReplyPrefix) == 16);

inline constexpr std::uint32_t kReplyFieldsBytesMax = kFramePayloadBytesMax - sizeof(ReplyPrefix);

inline void encode(const CommandHeader& header, Writer& writer) { writer.write(header); }
inline void encode(const FrameHeader& header, Writer& writer) { writer.write(header); }
inline void encode(const ReplyPrefix& prefix, Writer& writer) { writer.write(prefix); }

// Reads a header and leaves judging it to problem_with().
inline CommandHeader decode_command_header(Reader& reader) { return reader.take<CommandHeader>(); }
inline FrameHeader decode_frame_header(Reader& reader) { return reader.take<FrameHeader>(); }
inline ReplyPrefix decode_reply_prefix(Reader& reader) { return reader.take<ReplyPrefix>(); }

// Why a header is refused whatever the state of the session, empty if it is not. `expected` is
// the sequence number that must come next.
std::string_view problem_with(const CommandHeader& header, std::uint64_t expected);
std::string_view problem_with(const FrameHeader& header);

}  // namespace flyt::wire
