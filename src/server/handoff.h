// Handoff: the small channels between the server's parent and its children.
#pragma once

#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "transport/transport.h"

namespace flyt::server {

// Two ends: of a pipe, or of a pair of Unix sockets.
struct Ends {
  Fd reading;
  Fd writing;
};
Result<Ends> make_pipe();
Result<Ends> make_socket_pair();

// As far as it goes: who reads the other end notices what is missing.
void write_all(int fd, std::string_view text);
// Until the other end is closed.
std::string read_all(int fd);

// Tells a client why it gets no session.
inline constexpr std::string_view kNoHello = "no complete hello came in time";
void refuse_late(transport::Connection& connection);
void refuse_full(transport::Connection& connection);
void refuse_without_driver(transport::Connection& connection, std::string_view why);

// Closes a child's copy of a listening socket without ending the listening.
void close_in_child(transport::Listener& listener);

}  // namespace flyt::server
