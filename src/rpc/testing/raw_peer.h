// For tests: one end of a session that says exactly the bytes it is told, right or wrong.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "transport/transport.h"
#include "wire/frame.h"
#include "wire/hello.h"

namespace flyt::rpc::testing {

struct RawFrame {
  wire::FrameHeader header;
  std::string payload;
};

struct RawCommand {
  wire::CommandHeader header;
  std::string payload;
};

// Blocks where it reads; nothing here has a deadline but the test's own.
class RawPeer {
 public:
  explicit RawPeer(std::unique_ptr<transport::Connection> connection)
      : connection_(std::move(connection)) {}

  // False once the other end does not take bytes any more.
  bool send(Bytes bytes);
  bool send(const wire::CommandHeader& header, std::string_view payload = {});
  bool send(const wire::FrameHeader& header, std::string_view payload = {});

  // `size` bytes, or nothing if the stream ended before.
  std::optional<std::string> receive(std::size_t size);
  std::optional<RawFrame> receive_frame();
  std::optional<RawCommand> receive_command();
  // A whole hello of any kind.
  std::optional<std::vector<std::byte>> receive_hello();
  // Nothing more comes.
  bool at_end() { return !receive(1).has_value(); }

  void hang_up() { connection_->shut_down(); }
  transport::Connection& connection() { return *connection_; }

 private:
  std::unique_ptr<transport::Connection> connection_;
};

// A reply frame's payload: the prefix, then the fields.
std::string reply_payload(std::uint32_t result, std::string_view fields = {});

inline wire::FrameHeader frame_of(wire::FrameKind kind, std::uint64_t sequence,
                                  std::uint64_t argument = 0) {
  return {.kind = static_cast<std::uint16_t>(kind), .sequence = sequence, .argument = argument};
}

}  // namespace flyt::rpc::testing
