#include "control/client/office.h"

#include <algorithm>

#include "base/wall_clock.h"

namespace flyt::vm {
namespace {

constexpr Duration kWatchRestLeast = std::chrono::milliseconds(500);
constexpr Duration kWatchRestMost = std::chrono::seconds(5);

}  // namespace

Office::Office(BrokerOptions options, const Log& log)
    : log_(log.limited(lines_)), broker_(std::move(options), system_clock().now()) {}

Now Office::now() { return {system_clock().now(), unix_seconds()}; }

void Office::changed() {
  moved_.notify_all();
  sends_.signal();
  const VirtualGpu& gpu = broker_.gpu();
  if (broker_.cluster_is_away() != away_) {
    away_ = broker_.cluster_is_away();
    if (away_) {
      log_.warn("nothing comes from the cluster; programs go on with what they have",
                {{"why", broker_.why_away()}});
    } else {
      log_.info("the cluster answers");
    }
  }
  if (gpu.phase == phase_ && gpu.generation == generation_) return;
  phase_ = gpu.phase;
  generation_ = gpu.generation;
  log_.info("virtual GPU", {{"phase", to_string(gpu.phase)},
                            {"node", gpu.node},
                            {"ahead", gpu.ahead},
                            {"generation", gpu.generation},
                            {"programs", broker_.users()},
                            {"why", gpu.reason}});
}

void Office::arrive(ProgramId id, Program program) {
  const Lock lock(mutex_);
  broker_.arrive(id, std::move(program), now());
  changed();
}

void Office::leave(ProgramId id) {
  const Lock lock(mutex_);
  broker_.leave(id, now());
  changed();
}

void Office::adopt(ProgramId id, Program program) {
  const Lock lock(mutex_);
  broker_.adopt(id, std::move(program));
}

void Office::pass() {
  const Lock lock(mutex_);
  broker_.pass(now());
}

std::vector<Broker::Send> Office::take_sends() {
  const Lock lock(mutex_);
  return broker_.take_sends();
}

std::string Office::status_json() {
  const Lock lock(mutex_);
  return broker_.status_json();
}

void Office::stop() {
  const Lock lock(mutex_);
  stopped_ = true;
  changed();
}

void Office::run_asks(ClusterLink& link) {
  for (;;) {
    std::optional<Broker::Ask> ask;
    {
      mutex_.lock();
      while (!stopped_ && !(ask = broker_.next(now()))) {
        const Duration rest = broker_.wake_at(now()) - now().at;
        moved_.wait_for(mutex_, std::max<Duration>(rest, std::chrono::milliseconds(1)));
      }
      const bool stopped = stopped_;
      mutex_.unlock();
      if (stopped) return;
    }
    const bool wanted = ask->kind == Broker::Ask::Kind::kRequest;
    const auto answer = wanted ? link.request() : link.release();
    if (!answer) {
      log_.info(wanted ? "no answer to a request" : "no answer to a release",
                {{"why", answer.error().message}});
    }
    const Lock lock(mutex_);
    broker_.answered(*ask, answer, now());
    changed();
  }
}

bool Office::pause(Duration duration) {
  const Instant end = system_clock().now() + duration;
  mutex_.lock();
  while (!stopped_ && system_clock().now() < end) {
    moved_.wait_for(mutex_, end - system_clock().now());
  }
  const bool stopped = stopped_;
  mutex_.unlock();
  return !stopped;
}

void Office::run_watch(ClusterLink& link) {
  Duration rest = kWatchRestLeast;
  do {
    const Error ended = link.watch([&](const VirtualGpu& gpu) {
      rest = kWatchRestLeast;
      const Lock lock(mutex_);
      broker_.heard(gpu, now());
      changed();
    });
    {
      const Lock lock(mutex_);
      if (stopped_) return;
      broker_.cluster_away(ended.message, now());
      changed();
    }
    rest = std::min<Duration>(rest * 2, kWatchRestMost);
  } while (pause(rest));
}

}  // namespace flyt::vm
