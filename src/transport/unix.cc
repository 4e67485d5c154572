// Unix sockets: a file of mode 0600, or an abstract name.
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "transport/socket.h"

namespace flyt::transport {
namespace {

constexpr int kBacklog = 256;

struct UnixAddress {
  sockaddr_un address{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// An abstract name starts with a zero byte in place of its '@' and has no end mark.
UnixAddress address_of_path(const std::string& path) {
  UnixAddress out;
  out.address.sun_family = AF_UNIX;
  FLYT_ASSERT(path.size() < sizeof out.address.sun_path);
  std::memcpy(out.address.sun_path, path.data(), path.size());
  const bool abstract = path.starts_with('@');
  if (abstract) out.address.sun_path[0] = '\0';
  out.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (abstract ? 0 : 1));
  return out;
}

Error with_url(Error error, const Url& url) {
  error.message = to_string(url) + ": " + error.message;
  return error;
}

// Nobody answers at the file, so it is left over from a listener that died.
bool stale(const UnixAddress& address) {
  const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return probe.valid() && ::connect(probe.get(), address.get(), address.size) != 0 &&
         errno == ECONNREFUSED;
}

Status bind_replacing_stale(int fd, const Url& url) {
  const UnixAddress address = address_of_path(url.path);
  if (::bind(fd, address.get(), address.size) == 0) return {};
  if (errno != EADDRINUSE) return with_url(flyt::system_error("bind", errno), url);
  struct stat file {};
  const bool socket_file =
      !url.path.starts_with('@') && ::lstat(url.path.c_str(), &file) == 0 && S_ISSOCK(file.st_mode);
  if (!socket_file || !stale(address)) {
    return with_url(flyt::system_error("bind", EADDRINUSE), url);
  }
  ::unlink(url.path.c_str());
  if (::bind(fd, address.get(), address.size) == 0) return {};
  return with_url(flyt::system_error("bind", errno), url);
}

}  // namespace

void refuse_files(int fd) {
  constexpr int kSoPassRights = 83;  // Not in older headers.
  const int pass = 0;
  static_cast<void>(::setsockopt(fd, SOL_SOCKET, kSoPassRights, &pass, sizeof pass));
}

void set_unix_options(int fd) {
  // The system cuts this to what it allows, commonly 416 KiB: twice what a socket has unasked.
  const int bytes = 1 << 20;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

SocketFile::SocketFile(std::string path) : path_(std::move(path)), owner_(::getpid()) {
  struct stat file {};
  if (::lstat(path_.c_str(), &file) != 0) return;
  device_ = file.st_dev;
  inode_ = file.st_ino;
}

SocketFile::~SocketFile() {
  if (inode_ == 0 || owner_ != ::getpid()) return;
  struct stat file {};
  if (::lstat(path_.c_str(), &file) != 0) return;
  if (file.st_dev == device_ && file.st_ino == inode_) ::unlink(path_.c_str());
}

Result<std::unique_ptr<Connection>> connect_unix(const Url& url, Instant deadline) {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return flyt::system_error("socket", errno);
  // Blocking sockets would sleep in connect(2) without a deadline while the backlog is full.
  set_blocking(socket.get(), false);
  const UnixAddress address = address_of_path(url.path);
  Status connected = connect_by(socket.get(), address.get(), address.size, deadline);
  if (!connected) return with_url(std::move(connected).error(), url);
  set_blocking(socket.get(), true);
  return adopt(std::move(socket));
}

Result<std::unique_ptr<Listener>> listen_unix(const Url& url) {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return flyt::system_error("socket", errno);
  // The mode of the socket is that of the file which bind(2) makes: no moment with another mode.
  ::fchmod(socket.get(), S_IRUSR | S_IWUSR);
  Status bound = bind_replacing_stale(socket.get(), url);
  if (!bound) return std::move(bound).error();
  // Nobody who connects has any to give. It is what who is accepted begins with, too; before Linux
  // 6.16 there is Haste.
  refuse_files(socket.get());
  std::unique_ptr<SocketFile> file;
  if (!url.path.starts_with('@')) file = std::make_unique<SocketFile>(url.path);
  if (::listen(socket.get(), kBacklog) != 0) {
    return with_url(flyt::system_error("listen", errno), url);
  }
  return std::unique_ptr<Listener>(
      std::make_unique<SocketListener>(std::move(socket), url, std::move(file)));
}

}  // namespace flyt::transport
