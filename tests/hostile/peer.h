// Peer: the client's half of the protocol by hand, able to break every rule of it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "transport/transport.h"
#include "wire/frame.h"
#include "wire/hello.h"

namespace flyt::sim {

// What a read found.
struct Heard {
  enum class What { kFrame, kClosed, kSilence };
  What what = What::kSilence;
  wire::FrameHeader header;
  std::vector<std::byte> payload;

  bool is(wire::FrameKind kind) const {
    return what == What::kFrame && header.kind == static_cast<std::uint16_t>(kind);
  }
  std::string text() const { return std::string(text_of(payload)); }
};

// One connection. Not thread-safe.
class Peer {
 public:
  // Connects and sends nothing.
  static Result<Peer> connect(const std::string& url);
  // Connects and is welcomed. `share`: the session goes on in shared memory.
  static Result<Peer> greeted(const std::string& url, bool share = false,
                              wire::ConnectionRole role = wire::ConnectionRole::kCommands);

  // kTimeout: not all was taken in time.
  Status send(Bytes bytes, double seconds = 60);
  // A command with the next sequence number.
  Status send_command(std::uint16_t op, Bytes payload, bool wants_reply, std::uint32_t context = 0);
  Status send_header(const wire::CommandHeader& header);

  // Reads the answer to the hello.
  Result<wire::Welcome> read_answer();
  // Whether the next frame has begun to arrive, or the end has, by then.
  bool readable(double seconds);
  // The next frame.
  Heard read_frame(double seconds = 60);
  // Frames until one of `kind`; frames of other kinds are dropped, but for host calls, which may
  // come before the answer to what led to them and are there to be read later. Stops at a close or
  // silence.
  Heard read_until(wire::FrameKind kind, double seconds = 60);
  // What a ping finds out: answered, ended by the server with a reason, or neither.
  enum class State { kAlive, kEnded, kDied, kSilent };
  struct Verdict {
    State state = State::kSilent;
    std::string reason;
  };
  Verdict verdict();
  bool alive() { return verdict().state == State::kAlive; }
  // After a broken rule: the server says `ended` with a reason, then closes. The reason, or what
  // happened instead.
  struct Ending {
    bool in_order = false;
    std::string reason;
  };
  Ending ending();
  // Only the first half: the frame, without waiting for the close.
  Ending ended();

  std::uint64_t next_sequence() const { return sequence_ + 1; }
  const wire::Welcome& welcome() const { return welcome_; }

 private:
  explicit Peer(std::unique_ptr<transport::Connection> connection)
      : connection_(std::move(connection)) {}
  // True if `into` is full.
  bool read_exactly(MutableBytes into, Instant deadline, bool& closed);

  std::unique_ptr<transport::Connection> connection_;
  std::uint64_t sequence_ = 0;
  std::deque<Heard> host_calls_;  // That nobody has asked for yet.
  wire::Welcome welcome_;
};

}  // namespace flyt::sim
