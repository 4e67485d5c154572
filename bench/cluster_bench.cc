// The cluster manager at scale: nodes that answer at once, and the state in a real file.
//
// flyt-cluster-bench [--nodes N] [--vms N] [--folder DIR] [--check]

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "bench/stopwatch.h"
#include "control/cluster/candidate.h"
#include "control/cluster/etcd_store.h"
#include "control/cluster/sqlite_store.h"
#include "control/cluster/testing/fake_cluster.h"
#include "control/etcd/etcd_client.h"

namespace flyt::bench {
namespace {

namespace v1 = cluster::v1;

// What docs and users rely on; --check refuses less.
// A request waits for the disk twice.
constexpr double kRequestP99Ms = 100;
constexpr double kListMs = 500;
constexpr double kRestartMs = 3000;
constexpr double kMemoryMiB = 600;
constexpr std::uint32_t kLeaseSeconds = 3600;

struct Options {
  std::size_t nodes = 1000;
  std::size_t vms = 20000;
  std::string folder = "/tmp";
  std::string store = "sqlite";  // Or etcd:HOST:PORT, which is to be empty.
  bool check = false;
};

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1048576;
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        folder_(options.folder + "/flyt-cluster-bench-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
    config_.policy = "pack";
    config_.lost_seconds = 3600;
  }
  ~Bench() { std::filesystem::remove_all(folder_); }
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
                                                  nodes_, system_clock());
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

  void place() {
    std::vector<double> times;
    const Stopwatch all;
    for (std::size_t i = 0; i < options_.vms; ++i) {
      v1::GpuRequest request;
      request.set_vm("vm-" + std::to_string(i));
      const Stopwatch one;
      if (!manager_->request(request)) std::abort();
      times.push_back(one.us() / 1000);
      while (const auto job = manager_->next_job(Duration(0))) manager_->run(*job);
    }
    const double seconds = all.us() / 1e6;
    std::sort(times.begin(), times.end());
    const double p99 = times[times.size() * 99 / 100];
    std::printf("%-32s %9.2f ms half, %.2f ms 99 %%\n", "request: written and placed",
                times[times.size() / 2], p99);
    std::printf("%-32s %9.0f a second, %u leases, %u waiting\n", "virtual GPUs made",
                static_cast<double>(options_.vms) / seconds, manager_->describe().leases(),
                manager_->describe().waiting());
    expect("request", p99 <= kRequestP99Ms);
  }

  void list() {
    const double ms = timed("list of everything", [&] {
      if (!manager_->nodes("") || !manager_->vms("") || !manager_->leases("", "")) std::abort();
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
    } else if (word == "--folder" && more) {
      options.folder = argv[++i];
    } else if (word == "--store" && more) {
      options.store = argv[++i];
    } else if (word == "--check") {
      options.check = true;
    } else {
      std::puts(
          "usage: flyt-cluster-bench [--nodes N] [--vms N] [--folder DIR] [--check]"
          " [--store etcd:HOST:PORT]");
      return word == "--help" ? 0 : 2;
    }
  }
  if (options.nodes == 0 || options.vms < 100) return 2;
  return flyt::bench::Bench(options).run() ? 0 : 1;
}
