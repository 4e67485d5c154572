#include "control/cluster/api_thread.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>

#include "base/log_limit.h"
#include "control/cluster.grpc.pb.h"
#include "control/cluster/records.h"
#include "control/cluster/wrong_tries.h"
#include "control/daemon/door_thread.h"
#include "control/daemon/serving.h"
#include "control/grpc/call.h"
#include "control/grpc/channel.h"
#include "control/grpc/credentials.h"
#include "control/grpc/keepalive.h"
#include "control/grpc/status.h"
#include "control/grpc/watcher.h"
#include "control/pki/certificate.h"
#include "control/settings/settings.h"

namespace flyt::cluster {
namespace {

constexpr int kThreadsMax = 640;
constexpr int kWatchersMax = 512;
constexpr int kMessageBytesMax = 16 << 20;
// Of connections and of what comes in on them, as a message's size is looked at when all of it is
// here. Beyond it gRPC ends connections that nobody uses, and calls with large messages.
constexpr std::size_t kMemoryBytesMax = 256 << 20;
constexpr Duration kWatchStep = std::chrono::milliseconds(500);
constexpr Duration kWatchRest = std::chrono::milliseconds(200);
constexpr auto kShutdownTime = std::chrono::seconds(1);
constexpr int kPassedBytesMax = 256 << 20;
constexpr int kReconnectMs = 500;
// After that what is known here is told.
constexpr auto kPassTime = std::chrono::seconds(5);
// What a manager that does not decide sends with a question: for whom it asks.
constexpr const char* kBehalf = "flyt-behalf-bin";

grpc::Status denial(const Error& error) {
  return {error.code == ErrorCode::kInvalid ? grpc::StatusCode::INVALID_ARGUMENT
                                            : grpc::StatusCode::PERMISSION_DENIED,
          error.message};
}

template <class Message>
grpc::Status answer(Result<Message> value, Message* message) {
  if (!value) return control::status_of(value.error());
  *message = std::move(*value);
  return grpc::Status::OK;
}

// The manager that decides, when it is another one.
class Leader {
 public:
  explicit Leader(const std::shared_ptr<grpc::Channel>& channel)
      : nodes_(v1::Nodes::NewStub(channel)),
        vms_(v1::Vms::NewStub(channel)),
        people_(v1::Operators::NewStub(channel)) {}

  v1::Nodes::Stub& stub(const v1::Nodes::Stub*) const { return *nodes_; }
  v1::Vms::Stub& stub(const v1::Vms::Stub*) const { return *vms_; }
  v1::Operators::Stub& stub(const v1::Operators::Stub*) const { return *people_; }

 private:
  const std::unique_ptr<v1::Nodes::Stub> nodes_;
  const std::unique_ptr<v1::Vms::Stub> vms_;
  const std::unique_ptr<v1::Operators::Stub> people_;
};

// Connections to those that decide, one after the other. Safe from any thread.
class Leaders {
 public:
  explicit Leaders(const Config& config)
      : files_{config.cert, config.key, config.ca},
        revoked_(pki::Revocations::of(config.crl, config.ca)) {}

  Result<std::shared_ptr<Leader>> at(const std::string& address) {
    const std::lock_guard lock(mutex_);
    if (leader_ && address == address_) return leader_;
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMs);
    arguments.SetMaxReceiveMessageSize(kPassedBytesMax);
    // VMs that watch over it are to hear soon that it is cut off.
    control::keep_alive(arguments);
    const auto channel =
        control::open_channel(address, files_, control::ServerRole::kCluster, arguments, revoked_);
    if (!channel) return channel.error();
    leader_ = std::make_shared<Leader>(*channel);
    address_ = address;
    return leader_;
  }

 private:
  const control::TlsFiles files_;
  const control::Revoked revoked_;
  // gRPC's headers have annotations of the same names as ours. It guards what follows.
  std::mutex mutex_;
  std::string address_;
  std::shared_ptr<Leader> leader_;
};

// What is answered here where whoever decides cannot be asked: what was known last, or nothing.
enum class Without : std::uint8_t { kOld, kNothing };

// Those who were refused something lately. Safe from any thread.
class Refused {
 public:
  // Whether it is to be written down for ever: not all that somebody tries in vain, or he would
  // drive out what others did.
  bool is_news(const std::string& who) {
    const std::lock_guard lock(mutex_);
    const Instant now = system_clock().now();
    if (!tries_.may_try(who, now)) return false;
    tries_.wrong(who, now);
    return true;
  }
  LogLimit& lines() { return lines_; }

 private:
  LogLimit lines_;
  // gRPC's headers have annotations of the same names as ours. It guards what follows.
  std::mutex mutex_;
  WrongTries tries_;
};

// What all services have: who calls, who answers, and how many watch.
struct Desk {
  Chair& chair;
  Leaders& leaders;
  Gate& gate;
  const Log log;
  const std::string version;
  const std::string name;           // This manager's.
  std::optional<Caller> everybody;  // Of a server behind one user's door.
  std::atomic<int>& watchers;
  Refused& refused;
  const std::string enrol_pin;  // Of the authority that signs machines' certificates; empty: none.

  // Of a Unix socket gRPC knows no more than its number.
  std::string peer_of(const grpc::ServerContext& context) const {
    return everybody ? everybody->peer : context.peer();
  }
  // A manager that does not decide says for whom it asks.
  Result<Caller> caller(const grpc::ServerContext& context) const {
    auto found = direct(context);
    const auto passed = context.client_metadata().find(kBehalf);
    if (!found || passed == context.client_metadata().end()) return found;
    return Gate::speaks_for(*found, {passed->second.data(), passed->second.size()});
  }
  Result<Caller> direct(const grpc::ServerContext& context) const {
    if (everybody) return *everybody;
    const auto pem = context.auth_context()->FindPropertyValues("x509_pem_cert");
    if (pem.empty()) return Error{ErrorCode::kDenied, "there is no certificate"};
    return gate.caller_of({pem.front().data(), pem.front().size()}, context.peer());
  }
  LimitedLog refusals() const { return {log, refused.lines()}; }
  // That a node is where its certificate says: the manager would ask another machine in its name.
  Status check_place(const grpc::ServerContext& context, const std::string& address) const {
    const auto place = control::parse_address(address);
    const auto pem = context.auth_context()->FindPropertyValues("x509_pem_cert");
    if (everybody || !place || pem.empty()) return {};
    const auto found = direct(context);
    if (!found || found->role != Role::kNode) return {};
    const auto may = pki::may_serve_at({pem.front().data(), pem.front().size()}, place->host);
    if (!may) return may.error();
    if (*may) return {};
    refusals().warn("refused",
                    {{"peer", context.peer()}, {"node", found->name}, {"address", address}});
    return Error{ErrorCode::kDenied, "the certificate of " + found->name + " is not for " +
                                         place->host + ", which is its cluster.advertise: name it" +
                                         " with --host when the certificate is made"};
  }
  // The caller, if it has the role.
  Result<Caller> admit(const grpc::ServerContext& context, Role least) const {
    auto found = caller(context);
    const Status status = found ? need(*found, least) : Status(found.error());
    if (status) return found;
    refusals().warn("refused", {{"peer", context.peer()}, {"reason", status.error().message}});
    return status.error();
  }
  Result<std::string> self(const grpc::ServerContext& context, Role machine,
                           const std::string& named) const {
    const auto found = caller(context);
    auto name = found ? self_of(*found, machine, named) : Result<std::string>(found.error());
    if (!name) {
      refusals().warn("refused", {{"peer", context.peer()}, {"reason", name.error().message}});
    }
    return name;
  }
  // Whoever decides does it: the manager here, or the other one. `method` is the same question.
  template <class Stub, class Request, class Reply, class Act>
  grpc::Status serve(grpc::ServerContext& context, Without without,
                     grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                     const Request& request, Reply* reply, Act act) const {
    const Answerer who = chair.answerer();
    if (who.here) return act(*who.here);
    grpc::Status status(grpc::StatusCode::UNAVAILABLE, who.why);
    if (who.leader) {
      status =
          ask_leader(context, *who.leader, [&](const Leader& leader, grpc::ClientContext& own) {
            return (leader.stub(static_cast<const Stub*>(nullptr)).*method)(&own, request, reply);
          });
    }
    const bool answered = status.error_code() != grpc::StatusCode::UNAVAILABLE &&
                          status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
    const auto known = answered || without == Without::kNothing ? nullptr : chair.known();
    return known ? act(*known) : status;
  }
  // The same with a stream. There is no old answer to a watch.
  template <class Stub, class Request, class Message, class Act>
  grpc::Status follow(grpc::ServerContext& context,
                      std::unique_ptr<grpc::ClientReader<Message>> (Stub::*method)(
                          grpc::ClientContext*, const Request&),
                      const Request& request, grpc::ServerWriter<Message>& out, Act act) const {
    const Answerer who = chair.answerer();
    if (who.here) return act(*who.here);
    if (!who.leader) return {grpc::StatusCode::UNAVAILABLE, who.why};
    const control::Watcher watcher(watchers, kWatchersMax);
    if (!watcher.status().ok()) return watcher.status();
    return ask_leader(context, *who.leader, [&](const Leader& leader, grpc::ClientContext& own) {
      const auto reader = (leader.stub(static_cast<const Stub*>(nullptr)).*method)(&own, request);
      return control::read_stream<Message>(*reader, own,
                                           [&out](const Message& one) { return out.Write(one); });
    });
  }
  template <class Ask>
  grpc::Status ask_leader(grpc::ServerContext& context, const state::Leader& where, Ask ask) const {
    if (context.client_metadata().contains(kBehalf)) {
      return {grpc::StatusCode::UNAVAILABLE, "the manager that was asked does not decide any more"};
    }
    const auto found = caller(context);
    if (!found) return denial(found.error());
    const auto leader = leaders.at(where.address());
    if (!leader) return control::status_of(leader.error());
    v1::Behalf behalf;
    behalf.set_name(found->name);
    behalf.set_role(std::string(to_string(found->role)));
    behalf.set_peer(peer_of(context));
    const auto own = grpc::ClientContext::FromServerContext(context);
    own->AddMetadata(kBehalf, behalf.SerializeAsString());
    const grpc::Status status = ask(**leader, *own);
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return status;
    return {status.error_code(), "cluster manager " + where.name() + " at " + where.address() +
                                     " decides: " + status.error_message()};
  }
  // Does it and writes down who did it; what was refused for a role is written down, too.
  template <class Message, class Act>
  grpc::Status change(Manager& manager, const grpc::ServerContext& context, Role least,
                      const char* action, const std::string& subject, const std::string& details,
                      Message* reply, Act act) const {
    v1::AuditEntry entry;
    entry.set_action(action);
    entry.set_subject(subject);
    entry.set_details(details);
    entry.set_peer(peer_of(context));
    const auto found = caller(context);
    grpc::Status status = found ? grpc::Status::OK : denial(found.error());
    if (found) {
      entry.set_caller(found->name);
      entry.set_role(message_of(found->role));
      if (context.client_metadata().contains(kBehalf)) entry.set_peer(found->peer);
      if (Status good = need(*found, least); !good) status = denial(good.error());
    }
    const bool allowed = status.ok();
    if (allowed) status = answer(act(), reply);
    if (!allowed && !refused.is_news(found ? found->name : origin_of(context.peer()))) {
      refusals().warn("refused", {{"peer", context.peer()}, {"reason", status.error_message()}});
      return status;
    }
    entry.set_result(status.ok() ? "ok" : status.error_message());
    if (Status written = manager.audit(std::move(entry)); !written) {
      log.error("not in the audit log", {{"action", action}, {"why", written.error().message}});
    }
    return status;
  }
};

class NodesService final : public v1::Nodes::Service {
 public:
  explicit NodesService(const Desk& desk) : desk_(desk) {}

  grpc::Status Report(grpc::ServerContext* context, const v1::NodeReport* request,
                      v1::NodeReply* reply) override {
    const auto name = desk_.self(*context, Role::kNode, request->name());
    if (!name) return denial(name.error());
    if (!desk_.everybody && request->address().starts_with("unix:")) {
      return {grpc::StatusCode::INVALID_ARGUMENT,
              "a node that reports over TCP is reached at HOST:PORT: set cluster.advertise"};
    }
    if (Status good = desk_.check_place(*context, request->address()); !good) {
      return denial(good.error());
    }
    v1::NodeReport report = *request;
    report.set_name(*name);
    return desk_.serve(*context, Without::kNothing, &v1::Nodes::Stub::Report, report, reply,
                       [&](Manager& manager) { return answer(manager.report(report), reply); });
  }

 private:
  const Desk& desk_;
};

class VmsService final : public v1::Vms::Service {
 public:
  explicit VmsService(const Desk& desk) : desk_(desk) {}

  grpc::Status Request(grpc::ServerContext* context, const v1::GpuRequest* request,
                       v1::VirtualGpu* reply) override {
    const auto vm = desk_.self(*context, Role::kVm, request->vm());
    if (!vm) return denial(vm.error());
    v1::GpuRequest wanted = *request;
    wanted.set_vm(*vm);
    // Who has one is told where, and given a token, also when nobody decides.
    return desk_.serve(*context, Without::kOld, &v1::Vms::Stub::Request, wanted, reply,
                       [&](Manager& manager) { return answer(manager.request(wanted), reply); });
  }
  grpc::Status Release(grpc::ServerContext* context, const v1::ReleaseGpuRequest* request,
                       v1::VirtualGpu* reply) override {
    const auto vm = desk_.self(*context, Role::kVm, request->vm());
    if (!vm) return denial(vm.error());
    v1::ReleaseGpuRequest named;
    named.set_vm(*vm);
    return desk_.serve(*context, Without::kNothing, &v1::Vms::Stub::Release, named, reply,
                       [&](Manager& manager) {
                         return answer(manager.release(*vm, "its VM gave it back"), reply);
                       });
  }
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchGpuRequest* request,
                     grpc::ServerWriter<v1::VirtualGpu>* out) override {
    const auto vm = desk_.self(*context, Role::kVm, request->vm());
    if (!vm) return denial(vm.error());
    v1::WatchGpuRequest named;
    named.set_vm(*vm);
    return desk_.follow(*context, &v1::Vms::Stub::Watch, named, *out, [&](Manager& manager) {
      const control::Watcher watcher(desk_.watchers, kWatchersMax);
      if (!watcher.status().ok()) return watcher.status();
      if (Status begun = manager.watch(*vm, true); !begun) {
        return control::status_of(begun.error());
      }
      const grpc::Status status = tell(manager, *context, *vm, *out);
      static_cast<void>(manager.watch(*vm, false).ok());
      return status;
    });
  }

 private:
  static grpc::Status tell(Manager& manager, const grpc::ServerContext& context,
                           const std::string& vm, grpc::ServerWriter<v1::VirtualGpu>& out) {
    std::string last;
    std::uint64_t revision = 0;
    while (!context.IsCancelled() && !manager.stopping()) {
      const auto gpu = manager.gpu_of(vm);
      if (!gpu) return control::status_of(gpu.error());
      std::string now = gpu->SerializeAsString();
      if (now != last && !out.Write(*gpu)) break;
      last = std::move(now);
      revision = manager.wait_for_change(revision, kWatchStep);
    }
    return grpc::Status::OK;
  }

  const Desk& desk_;
};

class OperatorsService final : public v1::Operators::Service {
 public:
  explicit OperatorsService(const Desk& desk) : desk_(desk) {}

  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeClusterRequest* request,
                        v1::ClusterDescription* reply) override {
    const auto caller = desk_.admit(*context, Role::kViewer);
    if (!caller) return denial(caller.error());
    return see(*context, &Stub::Describe, *request, reply, [&](Manager& manager) {
      v1::ClusterDescription said = manager.describe();
      said.set_version(desk_.version);
      said.set_caller(caller->name);
      said.set_role(message_of(caller->role));
      said.set_manager(desk_.name);
      said.set_decides(manager.decides());
      return Result<v1::ClusterDescription>(std::move(said));
    });
  }
  grpc::Status ListNodes(grpc::ServerContext* context, const v1::ListNodesRequest* request,
                         v1::ListNodesResponse* reply) override {
    return see(*context, &Stub::ListNodes, *request, reply,
               [&](Manager& manager) { return manager.nodes(request->node()); });
  }
  grpc::Status ListVms(grpc::ServerContext* context, const v1::ListVmsRequest* request,
                       v1::ListVmsResponse* reply) override {
    return see(*context, &Stub::ListVms, *request, reply,
               [&](Manager& manager) { return manager.vms(request->vm()); });
  }
  grpc::Status ListLeases(grpc::ServerContext* context, const v1::ListClusterLeasesRequest* request,
                          v1::ListClusterLeasesResponse* reply) override {
    return see(*context, &Stub::ListLeases, *request, reply,
               [&](Manager& manager) { return manager.leases(request->vm(), request->node()); });
  }
  grpc::Status ListSessions(grpc::ServerContext* context,
                            const v1::ListClusterSessionsRequest* request,
                            v1::ListClusterSessionsResponse* reply) override {
    return see(*context, &Stub::ListSessions, *request, reply,
               [&](Manager& manager) { return manager.sessions(request->vm(), request->node()); });
  }
  grpc::Status Explain(grpc::ServerContext* context, const v1::ExplainRequest* request,
                       v1::Explanation* reply) override {
    return see(*context, &Stub::Explain, *request, reply,
               [&](Manager& manager) { return manager.explain(request->vm()); });
  }
  grpc::Status Health(grpc::ServerContext* context, const v1::ClusterHealthRequest* request,
                      v1::ClusterHealth* reply) override {
    return see(*context, &Stub::Health, *request, reply, [&](Manager& manager) {
      v1::ClusterHealth health;
      if (!manager.decides()) {
        health.add_problems(
            "no cluster manager that " + desk_.name +
            " can reach decides; this is what it knew last: " + desk_.chair.answerer().why);
      }
      for (const std::string& problem : manager.problems()) health.add_problems(problem);
      health.set_healthy(health.problems_size() == 0);
      return Result<v1::ClusterHealth>(health);
    });
  }
  grpc::Status ListAudit(grpc::ServerContext* context, const v1::ListAuditRequest* request,
                         v1::ListAuditResponse* reply) override {
    const auto caller = desk_.admit(*context, Role::kAdmin);
    if (!caller) return denial(caller.error());
    return see(*context, &Stub::ListAudit, *request, reply, [&](Manager& manager) {
      v1::ListAuditResponse list;
      for (v1::AuditEntry& entry : manager.audits(request->after())) {
        *list.add_entries() = std::move(entry);
      }
      return Result<v1::ListAuditResponse>(std::move(list));
    });
  }
  grpc::Status ListEnrolTokens(grpc::ServerContext* context,
                               const v1::ListEnrolTokensRequest* request,
                               v1::ListEnrolTokensResponse* reply) override {
    const auto caller = desk_.admit(*context, Role::kAdmin);
    if (!caller) return denial(caller.error());
    return see(*context, &Stub::ListEnrolTokens, *request, reply, [&](Manager& manager) {
      return Result<v1::ListEnrolTokensResponse>(manager.enrol_tokens());
    });
  }
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::Change>* out) override {
    const auto caller = desk_.admit(*context, Role::kViewer);
    if (!caller) return denial(caller.error());
    return desk_.follow(*context, &Stub::Watch, *request, *out, [&](Manager& manager) {
      const control::Watcher watcher(desk_.watchers, kWatchersMax);
      if (!watcher.status().ok()) return watcher.status();
      std::uint64_t told = 0;
      while (!context->IsCancelled() && !manager.stopping()) {
        const std::uint64_t now = manager.wait_for_change(told, kWatchStep);
        if (now == told) continue;
        v1::Change change;
        change.set_revision(now);
        if (!out->Write(change)) break;
        told = now;
        // Whoever lists everything after each change shall not do nothing else.
        system_clock().sleep_for(kWatchRest);
      }
      return grpc::Status::OK;
    });
  }
  grpc::Status WatchEvents(grpc::ServerContext* context,
                           const v1::WatchClusterEventsRequest* request,
                           grpc::ServerWriter<v1::ClusterEvent>* out) override {
    const auto caller = desk_.admit(*context, Role::kViewer);
    if (!caller) return denial(caller.error());
    return desk_.follow(*context, &Stub::WatchEvents, *request, *out, [&](Manager& manager) {
      const control::Watcher watcher(desk_.watchers, kWatchersMax);
      if (!watcher.status().ok()) return watcher.status();
      std::uint64_t last = request->after();
      std::uint64_t revision = 0;
      while (!context->IsCancelled()) {
        const auto batch = manager.events(last);
        for (const v1::ClusterEvent& event : batch) {
          if (!out->Write(event)) return grpc::Status::OK;
          last = event.number();
        }
        if (!batch.empty()) continue;
        if (!request->follow() || manager.stopping()) break;
        revision = manager.wait_for_change(revision, kWatchStep);
      }
      return grpc::Status::OK;
    });
  }
  grpc::Status SetVms(grpc::ServerContext* context, const v1::SetVmsRequest* request,
                      v1::ListVmsResponse* reply) override {
    std::string details;
    for (const v1::VmSpec& spec : request->vms()) {
      if (details.size() > 1000) break;
      details += (details.empty() ? "" : "; ") + spec.ShortDebugString();
    }
    const std::string subject = request->vms_size() == 1
                                    ? request->vms(0).name()
                                    : std::to_string(request->vms_size()) + " VMs";
    return change(*context, &Stub::SetVms, *request, reply, Role::kOperator, "vm set", subject,
                  details, [&](Manager& manager) { return manager.set_vms(*request); });
  }
  grpc::Status RemoveVm(grpc::ServerContext* context, const v1::RemoveVmRequest* request,
                        v1::Vm* reply) override {
    return change(*context, &Stub::RemoveVm, *request, reply, Role::kOperator, "vm rm",
                  request->vm(), request->force() ? "force" : "", [&](Manager& manager) {
                    return manager.remove_vm(request->vm(), request->force());
                  });
  }
  grpc::Status ResizeVm(grpc::ServerContext* context, const v1::ResizeVmRequest* request,
                        v1::Vm* reply) override {
    return change(*context, &Stub::ResizeVm, *request, reply, Role::kOperator, "resize",
                  request->vm(), request->ShortDebugString(),
                  [&](Manager& manager) { return manager.resize(*request); });
  }
  grpc::Status ReleaseVm(grpc::ServerContext* context, const v1::ReleaseVmRequest* request,
                         v1::Vm* reply) override {
    return change(*context, &Stub::ReleaseVm, *request, reply, Role::kOperator, "release",
                  request->vm(), "", [&](Manager& manager) -> Result<v1::Vm> {
                    const auto gpu = manager.release(request->vm(), "an operator took it");
                    if (!gpu) return gpu.error();
                    auto vms = manager.vms(gpu->vm());
                    if (!vms) return vms.error();
                    return vms->vms(0);
                  });
  }
  grpc::Status SetNode(grpc::ServerContext* context, const v1::SetNodeRequest* request,
                       v1::Node* reply) override {
    return change(*context, &Stub::SetNode, *request, reply, Role::kOperator, "node set",
                  request->node(), request->ShortDebugString(),
                  [&](Manager& manager) { return manager.set_node(*request); });
  }
  grpc::Status RemoveNode(grpc::ServerContext* context, const v1::RemoveNodeRequest* request,
                          v1::Node* reply) override {
    return change(*context, &Stub::RemoveNode, *request, reply, Role::kOperator, "node rm",
                  request->node(), "",
                  [&](Manager& manager) { return manager.remove_node(request->node()); });
  }

  grpc::Status CreateEnrolToken(grpc::ServerContext* context,
                                const v1::CreateEnrolTokenRequest* request,
                                v1::EnrolToken* reply) override {
    const auto caller = desk_.caller(*context);
    const std::string by = caller ? caller->name : "";
    return change(*context, &Stub::CreateEnrolToken, *request, reply, Role::kAdmin,
                  "enrol-token create", request->role() + " " + request->name(),
                  request->ShortDebugString(), [&](Manager& manager) -> Result<v1::EnrolToken> {
                    if (desk_.enrol_pin.empty()) {
                      return Error{ErrorCode::kUnsupported,
                                   "no machine can enrol: set enrol.listen and enrol.key of the"
                                   " cluster manager"};
                    }
                    auto made = manager.new_enrol_token(*request, by);
                    if (made) made->set_token("flyt1." + made->token() + "." + desk_.enrol_pin);
                    return made;
                  });
  }
  grpc::Status RevokeEnrolToken(grpc::ServerContext* context,
                                const v1::RevokeEnrolTokenRequest* request,
                                v1::EnrolToken* reply) override {
    return change(*context, &Stub::RevokeEnrolToken, *request, reply, Role::kAdmin,
                  "enrol-token revoke", request->id(), "",
                  [&](Manager& manager) { return manager.revoke_enrol_token(request->id()); });
  }

 private:
  template <class Method, class Request, class Message, class Ask>
  grpc::Status see(grpc::ServerContext& context, Method method, const Request& request,
                   Message* reply, Ask ask) const {
    const auto caller = desk_.admit(context, Role::kViewer);
    if (!caller) return denial(caller.error());
    return desk_.serve(context, Without::kOld, method, request, reply,
                       [&](Manager& manager) { return answer(ask(manager), reply); });
  }
  template <class Method, class Request, class Message, class Act>
  grpc::Status change(grpc::ServerContext& context, Method method, const Request& request,
                      Message* reply, Role least, const char* action, const std::string& subject,
                      const std::string& details, Act act) const {
    return desk_.serve(context, Without::kNothing, method, request, reply, [&](Manager& manager) {
      return desk_.change(manager, context, least, action, subject, details, reply,
                          [&] { return act(manager); });
    });
  }

  using Stub = v1::Operators::Stub;

  const Desk& desk_;
};

// The three services, and what they are served on.
class Counter {
 public:
  explicit Counter(Desk desk)
      : desk_(std::move(desk)), nodes_(desk_), vms_(desk_), people_(desk_) {}

  // On TCP, or for connections that are handed in.
  bool open(const std::string& tcp, const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    grpc::ResourceQuota quota;
    quota.SetMaxThreads(kThreadsMax);
    quota.Resize(kMemoryBytesMax);
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(kMessageBytesMax);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    control::keep_alive(builder);
    builder.RegisterService(&nodes_);
    builder.RegisterService(&vms_);
    builder.RegisterService(&people_);
    int port = 0;
    if (!tcp.empty()) builder.AddListeningPort(tcp, credentials, &port);
    server_ = builder.BuildAndStart();
    return server_ != nullptr && (tcp.empty() || port != 0);
  }
  void take(int fd) { grpc::AddInsecureChannelFromFd(server_.get(), fd); }
  void close() {
    if (server_) server_->Shutdown(control::time_in(kShutdownTime));
  }

 private:
  const Desk desk_;
  NodesService nodes_;
  VmsService vms_;
  OperatorsService people_;
  std::unique_ptr<grpc::Server> server_;
};

class Api final : public ApiThread {
 public:
  Api(const Config& config, Chair& chair, Gate& gate, const Log& log, std::string_view version)
      : config_(config),
        chair_(chair),
        gate_(gate),
        log_(log),
        version_(version),
        leaders_(config) {}
  ~Api() override {
    door_.reset();
    for (auto& [user, counter] : local_) counter->close();
    if (remote_) remote_->close();
  }

  Status start() {
    if (!config_.enrol.empty()) {
      const auto ca = control::read_file(config_.ca);
      if (!ca) return ca.error();
      auto pin = pki::fingerprint_of(*ca);
      if (!pin) return Error{pin.error().code, config_.ca + ": " + pin.error().message};
      enrol_pin_ = std::move(*pin);
    }
    if (!config_.api_tcp.empty()) {
      const auto credentials = control::server_credentials({config_.cert, config_.key, config_.ca});
      if (!credentials) return credentials.error();
      remote_ = std::make_unique<Counter>(desk({}));
      if (!remote_->open(config_.api_tcp, *credentials)) {
        return control::cannot_serve("api.tcp", config_.api_tcp);
      }
    }
    auto door = control::UserDoor::open(config_.api_unix, "api.unix", log_);
    if (!door) return std::move(door).error();
    door_ = std::move(*door);
    // Others than this user may come; who has no role is turned away.
    const bool others = !config_.operators.empty() || !config_.viewers.empty();
    if (others && ::chmod(config_.api_unix.c_str(), 0666) != 0) {
      return system_error("cannot open " + config_.api_unix + " for others", errno);
    }
    door_->start(
        [this](std::uint32_t user, Fd connection) { return let_in(user, std::move(connection)); });
    return {};
  }

 private:
  Desk desk(std::optional<Caller> everybody) {
    return {chair_,    leaders_, gate_,     log_, version_, config_.name, std::move(everybody),
            watchers_, refused_, enrol_pin_};
  }

  // Each user has a server of its own.
  Status let_in(std::uint32_t user, Fd connection) {
    Counter* counter = counter_of(user);
    if (counter == nullptr) return Error{ErrorCode::kDenied, "a user without a role"};
    counter->take(connection.release());
    return {};
  }

  Counter* counter_of(std::uint32_t user) {
    if (const auto known = local_.find(user); known != local_.end()) return known->second.get();
    const auto role = Gate::role_of_user(config_, user);
    if (!role) return nullptr;
    const std::string name = "unix-" + std::to_string(user);
    auto counter = std::make_unique<Counter>(desk(Caller{name, *role, "unix"}));
    if (!counter->open({}, nullptr)) return nullptr;
    return local_.emplace(user, std::move(counter)).first->second.get();
  }

  const Config& config_;
  Chair& chair_;
  Gate& gate_;
  const Log log_;
  const std::string version_;
  Leaders leaders_;
  std::string enrol_pin_;
  std::atomic<int> watchers_{0};
  Refused refused_;
  std::unique_ptr<Counter> remote_;
  std::map<std::uint32_t, std::unique_ptr<Counter>>
      local_;  // The door's thread alone, till it ends.
  std::unique_ptr<control::UserDoor> door_;
};

}  // namespace

Result<std::unique_ptr<ApiThread>> ApiThread::start(const Config& config, Chair& chair, Gate& gate,
                                                    const Log& log, std::string_view version) {
  auto api = std::make_unique<Api>(config, chair, gate, log, version);
  if (Status status = api->start(); !status) return status.error();
  return std::unique_ptr<ApiThread>(std::move(api));
}

}  // namespace flyt::cluster
