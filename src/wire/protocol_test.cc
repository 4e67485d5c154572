// The hex examples of docs/protocol.md are what the code writes.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "wire/frame.h"
#include "wire/hello.h"
#include "wire/lane.h"

namespace flyt::wire {
namespace {

// The bytes of each block "```hex NAME": pairs of hex digits up to a '#' in each line.
std::map<std::string, std::string> blocks_of(const char* path) {
  std::ifstream file(path);
  std::map<std::string, std::string> blocks;
  std::string* block = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      block = line.starts_with("```hex ") ? &blocks[line.substr(7)] : nullptr;
      continue;
    }
    if (block == nullptr) continue;
    std::istringstream pairs(line.substr(0, line.find('#')));
    for (std::string pair; pairs >> pair;) {
      block->push_back(static_cast<char>(std::stoi(pair, nullptr, 16)));
    }
  }
  return blocks;
}

std::string text(const std::vector<std::byte>& bytes) { return std::string(text_of(bytes)); }

template <class Header>
std::string frame(const Header& header, std::string_view payload = {}) {
  std::string bytes(kHeaderBytes + payload.size(), '\0');
  Writer writer(mutable_bytes_at(bytes.data(), bytes.size()));
  encode(header, writer);
  writer.write_bytes(bytes_of(payload));
  return bytes;
}

std::string block(const LaneBlock& head, std::string_view data) {
  std::string bytes(kLaneBlockHeaderBytes + data.size(), '\0');
  Writer writer(mutable_bytes_at(bytes.data(), bytes.size()));
  encode(head, writer);
  writer.write_bytes(bytes_of(data));
  return bytes;
}

TEST(ProtocolDocument, ShowsTheBytesThatTheCodeWrites) {
  const SessionToken token{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  const std::map<std::string, std::string> expected{
      {"client-hello",
       text(encode(ClientHello{.name = "demo", .process_id = 4711, .user_id = 1000}))},
      {"welcome", text(encode(Welcome{.name = "gpu",
                                      .process_id = 99,
                                      .token = token,
                                      .driver = std::string(kSoftDriver),
                                      .driver_version = 13000}))},
      {"refusal", text(encode(Refusal{RefusalCode::kFull, "no room"}))},
      {"ping", frame(CommandHeader{.op = 2, .flags = kWantsReply, .sequence = 1, .thread = 7})},
      {"ping-reply", frame(FrameHeader{.payload_bytes = sizeof(ReplyPrefix),
                                       .kind = static_cast<std::uint16_t>(FrameKind::kReply),
                                       .sequence = 1},
                           std::string(sizeof(ReplyPrefix), '\0'))},
      {"post",
       frame(
           CommandHeader{
               .payload_bytes = 3, .op = kFirstApiOp, .sequence = 2, .context = 1, .thread = 7},
           "abc")},
      {"goodbye", frame(CommandHeader{.op = 1, .sequence = 3, .thread = 7})},
      {"ack", frame(FrameHeader{.kind = static_cast<std::uint16_t>(FrameKind::kAck),
                                .sequence = 2,
                                .argument = 24 + 27})},
      {"host-data", frame(FrameHeader{.payload_bytes = 4,
                                      .kind = static_cast<std::uint16_t>(FrameKind::kHostData),
                                      .sequence = 5},
                          "data")},
      {"lane-block", block(LaneBlock{.sent_bytes = 4, .bytes = 4, .name = 5}, "data")},
      {"host-data-by-lane",
       frame(FrameHeader{.payload_bytes = 8,
                         .kind = static_cast<std::uint16_t>(FrameKind::kHostDataByLane),
                         .sequence = 5},
             std::string_view("\4\0\0\0\0\0\0\0", 8))},
      {"ended",
       frame(FrameHeader{.payload_bytes = 23,
                         .kind = static_cast<std::uint16_t>(FrameKind::kEnded),
                         .sequence = 2,
                         .argument = static_cast<std::uint64_t>(EndedCode::kProtocolViolation)},
             problem_with(CommandHeader{.op = 1, .sequence = 4}, 3))}};
  EXPECT_EQ(blocks_of(FLYT_PROTOCOL_DOCUMENT), expected);
}

}  // namespace
}  // namespace flyt::wire
