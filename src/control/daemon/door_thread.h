// UserDoor: a Unix socket at which the system says which user comes. gRPC itself does not ask.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/result.h"
#include "transport/transport.h"

namespace flyt::control {

class UserDoor {
 public:
  // Takes a user's connection, a socket that does not block; or says why not, which is logged.
  // Called by the door's thread alone.
  using Admit = std::function<Status(std::uint32_t user, Fd connection)>;

  // The socket's file is there from now on, with mode 0600; nobody is let in before start().
  // `key` of the configuration names it.
  static Result<std::unique_ptr<UserDoor>> open(const std::string& path, std::string_view key,
                                                const Log& log);
  UserDoor(std::unique_ptr<transport::Listener> listener, const Log& log)
      : log_(log), listener_(std::move(listener)) {}
  ~UserDoor();
  UserDoor(const UserDoor&) = delete;
  UserDoor& operator=(const UserDoor&) = delete;

  void start(Admit admit);

 private:
  void let_in(const Admit& admit);

  const Log log_;
  LogLimit refusal_lines_;
  const LimitedLog refusals_{log_, refusal_lines_};
  const std::unique_ptr<transport::Listener> listener_;
  std::thread thread_;
};

}  // namespace flyt::control
