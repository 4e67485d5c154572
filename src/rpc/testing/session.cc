#include "rpc/testing/session.h"

#include <algorithm>
#include <utility>

#include "transport/shm.h"

namespace flyt::rpc::testing {

void TestServer::run() {
  Result<wire::ClientHello> hello = receive_hello(*connection_, soon());
  if (!hello) {
    ended_with = hello.error().message;
    connection_->shut_down();
    return;
  }
  const Status said = send_welcome(*connection_, wire::Welcome{.name = "test"}, soon());
  greeted = said.ok();
  endpoint_ = std::make_unique<Endpoint>(std::move(connection_), hello->limits, pool_);
  open_.store(true);
  while (true) {
    while (stalled.load()) std::this_thread::yield();
    if (endpoint_->receive(*this, transport::kNever) == Received::kClosed) break;
  }
  in_order = endpoint_->closed_in_order();
  ended_with = endpoint_->error().message;
}

Status TestServer::copy_out(const Command& command, bool waits) {
  Reader reader(command.payload);
  const auto delivery = reader.take<std::uint64_t>();
  const auto size = reader.take<std::uint64_t>();
  std::vector<std::byte> data(size);
  for (std::uint64_t i = 0; i < size; ++i) data[i] = pattern(i);
  endpoint_->deliver(delivery, 0, data);
  if (waits) endpoint_->reply(command.header.sequence, 0);
  return {};
}

Status TestServer::on_command(const Command& command) {
  commands.fetch_add(1);
  Reader reader(command.payload);
  switch (command.header.op) {
    case kOpNote:
      notes.emplace_back(text_of(command.payload));
      note_threads.push_back(command.header.thread);
      return {};
    case kOpEcho:
      endpoint_->reply(command.header.sequence, 7, command.payload);
      return {};
    case kOpCopyOut:
      return copy_out(command, true);
    case kOpCopyOutPosted:
      return copy_out(command, false);
    case kOpFail:
      endpoint_->post_failed(command.header.sequence, reader.take<std::uint32_t>());
      return {};
    case kOpBulk: {
      const auto offset = reader.take<std::uint64_t>();
      const Bytes data = reader.take_bytes(reader.remaining());
      bulk.resize(std::max<std::size_t>(bulk.size(), offset + data.size()));
      std::copy(data.begin(), data.end(), bulk.begin() + static_cast<std::ptrdiff_t>(offset));
      if (command.wants_reply()) endpoint_->reply(command.header.sequence, 0);
      return {};
    }
    case kOpHostCall:
      endpoint_->push_host_call(command.header.sequence, reader.take<std::uint64_t>(), {});
      return {};
    case kOpHold: {
      const std::lock_guard lock(held_mutex_);
      held_.push_back(command.header.sequence);
      return {};
    }
    case kOpRelease:
      withheld_max.store(1);
      [[fallthrough]];
    case kOpWithhold:
      withhold(command);
      return {};
    default:
      return Error{ErrorCode::kInvalid, "no such op"};
  }
}

void TestServer::withhold(const Command& command) {
  endpoint_->withhold(command.payload.size());
  withheld_bytes_ += command.payload.size();
  if (++withheld_ < withheld_max.load()) return;
  endpoint_->release(std::exchange(withheld_, 0), std::exchange(withheld_bytes_, 0));
}

void TestServer::release_held() {
  std::vector<std::uint64_t> held;
  {
    const std::lock_guard lock(held_mutex_);
    held.swap(held_);
  }
  for (const std::uint64_t sequence : held) endpoint_->reply(sequence, 0);
}

Session::Session(transport::ConnectionPair pair, const ChannelOptions& options,
                 const wire::Limits& limits)
    : server(std::move(pair.second)) {
  server.start();
  Result<std::unique_ptr<Channel>> opened =
      Channel::open(std::move(pair.first), wire::ClientHello{.name = "client", .limits = limits},
                    soon(), pushes, options);
  if (opened) {
    channel = std::move(*opened);
  } else {
    open_error = opened.error().message;
  }
}

Session::~Session() {
  if (channel) channel->shut_down("the test is over");
  server.stop();
}

transport::ConnectionPair make_pair(PairKind kind, std::uint64_t seed) {
  if (kind == PairKind::kSim) {
    Result<transport::ConnectionPair> pair = transport::sim_pair({.seed = seed});
    FLYT_ASSERT(pair.ok());
    return std::move(*pair);
  }
  if (kind == PairKind::kUnix) {
    Result<transport::ConnectionPair> pair = transport::connection_pair();
    FLYT_ASSERT(pair.ok());
    return std::move(*pair);
  }
  if (kind == PairKind::kShm) {
    Result<transport::ConnectionPair> pair = transport::connection_pair();
    Result<transport::SharedRings> rings = transport::SharedRings::make();
    FLYT_ASSERT(pair.ok() && rings.ok());
    auto server = transport::offer_rings(std::move(pair->second), std::move(*rings));
    auto client = transport::take_rings(std::move(pair->first), soon());
    FLYT_ASSERT(client.ok() && server.ok());
    return {std::move(*client), std::move(*server)};
  }
  Result<std::unique_ptr<transport::Listener>> listener =
      transport::listen({transport::Kind::kTcp, {}, "127.0.0.1", 0});
  FLYT_ASSERT(listener.ok());
  auto client = transport::connect((*listener)->url(), soon());
  auto server = (*listener)->accept(soon(), nullptr);
  FLYT_ASSERT(client.ok() && server.ok());
  return {std::move(*client), std::move(*server)};
}

std::string name_of(PairKind kind) {
  switch (kind) {
    case PairKind::kUnix:
      return "unix";
    case PairKind::kTcp:
      return "tcp";
    case PairKind::kSim:
      return "sim";
    case PairKind::kShm:
      return "shm";
  }
  return {};
}

bool post_note(Channel& channel, std::string_view text) {
  Post post = channel.begin(kOpNote, text.size(), 0);
  if (!post) return false;
  post.writer().write_bytes(bytes_of(text));
  post.commit();
  return true;
}

Result<std::string> echo(Channel& channel, std::string_view text) {
  Post post = channel.begin(kOpEcho, text.size(), 0, Answer::kReply);
  if (!post) return channel.error();
  post.writer().write_bytes(bytes_of(text));
  Reply reply;
  Status status = channel.call(std::move(post), reply);
  if (!status) return std::move(status).error();
  return std::string(text_of(reply.fields()));
}

}  // namespace flyt::rpc::testing
