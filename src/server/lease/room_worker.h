// RoomWorker: the thread of a process that waits for a client: hears whether it has to give way on
// a GPU that takes so many processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "base/room.h"

namespace flyt::server {

class RoomWorker {
 public:
  // `gives_way` is called on the worker's thread, once. The room outlives it.
  RoomWorker(Room& room, std::uint32_t most, std::function<void()> gives_way);
  ~RoomWorker();
  RoomWorker(const RoomWorker&) = delete;
  RoomWorker& operator=(const RoomWorker&) = delete;

 private:
  void loop();

  Room& room_;
  const std::uint32_t most_;
  const std::function<void()> gives_way_;
  const std::uint32_t seen_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace flyt::server
