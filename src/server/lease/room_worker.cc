#include "server/lease/room_worker.h"

#include <utility>

namespace flyt::server {
namespace {

// How long the destructor may take if it comes in the very moment before the wait.
constexpr Duration kTurn = std::chrono::milliseconds(500);

}  // namespace

RoomWorker::RoomWorker(Room& room, std::uint32_t most, std::function<void()> gives_way)
    : room_(room), most_(most), gives_way_(std::move(gives_way)), seen_(room.wanted()) {
  thread_ = std::thread([this] { loop(); });
}

RoomWorker::~RoomWorker() {
  stopping_.store(true);
  room_.rouse();
  thread_.join();
}

void RoomWorker::loop() {
  std::uint32_t seen = seen_;
  while (!stopping_.load()) {
    const std::uint32_t now = room_.wanted();
    if (now == seen) {
      room_.await_wanted(seen, kTurn);
    } else if (room_.gives_way(most_)) {
      return gives_way_();
    } else {
      seen = now;
    }
  }
}

}  // namespace flyt::server
