// The cluster manager at scale: nodes that answer at once, and the state in a real file.
//
// flyt-cluster-bench [--nodes N] [--vms N] [--askers N] [--folder DIR] [--check] [--keep]

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "bench/stopwatch.h"
#include "control/cluster/api_thread.h"
#include "control/cluster/candidate.h"
#include "control/cluster/council.h"
#include "control/cluster/etcd_store.h"
#include "control/cluster/gate.h"
#include "control/cluster/sqlite_store.h"
#include "control/cluster/testing/fake_cluster.h"
#include "control/cluster_client/cluster_client.h"
#include "control/etcd/etcd_client.h"

namespace flyt::bench {
namespace {

namespace v1 = cluster::v1;

// What docs and users rely on; --check refuses less.
// Of placements, on disk.
constexpr double kPlacementsMin = 500;
constexpr double kRequestP99Ms = 500;
constexpr double kListMs = 500;
constexpr double kRestartMs = 3000;
constexpr double kMemoryMiB = 600;
constexpr std::uint32_t kLeaseSeconds = 3600;
constexpr std::size_t kWorkers = 32;

struct Options {
  std::size_t nodes = 1000;
  std::size_t vms = 20000;
  std::size_t askers = 64;  // At once, each for one VM after the other.
  std::string folder = "/tmp";
  std::string store = "sqlite";  // Or etcd:HOST:PORT, which is to be empty.
  bool check = false;
  bool keep = false;  // The folder, to start a flyt-cluster-manager with.
};

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1048576;
}

// Nodes that are asked one after the other: they answer at once, and are nobody's thread.
class QuickNodes final : public cluster::NodeCalls {
 public:
  explicit QuickNodes(cluster::testing::FakeNodes& nodes) : nodes_(nodes) {}
  Result<node::v1::Lease> create(const std::string& address,
                                 const node::v1::CreateLeaseRequest& request) override {
    const Lock lock(mutex_);
    return nodes_.create(address, request);
  }
  Result<node::v1::Lease> resize(const std::string& address,
                                 const node::v1::ResizeLeaseRequest& request) override {
    const Lock lock(mutex_);
    return nodes_.resize(address, request);
  }
  Result<node::v1::Lease> release(const std::string& address,
                                  const node::v1::ReleaseLeaseRequest& request) override {
    const Lock lock(mutex_);
    return nodes_.release(address, request);
  }
  Result<node::v1::Lease> lease(const std::string& address, const std::string& lease) override {
    const Lock lock(mutex_);
    return nodes_.lease(address, lease);
  }
  Result<node::v1::Token> token(const std::string& address, const std::string& lease,
                                std::uint32_t seconds) override {
    const Lock lock(mutex_);
    return nodes_.token(address, lease, seconds);
  }
  Result<node::v1::ListSessionsResponse> sessions(const std::string& address) override {
    const Lock lock(mutex_);
    return nodes_.sessions(address);
  }

 private:
  Mutex mutex_;
  cluster::testing::FakeNodes& nodes_;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        folder_(options.folder + "/flyt-cluster-bench-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
    config_.policy = "pack";
    config_.lost_seconds = 3600;
  }
  ~Bench() {
    if (!options_.keep) std::filesystem::remove_all(folder_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  bool run() {
    start();
    for (std::size_t i = 0; i < options_.nodes; ++i) {
      cluster::testing::FakeNode& node = nodes_.add("node-" + std::to_string(i));
      node.gpus = 8;
      node.groups = 16;
      node.memory = 141 * kGiB;
    }
    timed("nodes register", [&] { report(); });
    timed("VMs are set", [&] { set_vms(); });
    place();
    timed("nodes report again", [&] { report(); });
    timed("a tick", [&] { manager_->tick(); });
    list();
    const double memory = resident_mib();
    std::printf("%-32s %9.0f MiB\n", "resident memory", memory);
    expect("memory", memory <= kMemoryMiB);
    manager_.reset();
    const double restart = timed("restart: state read, nodes heard", [&] {
      start();
      report();
    });
    expect("restart", restart <= kRestartMs);
    return good_ || !options_.check;
  }

 private:
  std::unique_ptr<cluster::Store> open() {
    if (options_.store == "sqlite") {
      auto store = cluster::SqliteStore::open(folder_ + "/cluster.db");
      if (!store) std::abort();
      return std::move(*store);
    }
    if (!etcd_) {
      const auto members = control::parse_etcd_url(options_.store);
      auto etcd = members ? control::connect_to_etcd(*members, {}) : members.error();
      if (!etcd) std::abort();
      etcd_ = std::move(*etcd);
    }
    if (candidate_) candidate_->resign("again");
    cluster::state::Leader self;
    self.set_name("bench");
    candidate_ = std::make_unique<cluster::Candidate>(
        *etcd_, system_clock(), cluster::Candidate::Settings{"/flyt-bench/", kLeaseSeconds, self});
    candidate_->step();
    if (!candidate_->tenure()) std::abort();
    auto store = std::make_unique<cluster::EtcdStore>(*etcd_, "/flyt-bench/", candidate_->tenure());
    if (!store->open()) std::abort();
    return store;
  }

  void start() {
    manager_ = std::make_unique<cluster::Manager>(config_, Log("bench", LogLevel::kOff), open(),
                                                  calls_, system_clock());
    if (!manager_->start()) std::abort();
  }

  void report() {
    for (const auto& [address, node] : nodes_.all()) {
      if (!manager_->report(node.report())) std::abort();
    }
  }

  void set_vms() {
    for (std::size_t begin = 0; begin < options_.vms; begin += 5000) {
      v1::SetVmsRequest request;
      for (std::size_t i = begin; i < std::min(options_.vms, begin + 5000); ++i) {
        v1::VmSpec& spec = *request.add_vms();
        spec.set_name("vm-" + std::to_string(i));
        spec.set_address("10." + std::to_string(i / 65536) + "." + std::to_string(i / 256 % 256) +
                         "." + std::to_string(i % 256));
        spec.set_sms(static_cast<std::uint32_t>(8 * (1 + i % 8)));
        spec.set_memory_bytes((1 + i % 16) * kGiB);
      }
      if (!manager_->set_vms(request)) std::abort();
    }
  }

  // From a VM's request to the decision on disk: nodes are not asked yet.
  double ask(std::size_t vm) {
    v1::GpuRequest request;
    request.set_vm("vm-" + std::to_string(vm));
    const Stopwatch watch;
    if (!manager_->request(request)) std::abort();
    return watch.us() / 1000;
  }

  // The rate, and of it what the slowest hundredth took, in milliseconds.
  std::pair<double, double> tell(const char* what, std::vector<double> times, double seconds) {
    std::sort(times.begin(), times.end());
    const double rate = static_cast<double>(times.size()) / seconds;
    const double p99 = times[times.size() * 99 / 100];
    std::printf("%-32s %9.0f a second, %.2f ms half, %.2f ms 99 %%\n", what, rate,
                times[times.size() / 2], p99);
    return {rate, p99};
  }

  void place() {
    const std::size_t alone = std::min<std::size_t>(options_.vms / 10, 500);
    std::vector<double> times;
    const Stopwatch first;
    for (std::size_t i = 0; i < alone; ++i) times.push_back(ask(i));
    tell("placed, one at a time", std::move(times), first.us() / 1e6);
    place_at_once(alone);
    make_all();
  }

  void place_at_once(std::size_t next_vm) {
    std::atomic<std::size_t> next = next_vm;
    std::vector<std::vector<double>> times(options_.askers);
    const Stopwatch watch;
    std::vector<std::thread> askers;
    for (std::vector<double>& own : times) {
      askers.emplace_back([this, &next, &own] {
        for (std::size_t i = next++; i < options_.vms; i = next++) own.push_back(ask(i));
      });
    }
    for (std::thread& asker : askers) asker.join();
    const double seconds = watch.us() / 1e6;
    std::vector<double> all;
    for (const auto& own : times) all.insert(all.end(), own.begin(), own.end());
    const auto [rate, p99] = tell("placed, many asking at once", std::move(all), seconds);
    expect("placements a second", rate >= kPlacementsMin);
    expect("request", p99 <= kRequestP99Ms);
  }

  // The leases, as the manager's workers make them.
  void make_all() {
    const Stopwatch watch;
    std::vector<std::thread> workers;
    for (std::size_t i = 0; i < kWorkers; ++i) {
      workers.emplace_back([this] {
        while (const auto job = manager_->next_job(Duration(0))) manager_->run(*job);
      });
    }
    for (std::thread& worker : workers) worker.join();
    // What was put off while its node had enough to do.
    while (const auto job = manager_->next_job(Duration(0))) manager_->run(*job);
    const auto now = manager_->describe();
    std::printf("%-32s %9.0f a second, %u leases, %u waiting\n", "leases made and written",
                static_cast<double>(now.leases()) / (watch.us() / 1e6), now.leases(),
                now.waiting());
  }

  void list() {
    timed("list of everything", [&] {
      if (!manager_->nodes("") || !manager_->vms("") || !manager_->leases("", "")) std::abort();
    });
    cluster::Config config = config_;
    config.run_folder = folder_;
    config.state_folder = folder_;
    if (!cluster::finish(config, {})) std::abort();
    cluster::Gate gate(config);
    cluster::OnlyChair chair(*manager_);
    const auto api =
        cluster::ApiThread::start(config, chair, gate, Log("bench", LogLevel::kOff), "bench");
    const auto client = cluster::ClusterClient::connect({"unix://" + config.api_unix, {}});
    if (!api || !client) std::abort();
    const double ms = timed("the same through the API", [&] {
      const auto nodes = (*client)->nodes("");
      const auto vms = (*client)->vms("");
      const auto leases = (*client)->leases("", "");
      if (!nodes || !vms || !leases) std::abort();
      if (static_cast<std::size_t>(vms->vms_size()) != options_.vms) std::abort();
    });
    expect("list", ms <= kListMs);
  }

  template <class Act>
  double timed(const char* what, Act act) {
    const Stopwatch watch;
    act();
    const double ms = watch.us() / 1000;
    std::printf("%-32s %9.1f ms\n", what, ms);
    return ms;
  }

  void expect(const char* what, bool good) {
    if (good) return;
    std::printf("%s: not good enough\n", what);
    good_ = false;
  }

  const Options options_;
  const std::string folder_;
  cluster::Config config_;
  cluster::testing::Fuse fuse_;
  cluster::testing::FakeNodes nodes_{fuse_};
  QuickNodes calls_{nodes_};
  std::unique_ptr<control::Etcd> etcd_;
  std::unique_ptr<cluster::Candidate> candidate_;
  std::unique_ptr<cluster::Manager> manager_;
  bool good_ = true;
};

}  // namespace
}  // namespace flyt::bench

int main(int argc, char** argv) {
  flyt::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "--nodes" && more) {
      options.nodes = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--vms" && more) {
      options.vms = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--askers" && more) {
      options.askers = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--folder" && more) {
      options.folder = argv[++i];
    } else if (word == "--store" && more) {
      options.store = argv[++i];
    } else if (word == "--check") {
      options.check = true;
    } else if (word == "--keep") {
      options.keep = true;
    } else {
      std::puts(
          "usage: flyt-cluster-bench [--nodes N] [--vms N] [--askers N] [--folder DIR] [--check]"
          " [--keep] [--store etcd:HOST:PORT]");
      return word == "--help" ? 0 : 2;
    }
  }
  if (options.nodes == 0 || options.vms < 100 || options.askers == 0) return 2;
  return flyt::bench::Bench(options).run() ? 0 : 1;
}
