// What a manager tells of sessions for which a GPU had no room.
#include <string>

#include "control/node/manager.h"
#include "control/node/server_files.h"

namespace flyt::node {
namespace {

// Programs may try again and again.
constexpr Duration kRefusalsTold = std::chrono::seconds(60);

std::string sessions_text(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " session was" : " sessions were") + " refused: ";
}

}  // namespace

// Without them sessions go on uncounted.
void Manager::open_rooms() {
  if (config_.gpu_sessions == 0) return;
  const Lock lock(mutex_);
  for (const Gpu& gpu : planner_->gpus()) {
    auto room = Room::open(gpu_room(config_, gpu.index));
    if (!room) {
      log_.error("sessions are not counted", {{"gpu", gpu.index}, {"why", room.error().message}});
      continue;
    }
    // What was before this process its events have told, or nobody asks any more.
    refusals_[gpu.index] = {.by_limit = (*room)->refusals(Room::Why::kLimit),
                            .by_driver = (*room)->refusals(Room::Why::kDriver),
                            .next = {}};
    rooms_[gpu.index] = std::move(*room);
  }
}

void Manager::look_for_refusals() {
  const Lock lock(mutex_);
  const Instant now = system_clock().now();
  for (const auto& [gpu, room] : rooms_) {
    Refusals& told = refusals_[gpu];
    if (now < told.next) continue;
    const std::uint64_t by_limit = room->refusals(Room::Why::kLimit);
    const std::uint64_t by_driver = room->refusals(Room::Why::kDriver);
    const std::string name = "GPU " + std::to_string(gpu) + ": ";
    const std::string most = std::to_string(config_.gpu_sessions);
    if (by_limit != told.by_limit) {
      note("gpu-full", nullptr,
           name + sessions_text(by_limit - told.by_limit) + "it has all of the " + most +
               " that gpus.sessions allows, of which " + std::to_string(room->count().ready) +
               " are ready for programs");
    }
    if (by_driver != told.by_driver) {
      note("gpu-full", nullptr,
           name + sessions_text(by_driver - told.by_driver) +
               "its driver takes no more, although gpus.sessions allows " + most +
               "; others use the GPU or its MPS, programs have several contexts, or " +
               "gpus.sessions is more than MPS takes");
    }
    if (by_limit == told.by_limit && by_driver == told.by_driver) continue;
    told = {.by_limit = by_limit, .by_driver = by_driver, .next = now + kRefusalsTold};
  }
}

}  // namespace flyt::node
