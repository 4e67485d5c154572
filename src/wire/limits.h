// Limits: every bound of the wire protocol, by name. Checked where written and where read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace flyt::wire {

// The protocol versions that this build speaks. A hello offers a range, the answer picks one.
inline constexpr std::uint16_t kVersionMin = 1;
inline constexpr std::uint16_t kVersionMax = 1;

// Hello: feature records behind the fixed prefix, together and each.
inline constexpr std::size_t kHelloRecordsBytesMax = 16 * kKiB;
inline constexpr std::size_t kHelloRecordCountMax = 256;
inline constexpr std::size_t kHelloTextBytesMax = 1024;
inline constexpr std::size_t kHelloWindowsMax = 16;

// Payload of any frame, either direction, without its header.
inline constexpr std::uint32_t kFramePayloadBytesMax = 1 * kMiB;

// Payload of a command that is encoded in place (Channel::begin). Longer data goes as bulk.
inline constexpr std::uint32_t kPostPayloadBytesMax = 256 * kKiB;

// User data of one bulk command, and the command's own fields before it.
inline constexpr std::uint32_t kBulkBytesMax = 256 * kKiB;
inline constexpr std::uint32_t kBulkFieldsBytesMax = 4 * kKiB;

// Data of one host_data frame.
inline constexpr std::uint32_t kHostDataBytesMax = 1 * kMiB;

// Lanes, the further connections of a session for data alone: how many, and the data of one block.
inline constexpr std::uint16_t kLanesMax = 16;
inline constexpr std::uint32_t kLaneBlockBytesMax = 1 * kMiB;
// So many blocks whose copies the GPU has not come to the server keeps, of each lane its part of
// them.
inline constexpr unsigned kLaneBlocksKept = 96;

// Credits: what a client may have sent beyond the last acknowledgement, counted in commands and in
// frame bytes (headers included). The server acknowledges at least every eighth of either.
inline constexpr std::uint64_t kCommandsInFlightMax = 16 * 1024;
inline constexpr std::uint64_t kBytesInFlightMax = 64 * kMiB;
inline constexpr std::uint64_t kCommandsPerAckMax = kCommandsInFlightMax / 8;
inline constexpr std::uint64_t kBytesPerAckMax = kBytesInFlightMax / 8;

// Calls of one session that may wait for replies at once.
inline constexpr std::uint32_t kCallsWaitingMax = 4096;

// Watches of one session that have not been told complete: events and streams that the client asked
// about and that were not done.
inline constexpr std::size_t kWatchesMax = 64;

// Host functions and callbacks of one session that its streams and graphs may have come to, and
// that the client has not said to be done.
inline constexpr std::size_t kHostCallsMax = 64 * 1024;

// Text of an `ended` frame or a refusal.
inline constexpr std::size_t kReasonBytesMax = 1024;

// Op numbers below this one belong to the protocol itself (frame.h, ProtocolOp).
inline constexpr std::uint16_t kFirstApiOp = 16;

static_assert(kPostPayloadBytesMax <= kFramePayloadBytesMax);
static_assert(kBulkBytesMax + kBulkFieldsBytesMax <= kFramePayloadBytesMax);
static_assert(kHostDataBytesMax <= kFramePayloadBytesMax);
static_assert(kFramePayloadBytesMax + 24 < kBytesPerAckMax);

}  // namespace flyt::wire
