#include "tests/hostile/peer.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <utility>

#include "transport/shm.h"
#include "transport/url.h"

namespace flyt::sim {
namespace {

Instant in_seconds(double seconds) {
  return system_clock().now() +
         std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

#if defined(__SANITIZE_THREAD__)
// It allows no memory where it is otherwise.
constexpr std::uint64_t kWindowBytes = 64 * kGiB;
constexpr std::uint64_t kArenaBase = 0x2000000000;
constexpr std::uint64_t kVmmBase = 0x3000000000;
constexpr std::uint64_t kPinnedBase = 0x4000000000;
#else
constexpr std::uint64_t kWindowBytes = 1024 * kGiB;
constexpr std::uint64_t kArenaBase = 0x300000000000;
constexpr std::uint64_t kVmmBase = 0x340000000000;
constexpr std::uint64_t kPinnedBase = 0x380000000000;
#endif

}  // namespace

Result<Peer> Peer::connect(const std::string& url) {
  const auto parsed = transport::parse_url(url);
  if (!parsed) return parsed.error();
  auto connection = transport::connect(*parsed, in_seconds(60));
  if (!connection) return connection.error();
  return Peer(std::move(*connection));
}

Result<Peer> Peer::greeted(const std::string& url, bool share, wire::ConnectionRole role) {
  auto peer = connect(url);
  if (!peer) return peer.error();
  wire::ClientHello hello;
  hello.name = "hostile";
  hello.process_id = static_cast<std::uint32_t>(::getpid());
  hello.role = role;
  hello.highest_op = UINT16_MAX;
  hello.shared_memory = share;
  hello.windows = {{wire::WindowPurpose::kArena, 0, kArenaBase, kWindowBytes},
                   {wire::WindowPurpose::kVmm, 0, kVmmBase, kWindowBytes},
                   {wire::WindowPurpose::kPinned, 0, kPinnedBase, kWindowBytes}};
  if (const auto sent = peer->send(wire::encode(hello)); !sent) return sent.error();
  auto welcome = peer->read_answer();
  if (!welcome) return welcome.error();
  peer->welcome_ = *welcome;
  if (!welcome->shared_memory) return peer;
  auto shared = transport::take_rings(std::move(peer->connection_), in_seconds(60));
  if (!shared) return shared.error();
  peer->connection_ = std::move(*shared);
  return peer;
}

Status Peer::send(Bytes bytes, double seconds) {
  const Instant deadline = in_seconds(seconds);
  while (!bytes.empty()) {
    const std::array<Bytes, 1> pieces{bytes};
    const auto sent = connection_->write(pieces, transport::Patience::kNow);
    if (!sent) return sent.error();
    bytes = bytes.subspan(*sent);
    if (*sent > 0 || bytes.empty()) continue;
    if (connection_->wait(transport::kWritable, deadline, nullptr) == transport::kNothing) {
      return Error{ErrorCode::kTimeout, "not taken in time"};
    }
  }
  return {};
}

Status Peer::send_header(const wire::CommandHeader& header) {
  std::array<std::byte, wire::kHeaderBytes> bytes;
  Writer writer(bytes);
  wire::encode(header, writer);
  return send(bytes);
}

Status Peer::send_command(std::uint16_t op, Bytes payload, bool wants_reply,
                          std::uint32_t context) {
  wire::CommandHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.op = op;
  header.flags = wants_reply ? wire::kWantsReply : 0;
  header.sequence = ++sequence_;
  header.context = context;
  header.thread = 1;
  if (const auto sent = send_header(header); !sent) return sent.error();
  return send(payload);
}

bool Peer::read_exactly(MutableBytes into, Instant deadline, bool& closed) {
  while (!into.empty()) {
    if (connection_->wait(transport::kReadable, deadline, nullptr) == transport::kNothing) {
      return false;
    }
    const std::array<MutableBytes, 1> pieces{into};
    const auto got = connection_->read(pieces, transport::Patience::kNow);
    if (!got) {
      closed = true;
      return false;
    }
    into = into.subspan(*got);
  }
  return true;
}

Result<wire::Welcome> Peer::read_answer() {
  bool closed = false;
  const Instant deadline = in_seconds(60);
  std::vector<std::byte> bytes(wire::kHelloPrefixBytes);
  if (!read_exactly(bytes, deadline, closed)) {
    return Error{ErrorCode::kLost, closed ? "closed without an answer" : "no answer"};
  }
  const auto prefix = wire::decode_hello_prefix(bytes);
  if (!prefix) return prefix.error();
  bytes.resize(wire::kHelloPrefixBytes + prefix->records_bytes);
  const MutableBytes records = MutableBytes(bytes).subspan(wire::kHelloPrefixBytes);
  if (!read_exactly(records, deadline, closed)) return Error{ErrorCode::kLost, "answer cut short"};
  return wire::decode_answer(bytes);
}

bool Peer::readable(double seconds) {
  return connection_->wait(transport::kReadable, in_seconds(seconds), nullptr) !=
         transport::kNothing;
}

Heard Peer::read_frame(double seconds) {
  const Instant deadline = in_seconds(seconds);
  Heard heard;
  bool closed = false;
  std::array<std::byte, wire::kHeaderBytes> head;
  if (!read_exactly(head, deadline, closed)) {
    heard.what = closed ? Heard::What::kClosed : Heard::What::kSilence;
    return heard;
  }
  Reader reader(head);
  heard.header = wire::decode_frame_header(reader);
  heard.payload.resize(heard.header.payload_bytes);
  const bool whole = read_exactly(heard.payload, deadline, closed);
  heard.what = whole ? Heard::What::kFrame : Heard::What::kClosed;
  return heard;
}

Heard Peer::read_until(wire::FrameKind kind, double seconds) {
  if (kind == wire::FrameKind::kHostCall && !host_calls_.empty()) {
    Heard first = std::move(host_calls_.front());
    host_calls_.pop_front();
    return first;
  }
  while (true) {
    Heard heard = read_frame(seconds);
    if (heard.what != Heard::What::kFrame || heard.is(kind)) return heard;
    if (heard.is(wire::FrameKind::kHostCall)) host_calls_.push_back(std::move(heard));
  }
}

Peer::Verdict Peer::verdict() {
  // A session that has ended may refuse to take the ping; its last frame can still be read.
  const auto ping = static_cast<std::uint16_t>(wire::ProtocolOp::kPing);
  const Status sent = send_command(ping, {}, true);
  while (true) {
    const Heard heard = read_frame();
    if (heard.what == Heard::What::kClosed) {
      return {State::kDied, sent ? "closed without a reason" : sent.error().message};
    }
    if (heard.what == Heard::What::kSilence) return {State::kSilent, "no answer to a ping"};
    if (heard.is(wire::FrameKind::kEnded)) return {State::kEnded, heard.text()};
    const bool answer = heard.is(wire::FrameKind::kReply);
    if (answer && heard.header.sequence == sequence_) return {State::kAlive, {}};
  }
}

Peer::Ending Peer::ended() {
  const Heard last = read_until(wire::FrameKind::kEnded);
  if (last.what == Heard::What::kSilence) return {false, "silence"};
  if (last.what == Heard::What::kClosed) return {false, "closed without a reason"};
  return {!last.payload.empty(), last.text()};
}

Peer::Ending Peer::ending() {
  Ending end = ended();
  if (end.in_order && read_frame().what != Heard::What::kClosed) {
    return {false, "open after its end"};
  }
  return end;
}

}  // namespace flyt::sim
