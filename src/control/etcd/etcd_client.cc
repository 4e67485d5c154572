#include "control/etcd/etcd_client.h"

#include <mutex>
#include <set>

#include "base/clock.h"
#include "control/etcd.grpc.pb.h"
#include "control/grpc/channel.h"
#include "control/grpc/keepalive.h"
#include "control/grpc/status.h"
#include "control/settings/settings.h"

namespace flyt::control {
namespace {

namespace pb = etcdserverpb;

constexpr std::string_view kUrl = "etcd:";
constexpr std::size_t kMembersMax = 16;
constexpr auto kPatience = std::chrono::milliseconds(1500);
constexpr std::int64_t kPage = 2000;
constexpr int kMessageBytesMax = 64 << 20;
constexpr int kReconnectLeastMs = 100;
constexpr int kReconnectMostMs = 500;
constexpr int kConnectMs = 1000;
constexpr int kAliveAnswerMs = 2000;

// What comes behind all keys that begin so; empty: nothing does, and all is meant.
std::string end_of(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) end.pop_back();
  if (!end.empty()) ++end.back();
  return end.empty() ? std::string(1, '\0') : end;
}

std::string begin_of(std::string_view prefix) {
  return prefix.empty() ? std::string(1, '\0') : std::string(prefix);
}

EtcdEntry entry_of(const pb::KeyValue& pair) {
  return {pair.key(), pair.value(), static_cast<std::uint64_t>(pair.create_revision()),
          static_cast<std::uint64_t>(pair.mod_revision())};
}

// Only what a member says by itself, before it does anything, is certain.
ErrorCode certainty_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return error_code_of(code);
    default:
      return ErrorCode::kLost;
  }
}

struct Member {
  std::string name;
  std::unique_ptr<pb::KV::Stub> keys;
  std::unique_ptr<pb::Lease::Stub> leases;
  std::unique_ptr<pb::Watch::Stub> watches;
};

class Client final : public Etcd {
 public:
  explicit Client(std::vector<Member> members) : members_(std::move(members)) {}

  Result<EtcdEntries> list(std::string_view prefix) override {
    EtcdEntries all;
    pb::RangeRequest request;
    request.set_key(begin_of(prefix));
    request.set_range_end(end_of(prefix));
    request.set_limit(kPage);
    while (true) {
      pb::RangeResponse reply;
      const Status status = ask([&](const Member& at, grpc::ClientContext& context) {
        return at.keys->Range(&context, request, &reply);
      });
      if (!status) return status.error();
      if (all.revision == 0) all.revision = static_cast<std::uint64_t>(reply.header().revision());
      for (const pb::KeyValue& pair : reply.kvs()) all.entries.push_back(entry_of(pair));
      if (!reply.more() || reply.kvs().empty()) return all;
      request.set_key(all.entries.back().key + '\0');
      request.set_revision(static_cast<std::int64_t>(all.revision));
    }
  }

  Result<EtcdOutcome> commit(const std::vector<EtcdCompare>& compares,
                             const std::vector<EtcdChange>& changes) override {
    pb::TxnRequest request;
    for (const EtcdCompare& one : compares) {
      pb::Compare& compare = *request.add_compare();
      compare.set_key(one.key);
      const bool created = one.what == EtcdCompare::What::kCreated;
      compare.set_target(created ? pb::Compare::CREATE : pb::Compare::MOD);
      const auto revision = static_cast<std::int64_t>(one.revision);
      if (created) compare.set_create_revision(revision);
      if (!created) compare.set_mod_revision(revision);
    }
    for (const EtcdChange& change : changes) {
      pb::RequestOp& operation = *request.add_success();
      if (!change.value) {
        operation.mutable_request_delete_range()->set_key(change.key);
        continue;
      }
      pb::PutRequest& put = *operation.mutable_request_put();
      put.set_key(change.key);
      put.set_value(*change.value);
      put.set_lease(static_cast<std::int64_t>(change.lease));
    }
    pb::TxnResponse reply;
    // Once: whether a lost one was done is not known.
    const Status status = try_one(true, [&](const Member& at, grpc::ClientContext& context) {
      return at.keys->Txn(&context, request, &reply);
    });
    if (!status) return status.error();
    return EtcdOutcome{reply.succeeded(), static_cast<std::uint64_t>(reply.header().revision())};
  }

  Result<EtcdLease> grant(std::uint32_t seconds) override {
    pb::LeaseGrantRequest request;
    request.set_ttl(seconds);
    pb::LeaseGrantResponse reply;
    const Status status = ask([&](const Member& at, grpc::ClientContext& context) {
      return at.leases->LeaseGrant(&context, request, &reply);
    });
    if (!status) return status.error();
    if (!reply.error().empty()) return Error{ErrorCode::kSystem, reply.error()};
    return EtcdLease{static_cast<std::uint64_t>(reply.id()),
                     static_cast<std::uint32_t>(reply.ttl())};
  }

  Status keep(std::uint64_t lease) override {
    pb::LeaseKeepAliveRequest request;
    request.set_id(static_cast<std::int64_t>(lease));
    pb::LeaseKeepAliveResponse reply;
    const Status status = ask([&](const Member& at, grpc::ClientContext& context) {
      const auto stream = at.leases->LeaseKeepAlive(&context);
      const bool answered = stream->Write(request) && stream->Read(&reply);
      if (answered) context.TryCancel();
      const grpc::Status ended = stream->Finish();
      if (answered || !ended.ok()) return answered ? grpc::Status::OK : ended;
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "it ended the connection");
    });
    if (!status) return status;
    if (reply.ttl() > 0) return {};
    return Error{ErrorCode::kNotFound, "the lease has ended"};
  }

  Status revoke(std::uint64_t lease) override {
    pb::LeaseRevokeRequest request;
    request.set_id(static_cast<std::int64_t>(lease));
    pb::LeaseRevokeResponse reply;
    return ask([&](const Member& at, grpc::ClientContext& context) {
      return at.leases->LeaseRevoke(&context, request, &reply);
    });
  }

  Status watch(std::string_view prefix, std::uint64_t revision,
               const std::function<bool(const std::vector<EtcdEntry>&)>& take) override {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    if (!enter(context)) return Error{ErrorCode::kLost, "stopped"};
    const std::size_t at = member();
    const auto stream = members_[at].watches->Watch(&context);
    pb::WatchRequest request;
    pb::WatchCreateRequest& create = *request.mutable_create_request();
    create.set_key(begin_of(prefix));
    create.set_range_end(end_of(prefix));
    create.set_start_revision(static_cast<std::int64_t>(revision + 1));
    Status ended;
    pb::WatchResponse reply;
    bool more = true;
    // Where it cannot be written, reading ends at once, and the status says why.
    stream->Write(request);
    while (more && ended.ok() && stream->Read(&reply)) {
      if (reply.compact_revision() != 0) {
        ended = Error{ErrorCode::kNotFound, "etcd has forgotten that revision"};
      } else if (reply.canceled()) {
        ended = Error{ErrorCode::kLost, "etcd ended the watch: " + reply.cancel_reason()};
      } else {
        more = take(changes_of(reply));
      }
    }
    const bool told = !more || !ended.ok();
    if (told) context.TryCancel();
    const grpc::Status status = stream->Finish();
    leave(context);
    return told ? ended : Status(failed(status, at));
  }

  void stop() override {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (grpc::ClientContext* context : watching_) context->TryCancel();
  }

 private:
  static std::vector<EtcdEntry> changes_of(const pb::WatchResponse& reply) {
    std::vector<EtcdEntry> changes;
    for (const pb::Event& event : reply.events()) {
      changes.push_back(entry_of(event.kv()));
      if (event.type() == pb::Event::DELETE) changes.back().created = 0;
    }
    return changes;
  }

  // One member, within the patience; with `wait` also one that has yet to be connected to. What
  // is not waited for does not make the connection either.
  template <class Question>
  Status try_one(bool wait, Question question) {
    grpc::ClientContext context;
    context.set_deadline(time_in(kPatience));
    context.set_wait_for_ready(wait);
    const std::size_t at = member();
    const grpc::Status status = question(members_[at], context);
    return status.ok() ? Status() : Status(failed(status, at));
  }
  // One after the other; for what may be done twice.
  template <class Question>
  Status ask(Question question) {
    const Instant end = system_clock().now() + kPatience;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      Status status = try_one(false, question);
      if (status || status.error().code != ErrorCode::kLost) return status;
      if (system_clock().now() > end) return status;
    }
    return try_one(true, question);
  }

  std::size_t member() {
    const std::lock_guard lock(mutex_);
    return at_;
  }
  Error failed(const grpc::Status& status, std::size_t at) {
    const ErrorCode code = certainty_of(status.error_code());
    const std::lock_guard lock(mutex_);
    if (code == ErrorCode::kLost && at == at_) at_ = (at_ + 1) % members_.size();
    return {code, "etcd at " + members_[at].name + ": " +
                      (status.ok() ? "it ended the connection" : status.error_message())};
  }
  bool enter(grpc::ClientContext& context) {
    const std::lock_guard lock(mutex_);
    if (!stopped_) watching_.insert(&context);
    return !stopped_;
  }
  void leave(grpc::ClientContext& context) {
    const std::lock_guard lock(mutex_);
    watching_.erase(&context);
  }

  const std::vector<Member> members_;
  // gRPC's headers have annotations of the same names as ours. It guards what follows.
  std::mutex mutex_;
  std::size_t at_ = 0;
  std::set<grpc::ClientContext*> watching_;
  bool stopped_ = false;
};

}  // namespace

Result<std::vector<std::string>> parse_etcd_url(std::string_view url) {
  const Error bad{ErrorCode::kInvalid, "etcd:HOST:PORT, or more of them: etcd:A:2379,B:2379"};
  if (!url.starts_with(kUrl)) return bad;
  std::vector<std::string> members;
  std::string_view rest = url.substr(kUrl.size());
  while (!rest.empty()) {
    const std::string one(rest.substr(0, rest.find(',')));
    if (!parse_address(one) || members.size() == kMembersMax) return bad;
    members.push_back(one);
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
  }
  if (members.empty() || url.ends_with(',')) return bad;
  return members;
}

Result<std::unique_ptr<Etcd>> connect_to_etcd(const std::vector<std::string>& members,
                                              const TlsFiles& files) {
  std::vector<Member> all;
  for (const std::string& name : members) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectLeastMs);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMostMs);
    keep_alive(arguments, {.answer_ms = kAliveAnswerMs});
    const auto channel =
        files.complete()
            ? open_channel(name, files, ServerRole::kAny, arguments)
            : Result<std::shared_ptr<grpc::Channel>>(open_clear_channel(name, arguments));
    if (!channel) return channel.error();
    all.push_back({name, pb::KV::NewStub(*channel), pb::Lease::NewStub(*channel),
                   pb::Watch::NewStub(*channel)});
  }
  return std::unique_ptr<Etcd>(std::make_unique<Client>(std::move(all)));
}

}  // namespace flyt::control
