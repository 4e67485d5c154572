#include "transport/machine.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace flyt::transport {
namespace {

// Of whom nothing else is known shares with those of the same user.
std::string unix_machine(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return "unix";
  const std::string path = "/proc/" + std::to_string(credentials.pid) + "/ns/pid";
  struct stat space {};
  if (credentials.pid > 0 && ::stat(path.c_str(), &space) == 0) {
    return "unix, process namespace " + std::to_string(space.st_ino);
  }
  return "unix, user " + std::to_string(credentials.uid);
}

std::string tcp_machine(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  } else {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  }
  return std::string("tcp ") + text;
}

}  // namespace

std::string machine_of(const Connection& peer) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (peer.fd() < 0 ||
      ::getpeername(peer.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return "here";
  }
  std::string text = address.ss_family == AF_UNIX ? unix_machine(peer.fd()) : tcp_machine(address);
  if (text.size() > kMachineBytesMax) text.resize(kMachineBytesMax);
  return text;
}

}  // namespace flyt::transport
