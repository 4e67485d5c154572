#include "wire/hello.h"

#include <algorithm>
#include <bitset>
#include <string_view>

#include "base/text.h"
#include "wire/frame.h"

namespace flyt::wire {
namespace {

Error malformed(std::string_view what) {
  return Error{ErrorCode::kInvalid, "hello: " + std::string(what)};
}

// Collects records and puts the prefix in front.
class HelloWriter {
 public:
  HelloWriter() : bytes_(kHelloPrefixBytes) {}

  template <Plain... T>
  void record(HelloRecord id, std::string_view text, const T&... values) {
    const std::size_t size = (sizeof(T) + ... + text.size());
    const std::size_t at = bytes_.size();
    bytes_.resize(at + 4 + size);
    Writer writer(MutableBytes(bytes_).subspan(at));
    writer.write(static_cast<std::uint16_t>(id));
    writer.write(static_cast<std::uint16_t>(size));
    (writer.write(values), ...);
    writer.write_bytes(bytes_of(text));
    ++count_;
  }

  // A text record, cut to what a reader accepts; an empty text is no record.
  void text(HelloRecord id, std::string_view text) {
    if (!text.empty()) record(id, text.substr(0, kHelloTextBytesMax));
  }

  void windows(const std::vector<Window>& windows) {
    FLYT_ASSERT(windows.size() <= kHelloWindowsMax);
    for (const Window& window : windows) record(HelloRecord::kWindow, {}, window);
  }

  std::vector<std::byte> finish(HelloKind kind, std::uint16_t min, std::uint16_t max) && {
    Writer writer(bytes_);
    writer.write(kHelloMagic);
    writer.write(static_cast<std::uint16_t>(kind));
    writer.write(min);
    writer.write(max);
    writer.write(count_);
    writer.write(static_cast<std::uint32_t>(bytes_.size() - kHelloPrefixBytes));
    writer.write(std::uint32_t{0});
    FLYT_ASSERT(bytes_.size() <= kHelloBytesMax);
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
  std::uint16_t count_ = 0;
};

// The union of what client hello, welcome and refusal carry.
struct Fields {
  ClientHello hello;
  std::string driver;
  std::uint32_t driver_version = 0;
  std::uint32_t returns_ms = 0;
  Refusal refusal;
};

std::string take_text(Reader& reader) {
  const std::size_t size = reader.remaining();
  if (size > kHelloTextBytesMax) reader.fail();
  return std::string(text_of(reader.take_bytes(size)));
}

void take_window(Reader& reader, Fields& fields) {
  const auto window = reader.take<Window>();
  const auto purpose = static_cast<std::uint32_t>(window.purpose);
  const bool known = purpose >= 1 && purpose <= 3;
  const bool sound = window.bytes != 0 && window.base + window.bytes > window.base &&
                     window.base % 4096 == 0 && window.bytes % 4096 == 0;
  if (fields.hello.windows.size() >= kHelloWindowsMax || !sound) reader.fail();
  // A purpose of a later version is skipped like an unknown record.
  if (reader.ok() && known) fields.hello.windows.push_back(window);
}

// Takes one record's value; false if the id is unknown.
bool take_record(std::uint16_t id, Reader& reader, Fields& fields) {
  switch (static_cast<HelloRecord>(id)) {
    case HelloRecord::kName:
      fields.hello.name = take_text(reader);
      return true;
    case HelloRecord::kProcess:
      fields.hello.process_id = reader.take<std::uint32_t>();
      fields.hello.user_id = reader.take<std::uint32_t>();
      return true;
    case HelloRecord::kWindow:
      take_window(reader, fields);
      return true;
    case HelloRecord::kSessionToken:
      fields.hello.token = reader.take<SessionToken>();
      return true;
    case HelloRecord::kRole: {
      const auto role = reader.take<std::uint16_t>();
      if (role > static_cast<std::uint16_t>(ConnectionRole::kAdmin)) reader.fail();
      fields.hello.role = static_cast<ConnectionRole>(role);
      return true;
    }
    case HelloRecord::kDriver:
      fields.driver_version = reader.take<std::uint32_t>();
      fields.driver = take_text(reader);
      return true;
    case HelloRecord::kLimits:
      fields.hello.limits = reader.take<Limits>();
      return true;
    case HelloRecord::kReason:
      fields.refusal.code = static_cast<RefusalCode>(reader.take<std::uint16_t>());
      fields.refusal.reason = take_text(reader);
      return true;
    case HelloRecord::kHighestOp:
      fields.hello.highest_op = reader.take<std::uint16_t>();
      return true;
    case HelloRecord::kCredential:
      fields.hello.credential = take_text(reader);
      return true;
    case HelloRecord::kSharedMemory:
      fields.hello.shared_memory = true;
      return true;
    case HelloRecord::kLane: {
      fields.hello.lane = reader.take<std::uint16_t>();
      const auto packing = reader.take<std::uint16_t>();
      if (fields.hello.lane >= kLanesMax) reader.fail();
      if (packing > static_cast<std::uint16_t>(LanePacking::kOn)) reader.fail();
      fields.hello.packing = static_cast<LanePacking>(packing);
      return true;
    }
    case HelloRecord::kRecovery:
      fields.hello.recovers = reader.take<SessionToken>();
      fields.hello.recoverable = true;
      return true;
    case HelloRecord::kReturns:
      reader.read(fields.returns_ms);
      return true;
  }
  return false;
}

constexpr std::uint16_t kHighestRecord = 14;

Result<Fields> take_records(const HelloPrefix& prefix, Bytes bytes) {
  Fields fields;
  fields.hello.version_min = prefix.version_min;
  fields.hello.version_max = prefix.version_max;
  std::bitset<kHighestRecord + 1> seen;
  Reader reader(bytes);
  for (std::uint32_t i = 0; i < prefix.record_count; ++i) {
    const auto id = reader.take<std::uint16_t>();
    const auto length = reader.take<std::uint16_t>();
    Reader value(reader.take_bytes(length));
    if (!reader.ok()) return malformed("a record reaches beyond the end");
    if (!take_record(id, value, fields)) {
      if (id >= kMustUnderstand) {
        return Error{ErrorCode::kUnsupported,
                     "hello: record " + std::to_string(id) + " must be understood and is not"};
      }
      continue;
    }
    if (!value.finished()) return malformed("record " + std::to_string(id) + " is malformed");
    if (seen[id] && static_cast<HelloRecord>(id) != HelloRecord::kWindow) {
      return malformed("record " + std::to_string(id) + " comes twice");
    }
    seen.set(id);
  }
  if (!reader.finished()) return malformed("bytes behind the last record");
  return fields;
}

// The prefix of a complete hello whose length is right.
Result<HelloPrefix> whole_prefix(Bytes bytes) {
  Result<HelloPrefix> prefix = decode_hello_prefix(bytes);
  if (!prefix) return prefix;
  if (bytes.size() != kHelloPrefixBytes + prefix->records_bytes) {
    return malformed("length differs from what the prefix says");
  }
  return prefix;
}

Welcome welcome_of(Fields fields) {
  return Welcome{.version = fields.hello.version_max,
                 .name = std::move(fields.hello.name),
                 .process_id = fields.hello.process_id,
                 .token = fields.hello.token,
                 .driver = std::move(fields.driver),
                 .driver_version = fields.driver_version,
                 .windows = std::move(fields.hello.windows),
                 .limits = fields.hello.limits,
                 .highest_op = fields.hello.highest_op,
                 .shared_memory = fields.hello.shared_memory,
                 .recovery = fields.hello.recovers,
                 .returns_ms = fields.returns_ms};
}

bool one_of_each_purpose(const std::vector<Window>& windows) {
  std::bitset<4> seen;
  for (const Window& window : windows) {
    const auto purpose = static_cast<std::uint32_t>(window.purpose);
    if (seen[purpose]) return false;
    seen.set(purpose);
  }
  return true;
}

}  // namespace

std::vector<std::byte> encode(const ClientHello& hello) {
  HelloWriter out;
  out.text(HelloRecord::kName, hello.name);
  out.record(HelloRecord::kProcess, {}, hello.process_id, hello.user_id);
  out.record(HelloRecord::kRole, {}, static_cast<std::uint16_t>(hello.role));
  out.record(HelloRecord::kSessionToken, {}, hello.token);
  out.windows(hello.windows);
  out.record(HelloRecord::kLimits, {}, hello.limits);
  out.record(HelloRecord::kHighestOp, {}, hello.highest_op);
  out.text(HelloRecord::kCredential, hello.credential);
  if (hello.shared_memory) out.record(HelloRecord::kSharedMemory, {});
  if (hello.recoverable) out.record(HelloRecord::kRecovery, {}, hello.recovers);
  if (hello.role == ConnectionRole::kBulk) {
    out.record(HelloRecord::kLane, {}, hello.lane, static_cast<std::uint16_t>(hello.packing));
  }
  return std::move(out).finish(HelloKind::kClient, hello.version_min, hello.version_max);
}

std::vector<std::byte> encode(const Welcome& welcome) {
  HelloWriter out;
  out.text(HelloRecord::kName, welcome.name);
  out.record(HelloRecord::kProcess, {}, welcome.process_id, std::uint32_t{0});
  out.record(HelloRecord::kSessionToken, {}, welcome.token);
  out.record(HelloRecord::kDriver, std::string_view(welcome.driver).substr(0, kHelloTextBytesMax),
             welcome.driver_version);
  out.windows(welcome.windows);
  out.record(HelloRecord::kLimits, {}, welcome.limits);
  out.record(HelloRecord::kHighestOp, {}, welcome.highest_op);
  if (welcome.shared_memory) out.record(HelloRecord::kSharedMemory, {});
  if (welcome.recovery != SessionToken{}) out.record(HelloRecord::kRecovery, {}, welcome.recovery);
  if (welcome.returns_ms != 0) out.record(HelloRecord::kReturns, {}, welcome.returns_ms);
  return std::move(out).finish(HelloKind::kWelcome, welcome.version, welcome.version);
}

std::vector<std::byte> encode(const Refusal& refusal) {
  HelloWriter out;
  out.record(HelloRecord::kReason, std::string_view(refusal.reason).substr(0, kHelloTextBytesMax),
             static_cast<std::uint16_t>(refusal.code));
  return std::move(out).finish(HelloKind::kRefusal, kVersionMin, kVersionMax);
}

Result<HelloPrefix> decode_hello_prefix(Bytes bytes) {
  if (bytes.size() < kHelloPrefixBytes) return malformed("truncated");
  Reader reader(bytes);
  if (reader.take<std::array<std::uint8_t, 8>>() != kHelloMagic) {
    return malformed("this is not the Flyt protocol");
  }
  HelloPrefix prefix;
  const auto kind = reader.take<std::uint16_t>();
  reader.read(prefix.version_min);
  reader.read(prefix.version_max);
  reader.read(prefix.record_count);
  reader.read(prefix.records_bytes);
  if (kind < 1 || kind > 3) return malformed("unknown kind " + std::to_string(kind));
  prefix.kind = static_cast<HelloKind>(kind);
  if (prefix.version_min > prefix.version_max) return malformed("empty version range");
  if (prefix.record_count > kHelloRecordCountMax || prefix.records_bytes > kHelloRecordsBytesMax) {
    return Error{ErrorCode::kLimit, "hello: records exceed the limit"};
  }
  return prefix;
}

Result<ClientHello> decode_client_hello(Bytes bytes) {
  Result<HelloPrefix> prefix = whole_prefix(bytes);
  if (!prefix) return std::move(prefix).error();
  if (prefix->kind != HelloKind::kClient) return malformed("not a client's");
  Result<Fields> fields = take_records(*prefix, bytes.subspan(kHelloPrefixBytes));
  if (!fields) return std::move(fields).error();
  return std::move(fields->hello);
}

// Also of codes that only later servers know.
ErrorCode error_code(RefusalCode code) {
  if (code == RefusalCode::kVersion) return ErrorCode::kUnsupported;
  return code == RefusalCode::kGpuFull ? ErrorCode::kLimit : ErrorCode::kDenied;
}

Result<Welcome> decode_answer(Bytes bytes) {
  Result<HelloPrefix> prefix = whole_prefix(bytes);
  if (!prefix) return std::move(prefix).error();
  if (prefix->kind == HelloKind::kClient) return malformed("a client's where an answer was due");
  Result<Fields> fields = take_records(*prefix, bytes.subspan(kHelloPrefixBytes));
  if (!fields) return std::move(fields).error();
  if (prefix->kind == HelloKind::kRefusal) {
    return Error{
        error_code(fields->refusal.code),
        "refused by the server: " + plain_text(fields->refusal.reason, kHelloTextBytesMax)};
  }
  if (prefix->version_min != prefix->version_max) return malformed("welcome without one version");
  if (!one_of_each_purpose(fields->hello.windows))
    return malformed("welcome with two like windows");
  return welcome_of(std::move(*fields));
}

Result<std::uint16_t> common_version(std::uint16_t offered_min, std::uint16_t offered_max) {
  const std::uint16_t low = std::max(offered_min, kVersionMin);
  const std::uint16_t high = std::min(offered_max, kVersionMax);
  if (low <= high) return high;
  return Error{ErrorCode::kUnsupported, "protocol versions " + std::to_string(offered_min) +
                                            " to " + std::to_string(offered_max) + " offered, " +
                                            std::to_string(kVersionMin) + " to " +
                                            std::to_string(kVersionMax) + " spoken here"};
}

Result<Limits> common_limits(const Limits& ours, const Limits& theirs) {
  Limits limits;
  limits.frame_payload_bytes = std::min(ours.frame_payload_bytes, theirs.frame_payload_bytes);
  limits.calls_waiting = std::min(ours.calls_waiting, theirs.calls_waiting);
  limits.commands_in_flight = std::min(ours.commands_in_flight, theirs.commands_in_flight);
  limits.bytes_in_flight = std::min(ours.bytes_in_flight, theirs.bytes_in_flight);
  if (limits.frame_payload_bytes < kFramePayloadBytesMax || limits.calls_waiting == 0 ||
      limits.commands_in_flight < 8 || limits.bytes_in_flight < 8 * kFrameBytesMax) {
    return Error{ErrorCode::kLimit, "hello: limits too small to work with"};
  }
  return limits;
}

}  // namespace flyt::wire
