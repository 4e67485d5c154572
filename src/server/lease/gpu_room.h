// How a process gets its place on a GPU that takes so many processes (base/room.h), and what is
// said where there is none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/room.h"
#include "server/session_process.h"
#include "wire/hello.h"

namespace flyt::server {

// How a process ends that waited for a client and has given way, or has found no room itself.
inline constexpr int kExitNoRoom = 4;

// Null where nobody counts, or where the file cannot be used.
std::unique_ptr<Room> open_room(const SessionOptions& options);

// What a session is called there; 0: it cannot go on in another process, or does not.
std::uint64_t room_name(const wire::SessionToken& recovery);

// The driver, for a session that is new, or goes on by its token. Where processes are counted it
// gets its place and its first context, too, so that what the GPU refuses is refused before the
// client is welcomed. A driver that takes no further context is asked again for a while, as above,
// and for longer for a session that goes on. kLimit: no place, or no context; for the client.
Result<ReadyDriver> prepare_session(const SessionOptions& options,
                                    const wire::SessionToken& recovers);

}  // namespace flyt::server
