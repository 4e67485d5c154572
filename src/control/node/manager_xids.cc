// What a manager does about errors (Xids) of its GPUs: it counts all, tells of them, and takes a
// GPU for failed that will not work any more.
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "control/node/inventory.h"
#include "control/node/manager.h"

namespace flyt::node {
namespace {

// Of each number: programs may cause some of them again and again.
constexpr Duration kXidsTold = std::chrono::seconds(60);

// Another one after each start of the machine, and GPUs are new ones then.
std::string boot() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

void Manager::note_xids() {
  const Lock lock(mutex_);
  if (stopping_ || xid_watch_ == nullptr) return;
  GpuFailures fatal;
  for (const auto& [gpu, counts] : xid_watch_->take()) {
    for (const auto& [number, times] : counts) {
      Xids& xids = xids_[{gpu, number}];
      xids.seen += times;
      if (kind_of_xid(number) == XidKind::kFatal) fatal.emplace(gpu, xid_text(number));
    }
  }
  const Instant now = system_clock().now();
  std::map<std::uint32_t, XidCounts> due;
  for (auto& [key, xids] : xids_) {
    if (xids.seen == xids.told || now < xids.next) continue;
    due[key.first][key.second] = xids.seen - std::exchange(xids.told, xids.seen);
    xids.next = now + kXidsTold;
  }
  for (const auto& [gpu, counts] : due) tell_xids(gpu, counts);
  for (const auto& [gpu, why] : fatal) {
    if (failed_.contains(gpu)) continue;
    fail(gpu, why);
    keep_failed(gpu, why);
  }
}

// One event, and a line for each number, whose fields are for programs.
void Manager::tell_xids(std::uint32_t gpu, const XidCounts& counts) {
  const Gpu* const facts = planner_->find(gpu);
  for (const auto& [number, times] : counts) {
    log_.warn("Xid", {{"gpu", gpu},
                      {"uuid", facts != nullptr ? facts->uuid : ""},
                      {"xid", number},
                      {"times", times},
                      {"text", xid_text(number)}});
  }
  const Event told =
      event("gpu-xid", nullptr, "GPU " + std::to_string(gpu) + ": " + xids_text(counts));
  static_cast<void>(checked(state_->append(told)).ok());
  events_.add(told);
}

void Manager::keep_failed(std::uint32_t gpu, const std::string& why) {
  const Gpu* const facts = planner_->find(gpu);
  if (facts == nullptr) return;
  static_cast<void>(checked(state_->keep_failed(facts->uuid, boot(), why)).ok());
}

void Manager::recall_failed() {
  const auto kept = state_->failed(boot());
  if (!kept || kept->empty()) return;
  const auto uuids = find_gpus(config_);
  if (!uuids) return;
  for (std::uint32_t gpu = 0; gpu < uuids->size(); ++gpu) {
    if (const auto found = kept->find((*uuids)[gpu]); found != kept->end()) {
      failed_.emplace(gpu, found->second);
    }
  }
}

}  // namespace flyt::node
