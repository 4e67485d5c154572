#include "control/cluster/api_thread.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <map>

#include "control/cluster.grpc.pb.h"
#include "control/daemon/door_thread.h"
#include "control/grpc/credentials.h"
#include "control/grpc/status.h"
#include "control/grpc/watcher.h"

namespace flyt::cluster {
namespace {

constexpr int kThreadsMax = 640;
constexpr int kWatchersMax = 512;
constexpr int kMessageBytesMax = 16 << 20;
constexpr Duration kWatchStep = std::chrono::milliseconds(500);
constexpr Duration kWatchRest = std::chrono::milliseconds(200);
constexpr auto kShutdownTime = std::chrono::seconds(1);
constexpr int kAliveMs = 15'000;
constexpr int kPingMsMin = 5'000;

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

v1::Role message_of(Role role) {
  switch (role) {
    case Role::kViewer:
      return v1::ROLE_VIEWER;
    case Role::kOperator:
      return v1::ROLE_OPERATOR;
    case Role::kAdmin:
      return v1::ROLE_ADMIN;
    case Role::kNode:
      return v1::ROLE_NODE;
    case Role::kVm:
      return v1::ROLE_VM;
  }
  return v1::ROLE_UNSPECIFIED;
}

// What all services have: who calls, and how many watch.
struct Desk {
  Manager& manager;
  Gate& gate;
  const Log log;
  const std::string version;
  std::optional<Caller> everybody;  // Of a server behind one user's door.
  std::atomic<int>& watchers;

  Result<Caller> caller(const grpc::ServerContext& context) const {
    if (everybody) return *everybody;
    const auto pem = context.auth_context()->FindPropertyValues("x509_pem_cert");
    if (pem.empty()) return Error{ErrorCode::kDenied, "there is no certificate"};
    return gate.caller_of({pem.front().data(), pem.front().size()}, context.peer());
  }
  // The caller, if it has the role.
  Result<Caller> admit(const grpc::ServerContext& context, Role least) const {
    auto found = caller(context);
    const Status status = found ? need(*found, least) : Status(found.error());
    if (status) return found;
    log.warn("refused", {{"peer", context.peer()}, {"reason", status.error().message}});
    return status.error();
  }
  Result<std::string> self(const grpc::ServerContext& context, Role machine,
                           const std::string& named) const {
    const auto found = caller(context);
    auto name = found ? self_of(*found, machine, named) : Result<std::string>(found.error());
    if (!name) {
      log.warn("refused", {{"peer", context.peer()}, {"reason", name.error().message}});
    }
    return name;
  }
  // Does it and writes down who did it; what was refused for a role is written down, too.
  template <class Message, class Act>
  grpc::Status change(const grpc::ServerContext& context, Role least, const char* action,
                      const std::string& subject, const std::string& details, Message* reply,
                      Act act) const {
    v1::AuditEntry entry;
    entry.set_action(action);
    entry.set_subject(subject);
    entry.set_details(details);
    entry.set_peer(context.peer());
    const auto found = caller(context);
    grpc::Status status = found ? grpc::Status::OK : denial(found.error());
    if (found) {
      entry.set_caller(found->name);
      entry.set_role(message_of(found->role));
      if (Status allowed = need(*found, least); !allowed) status = denial(allowed.error());
    }
    if (status.ok()) status = answer(act(), reply);
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
    v1::NodeReport report = *request;
    report.set_name(*name);
    return answer(desk_.manager.report(report), reply);
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
    return answer(desk_.manager.request(wanted), reply);
  }
  grpc::Status Release(grpc::ServerContext* context, const v1::ReleaseGpuRequest* request,
                       v1::VirtualGpu* reply) override {
    const auto vm = desk_.self(*context, Role::kVm, request->vm());
    if (!vm) return denial(vm.error());
    return answer(desk_.manager.release(*vm, "its VM gave it back"), reply);
  }
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchGpuRequest* request,
                     grpc::ServerWriter<v1::VirtualGpu>* out) override {
    const auto vm = desk_.self(*context, Role::kVm, request->vm());
    if (!vm) return denial(vm.error());
    const control::Watcher watcher(desk_.watchers, kWatchersMax);
    if (!watcher.status().ok()) return watcher.status();
    if (Status begun = desk_.manager.watch(*vm, true); !begun)
      return control::status_of(begun.error());
    const grpc::Status status = follow(*context, *vm, *out);
    static_cast<void>(desk_.manager.watch(*vm, false).ok());
    return status;
  }

 private:
  grpc::Status follow(const grpc::ServerContext& context, const std::string& vm,
                      grpc::ServerWriter<v1::VirtualGpu>& out) const {
    std::string last;
    std::uint64_t revision = 0;
    while (!context.IsCancelled() && !desk_.manager.stopping()) {
      const auto gpu = desk_.manager.gpu_of(vm);
      if (!gpu) return control::status_of(gpu.error());
      std::string now = gpu->SerializeAsString();
      if (now != last && !out.Write(*gpu)) break;
      last = std::move(now);
      revision = desk_.manager.wait_for_change(revision, kWatchStep);
    }
    return grpc::Status::OK;
  }

  const Desk& desk_;
};

class OperatorsService final : public v1::Operators::Service {
 public:
  explicit OperatorsService(const Desk& desk) : desk_(desk), manager_(desk.manager) {}

  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeClusterRequest*,
                        v1::ClusterDescription* reply) override {
    const auto caller = desk_.admit(*context, Role::kViewer);
    if (!caller) return denial(caller.error());
    *reply = manager_.describe();
    reply->set_version(desk_.version);
    reply->set_caller(caller->name);
    reply->set_role(message_of(caller->role));
    return grpc::Status::OK;
  }
  grpc::Status ListNodes(grpc::ServerContext* context, const v1::ListNodesRequest* request,
                         v1::ListNodesResponse* reply) override {
    return see(*context, reply, [&] { return manager_.nodes(request->node()); });
  }
  grpc::Status ListVms(grpc::ServerContext* context, const v1::ListVmsRequest* request,
                       v1::ListVmsResponse* reply) override {
    return see(*context, reply, [&] { return manager_.vms(request->vm()); });
  }
  grpc::Status ListLeases(grpc::ServerContext* context, const v1::ListClusterLeasesRequest* request,
                          v1::ListClusterLeasesResponse* reply) override {
    return see(*context, reply, [&] { return manager_.leases(request->vm(), request->node()); });
  }
  grpc::Status ListSessions(grpc::ServerContext* context,
                            const v1::ListClusterSessionsRequest* request,
                            v1::ListClusterSessionsResponse* reply) override {
    return see(*context, reply, [&] { return manager_.sessions(request->vm(), request->node()); });
  }
  grpc::Status Explain(grpc::ServerContext* context, const v1::ExplainRequest* request,
                       v1::Explanation* reply) override {
    return see(*context, reply, [&] { return manager_.explain(request->vm()); });
  }
  grpc::Status Health(grpc::ServerContext* context, const v1::ClusterHealthRequest*,
                      v1::ClusterHealth* reply) override {
    return see(*context, reply, [&] {
      v1::ClusterHealth health;
      for (const std::string& problem : manager_.problems()) health.add_problems(problem);
      health.set_healthy(health.problems_size() == 0);
      return Result<v1::ClusterHealth>(health);
    });
  }
  grpc::Status ListAudit(grpc::ServerContext* context, const v1::ListAuditRequest* request,
                         v1::ListAuditResponse* reply) override {
    const auto caller = desk_.admit(*context, Role::kAdmin);
    if (!caller) return denial(caller.error());
    for (v1::AuditEntry& entry : manager_.audits(request->after())) {
      *reply->add_entries() = std::move(entry);
    }
    return grpc::Status::OK;
  }
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest*,
                     grpc::ServerWriter<v1::Change>* out) override {
    const auto caller = desk_.admit(*context, Role::kViewer);
    if (!caller) return denial(caller.error());
    const control::Watcher watcher(desk_.watchers, kWatchersMax);
    if (!watcher.status().ok()) return watcher.status();
    std::uint64_t told = 0;
    while (!context->IsCancelled() && !manager_.stopping()) {
      const std::uint64_t now = manager_.wait_for_change(told, kWatchStep);
      if (now == told) continue;
      v1::Change change;
      change.set_revision(now);
      if (!out->Write(change)) break;
      told = now;
      // Whoever lists everything after each change shall not do nothing else.
      system_clock().sleep_for(kWatchRest);
    }
    return grpc::Status::OK;
  }
  grpc::Status WatchEvents(grpc::ServerContext* context,
                           const v1::WatchClusterEventsRequest* request,
                           grpc::ServerWriter<v1::ClusterEvent>* out) override {
    const auto caller = desk_.admit(*context, Role::kViewer);
    if (!caller) return denial(caller.error());
    const control::Watcher watcher(desk_.watchers, kWatchersMax);
    if (!watcher.status().ok()) return watcher.status();
    std::uint64_t last = request->after();
    std::uint64_t revision = 0;
    while (!context->IsCancelled()) {
      const auto batch = manager_.events(last);
      for (const v1::ClusterEvent& event : batch) {
        if (!out->Write(event)) return grpc::Status::OK;
        last = event.number();
      }
      if (!batch.empty()) continue;
      if (!request->follow() || manager_.stopping()) break;
      revision = manager_.wait_for_change(revision, kWatchStep);
    }
    return grpc::Status::OK;
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
    return desk_.change(*context, Role::kOperator, "vm set", subject, details, reply,
                        [&] { return manager_.set_vms(*request); });
  }
  grpc::Status RemoveVm(grpc::ServerContext* context, const v1::RemoveVmRequest* request,
                        v1::Vm* reply) override {
    return desk_.change(*context, Role::kOperator, "vm rm", request->vm(),
                        request->force() ? "force" : "", reply,
                        [&] { return manager_.remove_vm(request->vm(), request->force()); });
  }
  grpc::Status ResizeVm(grpc::ServerContext* context, const v1::ResizeVmRequest* request,
                        v1::Vm* reply) override {
    return desk_.change(*context, Role::kOperator, "resize", request->vm(),
                        request->ShortDebugString(), reply,
                        [&] { return manager_.resize(*request); });
  }
  grpc::Status ReleaseVm(grpc::ServerContext* context, const v1::ReleaseVmRequest* request,
                         v1::Vm* reply) override {
    return desk_.change(*context, Role::kOperator, "release", request->vm(), "", reply,
                        [&]() -> Result<v1::Vm> {
                          const auto gpu = manager_.release(request->vm(), "an operator took it");
                          if (!gpu) return gpu.error();
                          auto vms = manager_.vms(gpu->vm());
                          if (!vms) return vms.error();
                          return vms->vms(0);
                        });
  }
  grpc::Status SetNode(grpc::ServerContext* context, const v1::SetNodeRequest* request,
                       v1::Node* reply) override {
    return desk_.change(*context, Role::kOperator, "node set", request->node(),
                        request->ShortDebugString(), reply,
                        [&] { return manager_.set_node(*request); });
  }
  grpc::Status RemoveNode(grpc::ServerContext* context, const v1::RemoveNodeRequest* request,
                          v1::Node* reply) override {
    return desk_.change(*context, Role::kOperator, "node rm", request->node(), "", reply,
                        [&] { return manager_.remove_node(request->node()); });
  }

 private:
  template <class Message, class Ask>
  grpc::Status see(const grpc::ServerContext& context, Message* reply, Ask ask) const {
    const auto caller = desk_.admit(context, Role::kViewer);
    if (!caller) return denial(caller.error());
    return answer(ask(), reply);
  }

  const Desk& desk_;
  Manager& manager_;
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
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(kMessageBytesMax);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Who watches and is cut off would be waited for for ever.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kAliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kAliveMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kPingMsMin);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
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
  Api(const Config& config, Manager& manager, Gate& gate, const Log& log, std::string_view version)
      : config_(config), manager_(manager), gate_(gate), log_(log), version_(version) {}
  ~Api() override {
    door_.reset();
    for (auto& [user, counter] : local_) counter->close();
    if (remote_) remote_->close();
  }

  Status start() {
    if (!config_.api_tcp.empty()) {
      const auto credentials = control::server_credentials({config_.cert, config_.key, config_.ca});
      if (!credentials) return credentials.error();
      remote_ = std::make_unique<Counter>(desk({}));
      if (!remote_->open(config_.api_tcp, *credentials)) {
        return Error{ErrorCode::kSystem, "api.tcp: cannot serve at " + config_.api_tcp +
                                             ": the address is taken, or a certificate is bad"};
      }
    }
    auto door = control::UserDoor::open(config_.api_unix, log_);
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
    return {manager_, gate_, log_, version_, std::move(everybody), watchers_};
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
  Manager& manager_;
  Gate& gate_;
  const Log log_;
  const std::string version_;
  std::atomic<int> watchers_{0};
  std::unique_ptr<Counter> remote_;
  std::map<std::uint32_t, std::unique_ptr<Counter>>
      local_;  // The door's thread alone, till it ends.
  std::unique_ptr<control::UserDoor> door_;
};

}  // namespace

Result<std::unique_ptr<ApiThread>> ApiThread::start(const Config& config, Manager& manager,
                                                    Gate& gate, const Log& log,
                                                    std::string_view version) {
  auto api = std::make_unique<Api>(config, manager, gate, log, version);
  if (Status status = api->start(); !status) return status.error();
  return std::unique_ptr<ApiThread>(std::move(api));
}

}  // namespace flyt::cluster
