// Fd lines: whole messages between the server's processes, with an open file each if need be.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/result.h"

namespace flyt::server {

// Two ends of a line that keeps messages apart.
Result<std::pair<Fd, Fd>> make_line();
// A place in the file system where lines can be had, for this user and root; what was there goes.
Result<Fd> listen_line(const std::string& path);
// kLost: nobody is there; kDenied: who is there lets nobody in for as long as limit_patience()
// says.
Result<Fd> connect_line(const std::string& path);
// Whether the other end was made by this user or root.
bool of_this_user(int socket);
// Who sends or waits there gives up after five seconds: the other end is gone, or as good as that.
void limit_patience(int socket, int direction);

// `file` -1: none goes along. `flags`: MSG_DONTWAIT for who must not wait. False: it was not sent.
bool send_message(int socket, Bytes message, int file, int flags);
// False at the end of the line, and for anything that is no whole message: that is gone then.
bool receive_message(int socket, MutableBytes message, Fd& file, int flags);

// The process that made a line; 0 for anything else.
pid_t maker_of(int socket);

// Lets this process have as many open files as it may; how many that are.
std::size_t allow_most_files();

}  // namespace flyt::server
