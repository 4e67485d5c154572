#include "rpc/greeting.h"

#include "rpc/endpoint.h"

namespace flyt::rpc {
namespace {

using transport::Connection;
using transport::Patience;

Error too_late(std::string_view what) {
  return Error{ErrorCode::kTimeout, std::string(what) + " in time"};
}

Status read_exactly(Connection& connection, MutableBytes into, Instant deadline) {
  while (!into.empty()) {
    Result<std::size_t> got = connection.read({&into, 1}, Patience::kNow);
    if (!got) return std::move(got).error();
    into = into.subspan(*got);
    if (*got > 0 || into.empty()) continue;
    if (connection.wait(transport::kReadable, deadline, nullptr) == transport::kNothing) {
      return too_late("no complete hello came");
    }
  }
  return {};
}

}  // namespace

Result<std::vector<std::byte>> read_hello(Connection& connection, Instant deadline) {
  std::vector<std::byte> bytes(wire::kHelloPrefixBytes);
  Status got = read_exactly(connection, bytes, deadline);
  if (!got) return std::move(got).error();
  Result<wire::HelloPrefix> prefix = wire::decode_hello_prefix(bytes);
  if (!prefix) return std::move(prefix).error();
  bytes.resize(wire::kHelloPrefixBytes + prefix->records_bytes);
  got = read_exactly(connection, MutableBytes(bytes).subspan(wire::kHelloPrefixBytes), deadline);
  if (!got) return std::move(got).error();
  return bytes;
}

Status write_hello(Connection& connection, Bytes bytes, Instant deadline) {
  while (!bytes.empty()) {
    Result<std::size_t> sent = connection.write({&bytes, 1}, Patience::kNow);
    if (!sent) return std::move(sent).error();
    bytes = bytes.subspan(*sent);
    if (*sent > 0 || bytes.empty()) continue;
    if (connection.wait(transport::kWritable, deadline, nullptr) == transport::kNothing) {
      return too_late("the hello was not taken");
    }
  }
  return {};
}

wire::Refusal refusal_of(const Error& bad_hello) {
  const bool version = bad_hello.code == ErrorCode::kUnsupported;
  return {version ? wire::RefusalCode::kVersion : wire::RefusalCode::kMalformed, bad_hello.message};
}

Result<wire::ClientHello> judge_hello(Bytes bytes) {
  Result<wire::ClientHello> hello = wire::decode_client_hello(bytes);
  if (!hello) return hello;
  Result<std::uint16_t> version = wire::common_version(hello->version_min, hello->version_max);
  if (!version) return std::move(version).error();
  Result<wire::Limits> limits = wire::common_limits({}, hello->limits);
  if (!limits) return std::move(limits).error();
  return hello;
}

Result<wire::ClientHello> receive_hello(Connection& connection, Instant deadline) {
  Result<std::vector<std::byte>> bytes = read_hello(connection, deadline);
  Result<wire::ClientHello> hello =
      bytes ? judge_hello(*bytes) : Result<wire::ClientHello>(std::move(bytes).error());
  if (!hello && hello.error().code != ErrorCode::kLost) {
    // The peer may be gone or deaf; then there is nobody to tell.
    [[maybe_unused]] const Status told =
        send_refusal(connection, refusal_of(hello.error()), deadline);
  }
  return hello;
}

Status send_welcome(Connection& connection, const wire::Welcome& welcome, Instant deadline) {
  return write_hello(connection, wire::encode(welcome), deadline);
}

Status send_refusal(Connection& connection, const wire::Refusal& refusal, Instant deadline) {
  return write_hello(connection, wire::encode(refusal), deadline);
}

}  // namespace flyt::rpc
