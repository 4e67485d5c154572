// Placement at scale: the scheduler itself over seeded nodes and virtual machines. Times are the
// processor's: it is one thread that waits for nothing, and what else the machine does is left out.
//
// flyt-placement-bench [--nodes N] [--gpus N] [--vms N] [--seed N] [--check]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "bench/stopwatch.h"
#include "control/cluster/placement/scheduler.h"

namespace flyt::bench {
namespace {

using placement::ClusterMap;
using placement::Policy;
using placement::Request;
using placement::Scheduler;

// What docs and users rely on; --check refuses less.
constexpr double kPlacementP99Ms = 5;
constexpr double kPlacementsPerSecond = 500;
constexpr double kListMs = 500;
constexpr double kRestartMs = 3000;
constexpr double kMemoryMiB = 600;

struct Options {
  std::size_t nodes = 1000;
  std::uint32_t gpus = 8;
  std::size_t vms = 20000;
  std::uint64_t seed = 1;
  bool check = false;
};

// An H200: 16 groups of 8 multiprocessors, and 4 that make none.
placement::GpuFacts gpu_facts(std::uint32_t index) {
  placement::GpuFacts gpu;
  gpu.index = index;
  gpu.kind = "NVIDIA H200";
  gpu.groups.assign(16, 8);
  gpu.groups.push_back(4);
  gpu.memory_bytes = 141 * kGiB;
  gpu.reserve_bytes = 512 * kMiB;
  return gpu;
}

std::string name_of(const char* what, std::size_t number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%s-%05zu", what, number);
  return text;
}

placement::NodeFacts node_facts(const Options& options, std::size_t number) {
  placement::NodeFacts node;
  node.name = name_of("node", number);
  node.host = node.name;
  node.labels["rack"] = std::to_string(number / 20);
  node.overhead_per_lease = 544 * kMiB * 2;
  for (std::uint32_t i = 0; i < options.gpus; ++i) node.gpus.push_back(gpu_facts(i));
  return node;
}

// A quarter wants one group, few want a whole GPU; one in twenty is kept apart from its like.
Request vm_request(const Options& options, Random& random, std::size_t number) {
  constexpr std::uint32_t kGroups[] = {1, 1, 1, 2, 2, 2, 3, 4, 4, 6, 8};
  Request request;
  request.id = name_of("vm", number);
  request.sms = 8 * kGroups[random.below(std::size(kGroups))];
  request.memory_bytes = (2 + random.below(6) * request.sms / 8) * kGiB;
  request.priority = static_cast<std::int32_t>(random.below(3));
  request.policy = static_cast<Policy>(random.below(3));
  request.host = name_of("node", random.below(options.nodes));
  request.labels["team"] = std::to_string(random.below(50));
  if (random.one_in(20)) {
    request.labels["service"] = std::to_string(random.below(200));
    request.apart = {{"service", placement::Apart::From::kNode}};
  }
  if (random.one_in(50)) request.require["rack"] = std::to_string(random.below(50));
  return request;
}

class Watch {
 public:
  double us() const { return (process_cpu_ns() - begin_) / 1000; }

 private:
  double begin_ = process_cpu_ns();
};

struct Row {
  std::string what;
  std::vector<double> us;  // Of each step.
  std::size_t placed = 0;
  double total_us = 0;

  double at(double part) const {
    if (us.empty()) return 0;
    std::vector<double> sorted = us;
    std::sort(sorted.begin(), sorted.end());
    return sorted[std::min(sorted.size() - 1,
                           static_cast<std::size_t>(part * static_cast<double>(sorted.size())))];
  }
  double per_second() const {
    return total_us > 0 ? static_cast<double>(placed) * 1e6 / total_us : 0;
  }
};

void print(const Row& row, std::size_t waiting) {
  std::printf("%-40s %8zu %9.1f %9.1f %9.1f %12.0f %8zu\n", row.what.c_str(), row.placed,
              row.at(0.5), row.at(0.99), row.us.empty() ? 0 : row.at(1), row.per_second(), waiting);
}

double resident_mib() {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("VmRSS:")) return std::atof(line.c_str() + 6) / 1024;
  }
  return 0;
}

class Simulation {
 public:
  explicit Simulation(const Options& options) : options_(options), random_(options.seed) {}

  bool run() {
    std::printf("%zu nodes with %u GPUs, %zu virtual machines, seed %llu\n\n", options_.nodes,
                options_.gpus, options_.vms, static_cast<unsigned long long>(options_.seed));
    std::printf("%-40s %8s %9s %9s %9s %12s %8s\n", "", "placed", "p50 us", "p99 us", "max us",
                "placements/s", "waiting");
    const Watch nodes;
    for (std::size_t i = 0; i < options_.nodes; ++i) add_node(i);
    scheduler_.pump();
    const double nodes_ms = nodes.us() / 1000;
    arrive("arriving at an empty cluster", options_.vms);
    come_and_go("coming and going", options_.vms);
    overfill();
    come_and_go("coming and going, full, many waiting", options_.vms / 4);
    lose_nodes();
    std::printf("\n%-40s %9.1f ms\n", "all nodes registered", nodes_ms);
    list();
    explain();
    restart();
    const double memory = resident_mib();
    std::printf("%-40s %9.1f MiB\n", "memory of the process", memory);
    expect("memory", memory <= kMemoryMiB);
    return good_;
  }

 private:
  void expect(const char* what, bool good) {
    if (!options_.check || good) return;
    std::printf("%s: not what it has to be\n", what);
    good_ = false;
  }
  void add_node(std::size_t number) {
    if (!scheduler_.map().set_node(node_facts(options_, number))) std::abort();
  }
  // One step: whoever comes asks, and whoever fits is placed.
  void step(Row& row, const Request& request) {
    const Watch watch;
    if (!scheduler_.submit(request)) std::abort();
    take(row, watch, true);
  }
  void take(Row& row, const Watch& watch, bool asked) {
    const auto placed = scheduler_.pump();
    const double us = watch.us();
    row.total_us += us;
    row.placed += placed.size();
    // An end that makes room for nobody is no placement.
    if (asked || !placed.empty()) row.us.push_back(us);
    for (const auto& one : placed) leases_.push_back(one.lease.id);
  }
  void finish(const Row& row) {
    print(row, scheduler_.queue().size());
    expect(row.what.c_str(),
           row.at(0.99) <= kPlacementP99Ms * 1000 && row.per_second() >= kPlacementsPerSecond);
  }

  void arrive(const char* what, std::size_t count) {
    Row row{.what = what, .us = {}};
    for (std::size_t i = 0; i < count; ++i) step(row, vm_request(options_, random_, number_++));
    finish(row);
  }
  // One lease ends, who waits is placed, and another one asks.
  void come_and_go(const char* what, std::size_t count) {
    Row row{.what = what, .us = {}};
    for (std::size_t i = 0; i < count; ++i) {
      std::swap(leases_[random_.below(leases_.size())], leases_.back());
      const Watch watch;
      scheduler_.map().release(leases_.back());
      leases_.pop_back();
      take(row, watch, false);
      step(row, vm_request(options_, random_, number_++));
    }
    finish(row);
  }
  void overfill() {
    Row row{.what = "filling until a quarter waits", .us = {}};
    while (scheduler_.queue().size() < options_.vms / 4) {
      step(row, vm_request(options_, random_, number_++));
    }
    finish(row);
  }
  // Leases of lost nodes ask again, before all others.
  void lose_nodes() {
    Row row{.what = "leases of 10 lost nodes, placed again", .us = {}};
    // Room for them: the queue is not what is measured here.
    for (const auto* waiting : scheduler_.queue()) scheduler_.cancel(waiting->request.id);
    for (std::size_t i = 0; i < options_.vms / 10 && !leases_.empty(); ++i) {
      scheduler_.map().release(leases_.back());
      leases_.pop_back();
    }
    scheduler_.pump();
    for (std::size_t i = 0; i < std::min<std::size_t>(10, options_.nodes); ++i) {
      const std::string name = name_of("node", i * options_.nodes / 10);
      const auto node = scheduler_.map().node(name);
      if (!node) continue;
      scheduler_.map().set_state(name, placement::NodeState::kLost);
      std::vector<placement::HeldLease> lost;
      for (const auto* lease : scheduler_.map().leases_on(*node)) lost.push_back(*lease);
      for (const auto& lease : lost) {
        scheduler_.map().release(lease.id);
        std::erase(leases_, lease.id);
        Request request;
        request.id = lease.id;
        request.sms = lease.sms;
        request.memory_bytes = lease.memory_bytes;
        request.priority = 10;
        step(row, request);
      }
    }
    finish(row);
  }

  // Every node, GPU and lease, as values of their own.
  void list() {
    const Watch watch;
    std::size_t rows = 0;
    std::size_t bytes = 0;
    const ClusterMap& map = scheduler_.map();
    for (const ClusterMap::NodeId id : map.nodes()) {
      const placement::NodeFacts facts = map.facts(id);
      bytes += facts.name.size();
      rows += 1 + map.use(id).size();
      for (const auto* lease : map.leases_on(id)) {
        const placement::HeldLease copy = *lease;
        bytes += copy.id.size() + copy.why.size();
        ++rows;
      }
    }
    const double ms = watch.us() / 1000;
    std::printf("%-40s %9.1f ms, %zu rows\n", "list of everything", ms, rows);
    expect("list", ms <= kListMs && bytes > 0);
  }

  void explain() {
    const auto leases = scheduler_.map().lease_count();
    Request request = vm_request(options_, random_, number_++);
    request.sms = 132;
    request.labels["team"] = "nobody";
    const Watch watch;
    const auto told = scheduler_.what_if(request);
    std::printf("%-40s %9.1f ms, %zu nodes, %zu leases\n", "why a request waits", watch.us() / 1000,
                told.nodes.size(), leases);
  }

  void restart() {
    std::vector<placement::HeldLease> leases;
    const ClusterMap& map = scheduler_.map();
    for (const ClusterMap::NodeId id : map.nodes()) {
      for (const auto* lease : map.leases_on(id)) leases.push_back(*lease);
    }
    Random random(options_.seed + 1);
    const Watch watch;
    Scheduler next;
    for (std::size_t i = 0; i < options_.nodes; ++i) {
      if (!next.map().set_node(node_facts(options_, i))) std::abort();
    }
    for (const auto& lease : leases) {
      if (!next.map().hold(lease)) std::abort();
    }
    std::size_t waiting = 0;
    for (; waiting < options_.vms / 4; ++waiting) {
      Request request = vm_request(options_, random, number_++);
      request.sms = 132;
      if (!next.resume({.request = request, .sequence = waiting + 1})) std::abort();
    }
    next.pump();
    const double ms = watch.us() / 1000;
    std::printf("%-40s %9.1f ms, %zu leases, %zu waiting\n", "restart: all told again", ms,
                leases.size(), waiting);
    expect("restart", ms <= kRestartMs);
  }

  const Options options_;
  Random random_;
  Scheduler scheduler_;
  std::vector<std::string> leases_;
  std::size_t number_ = 0;
  bool good_ = true;
};

}  // namespace
}  // namespace flyt::bench

int main(int argc, char** argv) {
  flyt::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&] { return i + 1 < argc ? std::strtoull(argv[++i], nullptr, 10) : 0; };
    if (word == "--nodes") {
      options.nodes = number();
    } else if (word == "--gpus") {
      options.gpus = static_cast<std::uint32_t>(number());
    } else if (word == "--vms") {
      options.vms = number();
    } else if (word == "--seed") {
      options.seed = number();
    } else if (word == "--check") {
      options.check = true;
    } else {
      std::puts(
          "usage: flyt-placement-bench [--nodes N] [--gpus N] [--vms N] [--seed N] [--check]\n"
          "--check: the exit status is 1 if it is slower or larger than it has to be");
      return word == "--help" ? 0 : 2;
    }
  }
  if (options.nodes == 0 || options.gpus == 0 || options.gpus > 64 || options.vms < 100) {
    std::fputs("flyt-placement-bench: there are nodes, 1 to 64 GPUs each, 100 machines or more\n",
               stderr);
    return 2;
  }
  return flyt::bench::Simulation(options).run() ? 0 : 1;
}
