#include "wire/frame.h"

#include "wire/handle.h"
#include "wire/memory_changes.h"

namespace flyt::wire {

std::string_view to_string(FrameKind kind) {
  switch (kind) {
    case FrameKind::kReply:
      return "reply";
    case FrameKind::kAck:
      return "ack";
    case FrameKind::kHostData:
      return "host data";
    case FrameKind::kHostDataDropped:
      return "host data dropped";
    case FrameKind::kHostCall:
      return "host call";
    case FrameKind::kOutput:
      return "output";
    case FrameKind::kEnded:
      return "ended";
    case FrameKind::kCompleted:
      return "completed";
    case FrameKind::kMemory:
      return "memory";
    case FrameKind::kHostDataByLane:
      return "host data by lane";
  }
  return "unknown";
}

std::string_view problem_with(const CommandHeader& header, std::uint64_t expected) {
  if (header.payload_bytes > kFramePayloadBytesMax) return "command payload exceeds the limit";
  if (header.sequence != expected) return "command out of sequence";
  if ((header.flags & ~kCommandFlagsKnown) != 0) return "command with unknown flags";
  if (header.context > kHandleIndexMax) return "command with an impossible context index";
  if (header.op >= kFirstApiOp) return {};

  const bool wants_reply = (header.flags & kWantsReply) != 0;
  switch (static_cast<ProtocolOp>(header.op)) {
    case ProtocolOp::kGoodbye:
      return header.payload_bytes != 0 || wants_reply ? "malformed goodbye" : "";
    case ProtocolOp::kPing:
      return header.payload_bytes != 0 || !wants_reply ? "malformed ping" : "";
  }
  return "command with an unknown protocol op";
}

std::string_view problem_with(const FrameHeader& header) {
  if (header.payload_bytes > kFramePayloadBytesMax) return "frame payload exceeds the limit";
  if (header.flags != 0) return "frame with unknown flags";
  switch (static_cast<FrameKind>(header.kind)) {
    case FrameKind::kReply:
      return header.payload_bytes < sizeof(ReplyPrefix) ? "reply without its prefix" : "";
    case FrameKind::kHostData:
      return header.payload_bytes > kHostDataBytesMax ? "host data exceeds the limit" : "";
    case FrameKind::kAck:
    case FrameKind::kHostDataDropped:
    case FrameKind::kCompleted:
      return header.payload_bytes != 0 ? "payload in a frame that has none" : "";
    case FrameKind::kEnded:
      return header.payload_bytes > kReasonBytesMax ? "reason exceeds the limit" : "";
    case FrameKind::kMemory:
      return header.payload_bytes > kMemoryChangesBytesMax ? "memory exceeds the limit" : "";
    case FrameKind::kHostDataByLane:
      return header.payload_bytes != sizeof(std::uint64_t) ? "malformed host data by lane" : "";
    case FrameKind::kHostCall:
    case FrameKind::kOutput:
      return {};
  }
  return "frame of an unknown kind";
}

}  // namespace flyt::wire
