// Fd lines: whole messages between the server's processes, with an open file each if need be.
#include "server/parent/fd_line.h"

#include <sys/resource.h>
#include <sys/socket.h>  // lint: allow(sockets): files go from process to process
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>  // lint: allow(sockets): the next server finds the keeper by a name
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace flyt::server {
namespace {

constexpr timeval kPatience{5, 0};

}  // namespace

Result<std::pair<Fd, Fd>> make_line() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return system_error("socketpair", errno);
  }
  return std::pair(Fd(ends[0]), Fd(ends[1]));
}

namespace {

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Error{ErrorCode::kInvalid, "no name for a socket: " + path};
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

const sockaddr* general(const sockaddr_un& address) {
  return static_cast<const sockaddr*>(static_cast<const void*>(&address));
}

}  // namespace

Result<Fd> listen_line(const std::string& path) {
  const auto address = address_of(path);
  if (!address) return address.error();
  Fd line(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ::unlink(path.c_str());
  if (!line.valid() || ::bind(line.get(), general(*address), sizeof *address) != 0 ||
      ::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || ::listen(line.get(), 4) != 0) {
    return system_error("listening at " + path, errno);
  }
  return line;
}

Result<Fd> connect_line(const std::string& path) {
  const auto address = address_of(path);
  if (!address) return address.error();
  Fd line(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  // Who listens there may not take anybody any more.
  if (line.valid()) limit_patience(line.get(), SO_SNDTIMEO);
  if (!line.valid() || ::connect(line.get(), general(*address), sizeof *address) != 0) {
    if (errno == EAGAIN) return Error{ErrorCode::kDenied, "nobody is let in at " + path};
    return Error{ErrorCode::kLost, "nobody is at " + path};
  }
  return line;
}

bool of_this_user(int socket) {
  ucred maker{};
  socklen_t size = sizeof maker;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &maker, &size) == 0 &&
         (maker.uid == ::geteuid() || maker.uid == 0);
}

void limit_patience(int socket, int direction) {
  static_cast<void>(::setsockopt(socket, SOL_SOCKET, direction, &kPatience, sizeof kPatience));
}

bool send_message(int socket, Bytes message, int file, int flags) {
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (file >= 0) {
    header.msg_control = space.data();
    header.msg_controllen = space.size();
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(control), &file, sizeof file);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &header, MSG_NOSIGNAL | flags);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(message.size());
}

bool receive_message(int socket, MutableBytes message, Fd& file, int flags) {
  iovec part{message.data(), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = space.data();
  // Of a second file, for which alignment leaves room, nobody would ever know.
  header.msg_controllen = CMSG_LEN(sizeof(int));
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | flags);
  } while (got < 0 && errno == EINTR);
  for (cmsghdr* control = got < 0 ? nullptr : CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    int received = -1;
    std::memcpy(&received, CMSG_DATA(control), sizeof received);
    file = Fd(received);
  }
  return got == static_cast<ssize_t>(message.size()) &&
         (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
}

pid_t maker_of(int socket) {
  ucred maker{};
  socklen_t size = sizeof maker;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &maker, &size) == 0 ? maker.pid : 0;
}

std::size_t allow_most_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return 1024;
  files.rlim_cur = files.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &files));
  return files.rlim_cur;
}

}  // namespace flyt::server
