// Watches: events and streams whose end the client wants to be told.
#include "server/streams/watches.h"

#include <algorithm>
#include <utility>

#include "commands/event.h"
#include "server/lease/moves.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server {
namespace {

// How many the main thread asks about in one turn.
constexpr std::size_t kLooksInTurn = 4;

}  // namespace

bool Watches::add(std::uint64_t token, For whom, std::function<CUresult()> poll) {
  {
    const Lock lock(mutex_);
    if (full()) return false;
    watches_.push_back({token, whom, std::move(poll)});
    pending_.fetch_add(1, std::memory_order_release);
  }
  lookout_.expect();
  return true;
}

void Watches::look(Look look) {
  if (pending() == 0) return;
  const std::size_t looks = look == Look::kAll ? wire::kWatchesMax : kLooksInTurn;
  for (const Ended& ended : take_ended(looks)) {
    session_.moves().note_done();
    if (ended.whom == For::kProgram) {
      session_.flush_before_reply();
      if (ended.result == CUDA_SUCCESS) {
        session_.memory().host_mirror.before_reply(commands::WatchEvent::kOp);
      }
    }
    session_.endpoint().push_completed(ended.token, static_cast<std::uint32_t>(ended.result));
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

// What is not done goes to the end, so that each has its turn.
std::vector<Watches::Ended> Watches::take_ended(std::size_t looks) {
  std::vector<Ended> ended;
  const auto using_objects = session_.use();
  std::vector<Watch> gone;  // Let go without the lock: it may be the last owner of an event.
  const Lock lock(mutex_);
  for (std::size_t left = std::min(looks, watches_.size()); left > 0; --left) {
    Watch watch = std::move(watches_.front());
    watches_.pop_front();
    const CUresult result = watch.poll();
    if (result == CUDA_ERROR_NOT_READY) {
      watches_.push_back(std::move(watch));
    } else {
      ended.push_back({watch.token, watch.whom, result});
      gone.push_back(std::move(watch));
    }
  }
  return ended;
}

}  // namespace flyt::server
