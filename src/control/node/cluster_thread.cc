#include "control/node/cluster_thread.h"

#include <algorithm>
#include <string>
#include <thread>

#include "base/annotations.h"
#include "base/random.h"
#include "base/text.h"
#include "control/cluster_client/cluster_client.h"
#include "control/node/messages.h"

namespace flyt::node {
namespace {

constexpr std::uint32_t kRetryMs = 500;
constexpr std::uint32_t kPauseMsMax = 300'000;
constexpr int kProblemsMax = 256;
constexpr std::size_t kProblemBytesMax = 256;

class Reporter final : public ClusterThread {
 public:
  Reporter(const Config& config, Manager& manager, const Log& log, std::string_view version,
           std::unique_ptr<cluster::ClusterClient> client)
      : config_(config),
        manager_(manager),
        log_(log),
        version_(version),
        instance_(std::to_string(random_seed())),
        client_(std::move(client)),
        thread_([this] { run(); }) {}
  ~Reporter() override {
    {
      const Lock lock(mutex_);
      stopping_ = true;
    }
    stop_.notify_all();
    thread_.join();
  }

 private:
  cluster::v1::NodeReport report() {
    cluster::v1::NodeReport report;
    report.set_name(config_.name);
    report.set_address(config_.cluster_advertise);
    report.set_host(config_.cluster_host);
    report.set_instance(instance_);
    if (config_.tcp_port_first != 0) report.set_lease_host(config_.advertise);
    report.set_host_only(config_.tcp_port_first == 0);
    *report.mutable_description() = message_of(manager_.describe(), version_);
    for (const LeaseView& view : manager_.leases()) *report.add_leases() = message_of(view);
    for (const std::string& problem : manager_.concerns()) {
      if (report.problems_size() < kProblemsMax)
        report.add_problems(plain_text(problem, kProblemBytesMax));
    }
    return report;
  }

  // Milliseconds until the next one.
  std::uint32_t tell() {
    const auto reply = client_->report(report());
    std::string problem = reply ? "" : reply.error().message;
    // So the one before is refused as soon as another one decides, also if that asks for nothing.
    if (reply && reply->epoch() != 0) {
      const Status followed = manager_.follow(reply->cluster(), reply->epoch());
      if (!followed) problem = followed.error().message;
    }
    if (problem != problem_) {
      if (problem.empty()) log_.info("in a cluster", {{"cluster", reply->cluster()}});
      if (!problem.empty()) log_.warn("not in the cluster", {{"why", problem}});
      problem_ = problem;
    }
    return reply ? std::clamp(reply->next_report_ms(), 10u, kPauseMsMax) : kRetryMs;
  }

  void run() {
    problem_ = "nothing was reported yet";
    while (true) {
      const std::chrono::milliseconds pause(tell());
      std::unique_lock<Mutex> lock(mutex_);
      if (stop_.wait_for(lock, pause, [this] { return stopping_; })) return;
    }
  }

  const Config& config_;
  Manager& manager_;
  const Log log_;
  const std::string version_;
  const std::string instance_;
  const std::unique_ptr<cluster::ClusterClient> client_;
  std::string problem_;
  Mutex mutex_;
  Condition stop_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<ClusterThread>> ClusterThread::start(const Config& config, Manager& manager,
                                                            const Log& log,
                                                            std::string_view version) {
  std::string all;
  for (const std::string& one : config.clusters) all += (all.empty() ? "" : ",") + one;
  auto client = cluster::ClusterClient::connect(
      {all, config.cluster_cert, config.cluster_key, config.cluster_ca,
       pki::Revocations::of(config.cluster_crl, config.cluster_ca)});
  if (!client) return std::move(client).error();
  return std::unique_ptr<ClusterThread>(
      std::make_unique<Reporter>(config, manager, log, version, std::move(*client)));
}

}  // namespace flyt::node
