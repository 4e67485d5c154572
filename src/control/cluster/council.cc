#include "control/cluster/council.h"

#include "control/cluster/etcd_store.h"

namespace flyt::cluster {

void Council::step() {
  candidate_.step();
  const std::shared_ptr<Tenure> tenure = candidate_.tenure();
  if (taken_ && (tenure != taken_ || taken_->ended())) end(taken_->why());
  if (tenure && !taken_ && !tenure->ended()) begin(tenure);
  tell();
}

void Council::begin(const std::shared_ptr<Tenure>& tenure) {
  auto store = std::make_unique<EtcdStore>(etcd_, prefix_, tenure);
  Status status = store->open();
  std::shared_ptr<Manager> manager;
  if (status) {
    manager = make_(std::move(store));
    status = manager->start();
  }
  if (!status) {
    log_.error("cannot decide", {{"why", status.error().message}});
    if (manager) manager->retire();
    candidate_.resign(status.error().message);
    const Lock lock(mutex_);
    failure_ = status.error().message;
    return;
  }
  taken_ = tenure;
  log_.info("decides", {{"term", tenure->fence()}});
  staff_(manager);
  const Lock lock(mutex_);
  deciding_ = std::move(manager);
  known_.reset();
  leader_.reset();
  failure_.clear();
}

void Council::end(const std::string& why) {
  log_.warn("decides no longer", {{"why", why}});
  taken_.reset();
  const Lock lock(mutex_);
  deciding_->retire();
  known_ = std::move(deciding_);
  copied_ = 0;
  failure_ = why;
}

void Council::tell() {
  const auto& leader = candidate_.leader();
  const std::string& problem = candidate_.problem();
  if (problem != told_) {
    if (problem.empty()) log_.info("etcd answers");
    if (!problem.empty()) log_.warn("etcd does not answer", {{"why", problem}});
    told_ = problem;
  }
  const Lock lock(mutex_);
  problem_ = problem;
  if (deciding_) return;
  const bool other = leader && (!leader_ || leader_->instance() != leader->instance());
  leader_ = leader;
  if (!other) return;
  log_.info("follows", {{"leader", leader->name()}, {"at", leader->address()}});
  // From now on somebody else knows better.
  known_.reset();
  copied_ = 0;
}

void Council::stop() {
  {
    const Lock lock(mutex_);
    if (deciding_) deciding_->stop();
  }
  candidate_.resign("this manager is stopping");
}

Answerer Council::answerer() {
  const Lock lock(mutex_);
  Answerer answerer{deciding_, leader_, {}, problem_};
  const bool decides = deciding_ && deciding_->decides();
  if (decides || leader_) return answerer;
  answerer.why = !problem_.empty()   ? problem_
                 : !failure_.empty() ? failure_
                                     : "no cluster manager decides now";
  return answerer;
}

std::shared_ptr<Manager> Council::known() {
  const Lock lock(mutex_);
  if (deciding_) return deciding_;
  const std::uint64_t revision = copy_ == nullptr ? 0 : copy_->revision();
  if (revision == 0 || revision == copied_ || (known_ && copied_ == 0)) return known_;
  auto store = copy_->store();
  // Nobody has decided yet.
  if (const auto made = store->list("identity"); !made || made->empty()) return known_;
  std::shared_ptr<Manager> manager = make_(std::move(store));
  if (Status status = manager->start(false); !status) {
    log_.warn("the copy cannot be read", {{"why", status.error().message}});
    return known_;
  }
  known_ = std::move(manager);
  copied_ = revision;
  return known_;
}

}  // namespace flyt::cluster
