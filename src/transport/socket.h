// SocketConnection: a connected stream socket, Unix or TCP, as a Connection.
#pragma once

#include <sys/socket.h>

#include <atomic>

#include "transport/transport.h"

namespace flyt::transport {

// The socket is in blocking mode. Thread rules as for Connection.
class SocketConnection final : public Connection {
 public:
  SocketConnection(Fd socket, std::string peer)
      : socket_(std::move(socket)), peer_(std::move(peer)) {}

  Result<std::size_t> read(std::span<const MutableBytes> into, Patience patience) override;
  Result<std::size_t> write(std::span<const Bytes> from, Patience patience) override;
  ReadySet wait(ReadySet wanted, Instant deadline, const Wakeup* wakeup) override;
  void shut_down() override;
  void abandon() override;
  int fd() const override { return socket_.get(); }
  std::string peer() const override { return peer_; }

 private:
  Error lost(std::string_view what, int system_error) const;

  Fd socket_;
  const std::string peer_;
  std::atomic<bool> shut_{false};
};

// One entry of a poll, and how long it may sleep; -1 for an fd is ignored. False: the deadline
// passed. Interruptions by signals are hidden.
struct PollEntry {
  int fd;
  short wanted;
  short found;
};
bool poll_until(std::span<PollEntry> entries, Instant deadline);

// The file of a Unix listener, removed at the end by the process that made it if it is still the
// same file.
class SocketFile {
 public:
  // Remembers the file at `path` as it is now.
  explicit SocketFile(std::string path);
  ~SocketFile();
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

 private:
  const std::string path_;
  std::uint64_t device_ = 0;
  std::uint64_t inode_ = 0;
  const int owner_;
};

// A listening, non-blocking socket of either kind.
class SocketListener final : public Listener {
 public:
  SocketListener(Fd socket, Url url, std::unique_ptr<SocketFile> file = nullptr)
      : socket_(std::move(socket)), url_(std::move(url)), file_(std::move(file)) {}

  Result<std::unique_ptr<Connection>> accept(Instant deadline, const Wakeup* wakeup) override;
  void shut_down() override;
  const Url& url() const override { return url_; }
  int fd() const override { return socket_.get(); }

 private:
  Fd socket_;
  const Url url_;
  Wakeup stop_;
  std::atomic<bool> stopped_{false};
  const std::unique_ptr<SocketFile> file_;
};

Result<std::unique_ptr<Connection>> connect_unix(const Url& url, Instant deadline);
Result<std::unique_ptr<Listener>> listen_unix(const Url& url);
Result<std::unique_ptr<Connection>> connect_tcp(const Url& url, Instant deadline);
Result<std::unique_ptr<Listener>> listen_tcp(const Url& url);

void set_blocking(int fd, bool blocking);

// No delay, keepalive, user timeout. Harmless on other sockets.
void set_tcp_options(int fd);

// Room for a whole bulk command.
void set_unix_options(int fd);

// "tcp://1.2.3.4:56" or "unix, process 7, user 0".
std::string describe_peer(int fd);

// Starts connect(2) and waits for its end.
Status connect_by(int fd, const sockaddr* address, socklen_t size, Instant deadline);

}  // namespace flyt::transport
