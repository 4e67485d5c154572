// VMs whose requirements come from a database that somebody else keeps.
#include <algorithm>

#include "base/text.h"
#include "control/cluster/manager.h"
#include "control/cluster/records.h"

namespace flyt::cluster {
namespace {

constexpr const char* kMongodb = "mongodb";
// At once, so that nobody else waits for long.
constexpr std::size_t kOfOneCommitMax = 500;
constexpr std::size_t kSkippedShownMax = 5;
// Whoever asks for unknown VMs all the time does not make us read all the time.
constexpr Duration kLeastPeriod = std::chrono::seconds(1);

template <class T>
std::span<const T> part_of(const std::vector<T>& all, std::size_t begin) {
  return std::span(all).subspan(begin, std::min(kOfOneCommitMax, all.size() - begin));
}

}  // namespace

// Without a database in the configuration operators set all VMs, wherever they are from.
bool Manager::listed(const Vm& vm) const {
  return !config_.mongodb.empty() && vm.spec.source() == kMongodb;
}

Status Manager::check_listed(const Vm& vm, const v1::VmSpec& spec) const {
  const v1::VmSpec& is = vm.spec;
  if (spec.address() == is.address() && spec.host() == is.host() && spec.sms() == is.sms() &&
      spec.memory_bytes() == is.memory_bytes()) {
    return {};
  }
  return Error{ErrorCode::kUnsupported,
               "VM " + is.name() +
                   "'s address, host, multiprocessors and memory come from MongoDB: change them"
                   " there; all else can be set here"};
}

Result<v1::VmSpec> Manager::spec_of(const requirements::Requirement& wanted) {
  v1::VmSpec spec;
  if (const Vm* vm = find_vm(wanted.vm)) {
    spec = vm->spec;
  } else {
    if (vms_.size() >= kVmsMax) return Error{ErrorCode::kLimit, "there are too many VMs"};
    spec.set_name(wanted.vm);
  }
  spec.set_host(wanted.host);
  spec.set_sms(wanted.sms);
  spec.set_memory_bytes(wanted.memory_bytes);
  spec.set_source(kMongodb);
  if (Status status = check_spec(spec); !status) return status.error();
  if (Status status = check_names(spec); !status) return status.error();
  return spec;
}

Status Manager::set_required(std::span<const requirements::Requirement> wanted,
                             std::vector<requirements::Skipped>& refused) {
  Batch batch;
  std::vector<v1::VmSpec> specs;
  for (const requirements::Requirement& one : wanted) {
    auto spec = spec_of(one);
    if (!spec) {
      refused.push_back({one.vm, spec.error().message});
      continue;
    }
    batch.put("vms/" + spec->name(), *spec);
    batch.event(find_vm(spec->name()) == nullptr ? "vm-added" : "vm-changed", "", spec->name(),
                "by MongoDB: " + text_of(*spec));
    specs.push_back(std::move(*spec));
  }
  if (Status status = ledger_.commit(std::move(batch)); !status) return status;
  for (const v1::VmSpec& spec : specs) {
    set_spec(spec);
    Vm& vm = *find_vm(spec.name());
    if (vm.wish) queue_again(vm);
  }
  return {};
}

// Those that have a virtual GPU keep it, and go when it is given back.
Status Manager::drop_required(std::span<const std::string> names) {
  Batch batch;
  std::vector<std::string> dropped;
  for (const std::string& name : names) {
    const auto found = vms_.find(name);
    // An operator may have made it his own meanwhile.
    if (found == vms_.end() || found->second.grant || !listed(found->second)) continue;
    plan_removal(found->second, "MongoDB does not have it any more", batch);
    dropped.push_back(name);
  }
  if (Status status = ledger_.commit(std::move(batch)); !status) return status;
  for (const std::string& name : dropped) forget_vm(name);
  return {};
}

Result<std::vector<requirements::Skipped>> Manager::take_requirements(
    const requirements::Answer& answer) {
  requirements::Difference difference;
  {
    const Lock lock(mutex_);
    std::vector<requirements::Known> known;
    requirements_.gone.clear();
    for (const auto& [name, vm] : vms_) {
      known.push_back({.name = name,
                       .address = vm.spec.address(),
                       .listed = listed(vm),
                       .host = vm.spec.host(),
                       .sms = vm.spec.sms(),
                       .memory_bytes = vm.spec.memory_bytes()});
      // Nobody is removed because all is gone; but operators may.
      if (answer.rows() == 0 && listed(vm)) requirements_.gone.insert(name);
    }
    difference = requirements::difference(known, answer);
    requirements_.gone.insert(difference.gone.begin(), difference.gone.end());
  }
  std::vector<requirements::Skipped> refused = std::move(difference.refused);
  for (std::size_t at = 0; at < difference.changed.size(); at += kOfOneCommitMax) {
    const Lock lock(mutex_);
    const Status status = set_required(part_of(difference.changed, at), refused);
    if (!status) return status.error();
  }
  for (std::size_t at = 0; at < difference.gone.size(); at += kOfOneCommitMax) {
    const Lock lock(mutex_);
    if (Status status = drop_required(part_of(difference.gone, at)); !status) {
      return status.error();
    }
  }
  const Lock lock(mutex_);
  place();
  changed();
  return refused;
}

void Manager::note_requirements(const std::string& problem, std::vector<std::string> skipped) {
  const Lock lock(mutex_);
  const bool old = !requirements_.problem.empty();
  requirements_.problem = problem;
  if (problem.empty()) requirements_.skipped = std::move(skipped);
  ++(problem.empty() ? counters_.requirements_read : counters_.requirements_failed);
  if (stopping_ || old == !problem.empty()) return;
  if (old) {
    note("requirements-read", "", "", "VMs' requirements are as MongoDB has them again");
  } else {
    note("requirements-old", "", "", problem + "; VMs keep what they had");
  }
}

bool Manager::await_requirements(Duration period) {
  std::unique_lock<Mutex> lock(mutex_);
  static_cast<void>(
      changed_.wait_for(lock, std::min(period, kLeastPeriod), [this] { return stopping_; }));
  static_cast<void>(changed_.wait_for(lock, std::max(period - kLeastPeriod, Duration(0)),
                                      [this] { return stopping_ || requirements_.asked; }));
  requirements_.asked = false;
  return !stopping_;
}

std::string Manager::requirements_problem() {
  const Lock lock(mutex_);
  return requirements_.problem;
}

void Manager::add_requirements_problems(std::vector<std::string>& problems) const {
  if (!requirements_.problem.empty()) {
    problems.push_back(requirements_.problem + "; VMs keep what they had");
  }
  const std::vector<std::string>& skipped = requirements_.skipped;
  const std::size_t shown = std::min(skipped.size(), kSkippedShownMax);
  for (std::size_t i = 0; i < shown; ++i) problems.push_back("MongoDB: " + skipped[i]);
  if (skipped.size() > shown) {
    problems.push_back("MongoDB: " + std::to_string(skipped.size() - shown) +
                       " rows more are skipped");
  }
}

}  // namespace flyt::cluster
