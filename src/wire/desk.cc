#include "wire/desk.h"

#include <algorithm>

namespace flyt::wire {
namespace {

struct Header {
  std::array<std::uint8_t, 8> magic;
  std::uint16_t version;
  DeskKind kind;
  std::uint32_t body_bytes;
};
static_assert(sizeof(Header) == kDeskHeaderBytes);

std::string_view cut(std::string_view text) { return text.substr(0, kDeskTextBytesMax); }
std::size_t size_of(std::string_view text) { return 2 + cut(text).size(); }

void write_text(Writer& writer, std::string_view text) {
  writer.write(static_cast<std::uint16_t>(cut(text).size()));
  writer.write_bytes(bytes_of(cut(text)));
}

std::string read_text(Reader& reader) {
  const auto size = reader.take<std::uint16_t>();
  if (size > kDeskTextBytesMax) reader.fail();
  return std::string(text_of(reader.take_bytes(size)));
}

std::size_t body_bytes(const DeskAsk& ask) { return 2 + 4 + size_of(ask.program); }
std::size_t body_bytes(const DeskWaiting& waiting) { return 4 + size_of(waiting.why); }
std::size_t body_bytes(const DeskGranted& granted) {
  return 8 + size_of(granted.url) + size_of(granted.token);
}
std::size_t body_bytes(const DeskRefused& refused) { return 2 + size_of(refused.why); }
std::size_t body_bytes(const DeskStatus& status) { return size_of(status.json); }

DeskKind write_body(Writer& writer, const DeskAsk& ask) {
  writer.write(ask.purpose);
  writer.write(ask.process_id);
  write_text(writer, ask.program);
  return DeskKind::kAsk;
}
DeskKind write_body(Writer& writer, const DeskWaiting& waiting) {
  writer.write(waiting.ahead);
  write_text(writer, waiting.why);
  return DeskKind::kWaiting;
}
DeskKind write_body(Writer& writer, const DeskGranted& granted) {
  writer.write(granted.generation);
  write_text(writer, granted.url);
  write_text(writer, granted.token);
  return DeskKind::kGranted;
}
DeskKind write_body(Writer& writer, const DeskRefused& refused) {
  writer.write(static_cast<std::uint16_t>(refused.code));
  write_text(writer, refused.why);
  return DeskKind::kRefused;
}
DeskKind write_body(Writer& writer, const DeskStatus& status) {
  write_text(writer, status.json);
  return DeskKind::kStatus;
}

// What is not in the list makes the reader fail.
std::optional<DeskMessage> read_body(DeskKind kind, Reader& reader) {
  switch (kind) {
    case DeskKind::kAsk: {
      DeskAsk ask;
      ask.purpose = reader.take<DeskPurpose>();
      if (ask.purpose < DeskPurpose::kUse || ask.purpose > DeskPurpose::kAgain) reader.fail();
      ask.process_id = reader.take<std::uint32_t>();
      ask.program = read_text(reader);
      return ask;
    }
    case DeskKind::kWaiting: {
      DeskWaiting waiting;
      waiting.ahead = reader.take<std::uint32_t>();
      waiting.why = read_text(reader);
      return waiting;
    }
    case DeskKind::kGranted: {
      DeskGranted granted;
      granted.generation = reader.take<std::uint64_t>();
      granted.url = read_text(reader);
      granted.token = read_text(reader);
      if (granted.url.empty()) reader.fail();
      return granted;
    }
    case DeskKind::kRefused: {
      DeskRefused refused;
      const auto code = reader.take<std::uint16_t>();
      if (code > static_cast<std::uint16_t>(ErrorCode::kSystem)) reader.fail();
      refused.code = static_cast<ErrorCode>(code);
      refused.why = read_text(reader);
      return refused;
    }
    case DeskKind::kStatus:
      return DeskStatus{read_text(reader)};
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::byte> encode(const DeskMessage& message) {
  const std::size_t size = std::visit([](const auto& one) { return body_bytes(one); }, message);
  std::vector<std::byte> bytes(kDeskHeaderBytes + size);
  Writer body(MutableBytes(bytes).subspan(kDeskHeaderBytes));
  const DeskKind kind = std::visit([&](const auto& one) { return write_body(body, one); }, message);
  Writer(bytes).write(Header{kDeskMagic, kDeskVersion, kind, static_cast<std::uint32_t>(size)});
  return bytes;
}

Result<std::optional<DeskMessage>> take_desk_message(std::vector<std::byte>& bytes) {
  const auto known = std::min(bytes.size(), kDeskMagic.size());
  const auto same = [](std::byte a, std::uint8_t b) {
    return std::to_integer<std::uint8_t>(a) == b;
  };
  if (!std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(known),
                  kDeskMagic.begin(), same)) {
    return Error{ErrorCode::kInvalid, "this is not how programs and client managers talk"};
  }
  if (bytes.size() < kDeskHeaderBytes) return std::optional<DeskMessage>();
  Reader reader(bytes);
  const auto header = reader.take<Header>();
  if (header.version != kDeskVersion) {
    return Error{ErrorCode::kUnsupported, "version " + std::to_string(header.version) +
                                              " is spoken there, and " +
                                              std::to_string(kDeskVersion) + " here"};
  }
  if (header.body_bytes > kDeskBodyBytesMax) {
    return Error{ErrorCode::kInvalid, "a message is too long"};
  }
  if (reader.remaining() < header.body_bytes) return std::optional<DeskMessage>();
  Reader body(reader.take_bytes(header.body_bytes));
  std::optional<DeskMessage> message = read_body(header.kind, body);
  if (!message || !body.finished()) {
    return Error{ErrorCode::kInvalid, "a message is malformed"};
  }
  bytes.erase(bytes.begin(),
              bytes.begin() + static_cast<std::ptrdiff_t>(kDeskHeaderBytes + header.body_bytes));
  return message;
}

}  // namespace flyt::wire
