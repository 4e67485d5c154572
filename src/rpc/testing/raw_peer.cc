#include "rpc/testing/raw_peer.h"

#include <array>

namespace flyt::rpc::testing {

using transport::Patience;

bool RawPeer::send(Bytes bytes) {
  while (!bytes.empty()) {
    const Result<std::size_t> sent = connection_->write({&bytes, 1}, Patience::kWait);
    if (!sent) return false;
    bytes = bytes.subspan(*sent);
  }
  return true;
}

bool RawPeer::send(const wire::CommandHeader& header, std::string_view payload) {
  std::array<std::byte, wire::kHeaderBytes> bytes;
  Writer writer(bytes);
  wire::encode(header, writer);
  return send(bytes) && send(bytes_of(payload));
}

bool RawPeer::send(const wire::FrameHeader& header, std::string_view payload) {
  std::array<std::byte, wire::kHeaderBytes> bytes;
  Writer writer(bytes);
  wire::encode(header, writer);
  return send(bytes) && send(bytes_of(payload));
}

std::optional<std::string> RawPeer::receive(std::size_t size) {
  std::string text(size, '\0');
  MutableBytes rest = mutable_bytes_at(text.data(), size);
  while (!rest.empty()) {
    const Result<std::size_t> got = connection_->read({&rest, 1}, Patience::kWait);
    if (!got) return std::nullopt;
    rest = rest.subspan(*got);
  }
  return text;
}

std::optional<RawFrame> RawPeer::receive_frame() {
  const std::optional<std::string> header = receive(wire::kHeaderBytes);
  if (!header) return std::nullopt;
  RawFrame frame;
  Reader reader(bytes_of(*header));
  frame.header = wire::decode_frame_header(reader);
  std::optional<std::string> payload = receive(frame.header.payload_bytes);
  if (!payload) return std::nullopt;
  frame.payload = std::move(*payload);
  return frame;
}

std::optional<RawCommand> RawPeer::receive_command() {
  const std::optional<std::string> header = receive(wire::kHeaderBytes);
  if (!header) return std::nullopt;
  RawCommand command;
  Reader reader(bytes_of(*header));
  command.header = wire::decode_command_header(reader);
  std::optional<std::string> payload = receive(command.header.payload_bytes);
  if (!payload) return std::nullopt;
  command.payload = std::move(*payload);
  return command;
}

std::optional<std::vector<std::byte>> RawPeer::receive_hello() {
  const std::optional<std::string> prefix = receive(wire::kHelloPrefixBytes);
  if (!prefix) return std::nullopt;
  const Result<wire::HelloPrefix> decoded = wire::decode_hello_prefix(bytes_of(*prefix));
  if (!decoded) return std::nullopt;
  const std::optional<std::string> records = receive(decoded->records_bytes);
  if (!records) return std::nullopt;
  const std::string whole = *prefix + *records;
  const Bytes bytes = bytes_of(whole);
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

std::string reply_payload(std::uint32_t result, std::string_view fields) {
  std::string payload(sizeof(wire::ReplyPrefix) + fields.size(), '\0');
  Writer writer(mutable_bytes_at(payload.data(), payload.size()));
  wire::encode(wire::ReplyPrefix{.result = result}, writer);
  writer.write_bytes(bytes_of(fields));
  return payload;
}

}  // namespace flyt::rpc::testing
