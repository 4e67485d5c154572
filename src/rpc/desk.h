// Desk: how a program asks its machine's client manager for a virtual GPU.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "transport/transport.h"
#include "wire/desk.h"

namespace flyt::rpc {

inline constexpr char kDeskSocket[] = "/run/flyt/client.sock";

// FLYT_CLIENT_SOCKET, or where client managers listen.
std::string desk_socket();
// Whether there is one at all. False is no fault: most machines have no client manager.
bool has_desk(const std::string& socket);

struct DeskVisit {
  wire::DeskGranted granted;
  // The GPU is the program's until this is closed.
  std::unique_ptr<transport::Connection> connection;
};

using DeskListener = std::function<void(const wire::DeskWaiting&)>;

struct DeskPatience {
  Duration all{};
  // So long a wait is nothing to talk about.
  Duration quiet{};
};

// Asks, and waits for at most that long; `on_waiting` hears why, whenever that changes. kTimeout
// tells how many were still before it; kLost: the manager does not answer, or went away.
Result<DeskVisit> visit_desk(const std::string& socket, wire::DeskPurpose purpose,
                             DeskPatience patience, const DeskListener& on_waiting);

// What the manager says about itself: JSON.
Result<std::string> ask_desk_status(const std::string& socket, Duration patience);

}  // namespace flyt::rpc
