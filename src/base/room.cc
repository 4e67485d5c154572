#include "base/room.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <utility>

#include "base/shared_word.h"

namespace flyt {
namespace {

constexpr std::uint64_t kRoomLayout = 1;

}  // namespace

// Zeroes are what a new file holds. Places are written behind the door, but for what their own
// process says of itself.
struct Room::Page {
  struct Place {
    std::atomic<Kind> kind;
    std::atomic<std::uint32_t> process;
    std::atomic<std::uint64_t> session;  // Which the place is kept for; 0: for none.
    std::atomic<std::uint32_t> kept_seconds;
    std::atomic<std::int64_t> ended_ns;  // When its process was first seen to be gone; 0: not yet.
  };
  std::atomic<std::uint64_t> layout;
  SharedWord wanted;
  std::array<std::atomic<std::uint64_t>, 2> refusals;
  std::array<Place, kPlacesMax> places;
  std::array<std::atomic<Why>, kWaitersMax> waiters;
};

struct Room::Tally {
  std::uint32_t used = 0;
  std::uint32_t leaving = 0;
  bool returns = false;  // A place is kept for the session, so long.
  std::uint32_t kept_seconds = 0;
  std::optional<std::size_t> free;  // The first one.
};

Result<std::unique_ptr<Room>> Room::open(const std::string& path, const Clock& clock) {
  auto roll = Roll::open(path, sizeof(Page));
  if (!roll) return std::move(roll).error();
  std::unique_ptr<Room> room(new Room(std::move(*roll), clock));
  std::uint64_t none = 0;
  room->page_->layout.compare_exchange_strong(none, kRoomLayout);
  if (room->page_->layout.load() == kRoomLayout) return room;
  return Error{ErrorCode::kUnsupported, path + " is of processes of another version"};
}

Room::Room(Roll roll, const Clock& clock)
    : roll_(std::move(roll)), clock_(clock), page_(static_cast<Page*>(roll_.memory())) {}

Room::~Room() = default;

void Room::each_place(const std::function<void(std::size_t, bool)>& seen) const {
  auto next = roll_.next_taken(0, kPlacesMax);
  for (std::size_t place = 0; place < kPlacesMax; ++place) {
    const bool others = next == place;
    if (others) next = roll_.next_taken(place + 1, kPlacesMax);
    seen(place, others || place_ == place);
  }
}

// Nobody is there.
bool Room::awaited(std::size_t place) const {
  const Page::Place& one = page_->places[place];
  if (one.session.load() == 0) return false;
  const std::int64_t ended = one.ended_ns.load();
  const Duration kept = std::chrono::seconds(one.kept_seconds.load());
  return ended == 0 || clock_.now() < Instant{ended} + kept;
}

Room::Count Room::count() const {
  Count count;
  each_place([&](std::size_t place, bool there) {
    const Kind kind = page_->places[place].kind.load();
    if (!there) {
      if (awaited(place)) ++count.awaited;
    } else if (kind == Kind::kReady) {
      ++count.ready;
    } else if (kind != Kind::kLeaving) {
      ++count.sessions;
    }
  });
  return count;
}

std::uint32_t Room::waiting(Why why) const {
  std::uint32_t count = 0;
  constexpr std::size_t kEnd = kPlacesMax + kWaitersMax;
  for (auto place = roll_.next_taken(kPlacesMax, kEnd); place;
       place = roll_.next_taken(*place + 1, kEnd)) {
    if (page_->waiters[*place - kPlacesMax].load() == why) ++count;
  }
  return count;
}

Room::Tally Room::tally(std::uint64_t returns) {
  Tally tally;
  each_place([&](std::size_t place, bool there) {
    Page::Place& one = page_->places[place];
    if (returns != 0 && one.session.load() == returns && place_ != place) {
      tally.returns = true;
      tally.kept_seconds = one.kept_seconds.load();
      one.session.store(0);
    }
    if (there && one.kind.load() == Kind::kLeaving) {
      ++tally.leaving;
    } else if (there) {
      ++tally.used;
    } else if (awaited(place)) {
      if (one.ended_ns.load() == 0) one.ended_ns.store(clock_.now().ns);
      ++tally.used;
    } else if (!tally.free) {
      tally.free = place;
    }
  });
  return tally;
}

bool Room::enter(Kind kind, std::uint64_t returns, std::uint32_t most) {
  const Roll::Door behind(roll_);
  const Tally now = tally(returns);
  if (!now.returns && now.used >= most) return false;
  if (kind == Kind::kReady && waiting(Why::kLimit) + waiting(Why::kDriver) != 0) return false;
  if (!now.free || !roll_.take(*now.free, *now.free + 1)) return false;
  place_ = now.free;
  Page::Place& one = page_->places[*place_];
  one.session.store(0);
  one.ended_ns.store(0);
  one.process.store(static_cast<std::uint32_t>(::getpid()));
  one.kind.store(kind);
  if (now.returns) keep(returns, now.kept_seconds);
  return true;
}

void Room::serve(std::uint64_t returns) {
  if (!place_) return;
  const Roll::Door behind(roll_);
  const Tally now = tally(returns);
  page_->places[*place_].kind.store(Kind::kSession);
  if (now.returns) keep(returns, now.kept_seconds);
}

void Room::keep(std::uint64_t session, std::uint32_t seconds) {
  if (!place_) return;
  Page::Place& one = page_->places[*place_];
  one.kept_seconds.store(seconds);
  one.session.store(session);
}

void Room::forget() {
  if (place_) page_->places[*place_].session.store(0);
}

// Not behind the door, at which whoever looks after processes shall not wait.
void Room::note_end(std::uint32_t process, bool may_return) {
  for (std::size_t place = 0; place < kPlacesMax; ++place) {
    Page::Place& one = page_->places[place];
    std::uint64_t session = one.session.load();
    if (session == 0 || one.process.load() != process || roll_.taken(place)) continue;
    std::int64_t never = 0;
    if (may_return) {
      one.ended_ns.compare_exchange_strong(never, clock_.now().ns);
    } else {
      one.session.compare_exchange_strong(session, 0);
    }
  }
}

Room::Waiting::Waiting(Room& room, Why why) : room_(room) {
  {
    const Roll::Door behind(room_.roll_);
    number_ = room_.roll_.take(kPlacesMax, kPlacesMax + kWaitersMax);
    if (number_) room_.page_->waiters[*number_ - kPlacesMax].store(why);
  }
  room_.page_->wanted.advance();
}

Room::Waiting::~Waiting() {
  if (number_) room_.roll_.leave(*number_);
}

std::uint32_t Room::wanted() const { return page_->wanted.value(); }

void Room::await_wanted(std::uint32_t seen, Duration at_most) const {
  page_->wanted.wait(seen, at_most);
}

void Room::rouse() { page_->wanted.rouse(); }

bool Room::gives_way(std::uint32_t most) {
  if (!place_) return false;
  const Roll::Door behind(roll_);
  std::atomic<Kind>& kind = page_->places[*place_].kind;
  if (kind.load() != Kind::kReady) return false;
  const Tally now = tally(0);
  const std::uint32_t free = now.used < most ? most - now.used : 0;
  const std::uint32_t waiters = waiting(Why::kLimit);
  // Whom the driver has refused does not find room by what is free here.
  const std::uint32_t needed = waiting(Why::kDriver) + (waiters > free ? waiters - free : 0);
  if (needed <= now.leaving) return false;
  kind.store(Kind::kLeaving);
  return true;
}

void Room::count_refusal(Why why) { page_->refusals[static_cast<std::size_t>(why)].fetch_add(1); }

std::uint64_t Room::refusals(Why why) const {
  return page_->refusals[static_cast<std::size_t>(why)].load();
}

}  // namespace flyt
