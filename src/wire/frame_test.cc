#include "wire/frame.h"

#include <gtest/gtest.h>

#include <array>

#include "wire/handle.h"

namespace flyt::wire {
namespace {

CommandHeader command() { return {.payload_bytes = 8, .op = kFirstApiOp, .sequence = 5}; }

TEST(CommandHeader, LiesOnTheWireAsSpecified) {
  std::array<std::byte, kHeaderBytes> bytes{};
  Writer writer(bytes);
  encode(CommandHeader{.payload_bytes = 0x01020304,
                       .op = 0x0506,
                       .flags = kWantsReply,
                       .sequence = 0x0708090a0b0c0d0e,
                       .context = 0x0f101112,
                       .thread = 0x13141516},
         writer);
  const std::array<std::uint8_t, kHeaderBytes> expected{
      0x04, 0x03, 0x02, 0x01, 0x06, 0x05, 0x01, 0x00, 0x0e, 0x0d, 0x0c, 0x0b,
      0x0a, 0x09, 0x08, 0x07, 0x12, 0x11, 0x10, 0x0f, 0x16, 0x15, 0x14, 0x13};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(std::to_integer<std::uint8_t>(bytes[i]), expected[i]) << i;
  }
}

TEST(CommandHeader, IsAcceptedWhenInSequence) {
  EXPECT_EQ(problem_with(command(), 5), "");
  CommandHeader ping{.op = 2, .flags = kWantsReply, .sequence = 1};
  EXPECT_EQ(problem_with(ping, 1), "");
  CommandHeader goodbye{.op = 1, .sequence = 1};
  EXPECT_EQ(problem_with(goodbye, 1), "");
}

TEST(CommandHeader, IsRefusedTwiceOrOutOfSequence) {
  EXPECT_NE(problem_with(command(), 4), "");
  EXPECT_NE(problem_with(command(), 6), "");
}

TEST(CommandHeader, IsRefusedWithUnknownFlagsImpossibleContextOrTooMuchPayload) {
  CommandHeader header = command();
  header.flags = 2;
  EXPECT_NE(problem_with(header, 5), "");
  header = command();
  header.context = kHandleIndexMax + 1;
  EXPECT_NE(problem_with(header, 5), "");
  header = command();
  header.payload_bytes = kFramePayloadBytesMax;
  EXPECT_EQ(problem_with(header, 5), "");
  header.payload_bytes = kFramePayloadBytesMax + 1;
  EXPECT_NE(problem_with(header, 5), "");
}

TEST(CommandHeader, IsRefusedWithAProtocolOpThatIsUnknownOrMisused) {
  for (const std::uint16_t op : {0, 3, 15}) {
    EXPECT_NE(problem_with(CommandHeader{.op = op, .sequence = 1}, 1), "") << op;
  }
  EXPECT_NE(problem_with(CommandHeader{.payload_bytes = 1, .op = 1, .sequence = 1}, 1), "");
  EXPECT_NE(problem_with(CommandHeader{.op = 1, .flags = kWantsReply, .sequence = 1}, 1), "");
  EXPECT_NE(problem_with(CommandHeader{.op = 2, .sequence = 1}, 1), "");
}

TEST(FrameHeader, IsAcceptedForEveryKnownKindAndNoOther) {
  for (std::uint32_t kind = 0; kind <= UINT16_MAX; ++kind) {
    const std::uint32_t bytes = kind == 1    ? sizeof(ReplyPrefix)
                                : kind == 10 ? sizeof(std::uint64_t)
                                             : 0;
    const FrameHeader header{.payload_bytes = bytes, .kind = static_cast<std::uint16_t>(kind)};
    EXPECT_EQ(problem_with(header).empty(), kind >= 1 && kind <= kFrameKindMax) << kind;
    EXPECT_EQ(to_string(static_cast<FrameKind>(kind)) == "unknown",
              kind == 0 || kind > kFrameKindMax);
  }
}

TEST(FrameHeader, IsRefusedWithFlagsOrAPayloadThatItsKindDoesNotHave) {
  const auto header = [](FrameKind kind, std::uint32_t bytes) {
    return FrameHeader{.payload_bytes = bytes, .kind = static_cast<std::uint16_t>(kind)};
  };
  FrameHeader flagged = header(FrameKind::kAck, 0);
  flagged.flags = 1;
  EXPECT_NE(problem_with(flagged), "");
  EXPECT_NE(problem_with(header(FrameKind::kReply, sizeof(ReplyPrefix) - 1)), "");
  EXPECT_NE(problem_with(header(FrameKind::kReply, kFramePayloadBytesMax + 1)), "");
  EXPECT_NE(problem_with(header(FrameKind::kAck, 1)), "");
  EXPECT_NE(problem_with(header(FrameKind::kHostDataDropped, 1)), "");
  EXPECT_NE(problem_with(header(FrameKind::kCompleted, 1)), "");
  EXPECT_NE(problem_with(header(FrameKind::kHostDataByLane, 7)), "");
  EXPECT_NE(problem_with(header(FrameKind::kHostDataByLane, 9)), "");
  EXPECT_NE(problem_with(header(FrameKind::kHostData, kHostDataBytesMax + 1)), "");
  EXPECT_NE(problem_with(header(FrameKind::kEnded, kReasonBytesMax + 1)), "");
  EXPECT_EQ(problem_with(header(FrameKind::kOutput, kFramePayloadBytesMax)), "");
}

}  // namespace
}  // namespace flyt::wire
