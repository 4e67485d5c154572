#include "server/lease/gpu_room.h"

#include <cstring>
#include <utility>

#include "base/sha256.h"

namespace flyt::server {
namespace {

constexpr Duration kRoomTime = std::chrono::seconds(2);
// A client that goes on waits for 10 s.
constexpr Duration kReturnTime = std::chrono::seconds(8);
constexpr Duration kRoomPause = std::chrono::milliseconds(20);

constexpr const char* kAdvice = "; try again when a program on it has ended";

std::string limit_text(std::uint32_t most) {
  return "the GPU is full: it has all of the " + std::to_string(most) +
         " sessions that are allowed there" + kAdvice;
}

// Makes a context, and asks again while there is no room for it.
Status await_context(ReadyDriver& driver, Room& room, Duration patience) {
  Status made = make_context(driver);
  if (made || made.error().code != ErrorCode::kLimit) return made;
  const Instant until = system_clock().now() + patience;
  const Room::Waiting waiting(room, Room::Why::kDriver);
  while (!made && made.error().code == ErrorCode::kLimit && system_clock().now() < until) {
    system_clock().sleep_for(kRoomPause);
    made = make_context(driver);
  }
  return made;
}

// `others`: sessions that are there.
std::string driver_text(const Error& why, std::uint32_t others, std::uint32_t most) {
  return "the GPU is full: its driver takes no further session (" + why.message +
         "), although it has only " + std::to_string(others) + " of the " + std::to_string(most) +
         " that are allowed there" + kAdvice;
}

// A session's place; processes that wait for clients make room, and one that has just ended may be
// gone in a moment.
Status enter_room(Room& room, std::uint64_t returns, const SessionOptions& options) {
  const std::uint32_t most = options.gpu_sessions;
  if (room.enter(Room::Kind::kSession, returns, most)) return {};
  const Instant until = system_clock().now() + kRoomTime;
  const Room::Waiting waiting(room, Room::Why::kLimit);
  while (system_clock().now() < until) {
    system_clock().sleep_for(kRoomPause);
    if (room.enter(Room::Kind::kSession, returns, most)) return {};
  }
  room.count_refusal(Room::Why::kLimit);
  return Error{ErrorCode::kLimit, limit_text(most)};
}

}  // namespace

std::unique_ptr<Room> open_room(const SessionOptions& options) {
  if (options.gpu_room.empty()) return nullptr;
  auto room = Room::open(options.gpu_room);
  if (room) return std::move(*room);
  log_of_session(options).error("sessions are not counted", {{"why", room.error().message}});
  return nullptr;
}

std::uint64_t room_name(const wire::SessionToken& recovery) {
  if (recovery == wire::SessionToken{}) return 0;
  // Whoever reads the file shall not be able to go on with the session.
  const Digest digest = sha256(bytes_at(recovery.data(), recovery.size()));
  std::uint64_t name = 0;
  std::memcpy(&name, digest.data(), sizeof name);
  return name == 0 ? 1 : name;
}

Result<ReadyDriver> prepare_session(const SessionOptions& options,
                                    const wire::SessionToken& recovers) {
  auto room = open_room(options);
  if (room == nullptr) return prepare_driver(options);
  const std::uint64_t returns = room_name(recovers);
  if (Status entered = enter_room(*room, returns, options); !entered) {
    return std::move(entered).error();
  }
  auto ready = prepare_driver(options);
  if (!ready) return ready;
  const Status made = await_context(*ready, *room, returns == 0 ? kRoomTime : kReturnTime);
  if (!made && made.error().code == ErrorCode::kLimit) {
    room->count_refusal(Room::Why::kDriver);
    return Error{ErrorCode::kLimit,
                 driver_text(made.error(), room->count().used() - 1, options.gpu_sessions)};
  }
  if (!made) return made.error();
  ready->room = std::move(room);
  return ready;
}

}  // namespace flyt::server
