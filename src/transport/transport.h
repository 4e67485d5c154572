// Transport: two-way byte streams between client and server, whatever carries them.
//
// Kinds: unix, tcp (sockets), shm (shared memory that begins as a unix socket, see shm.h) and sim
// (an in-process pair that misbehaves on purpose). Nothing here knows what the bytes mean.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "transport/url.h"

namespace flyt::transport {

// What a wait is for, and what it found: a set of bits.
enum Ready : std::uint8_t {
  kNothing = 0,
  kReadable = 1,  // read() would give bytes or the end of the stream.
  kWritable = 2,  // write() would take bytes or fail.
  kHangup = 4,    // The peer has closed or is lost; bytes it sent before may still be readable.
  kWoken = 8,     // The Wakeup was signalled.
};
using ReadySet = std::uint8_t;

// For waits without a deadline.
inline constexpr Instant kNever{INT64_MAX};

enum class Patience : std::uint8_t {
  kNow,   // Take what is possible at once, even nothing.
  kWait,  // Sleep until at least one byte moved or the stream ended.
};

// Ends one wait() of another thread early. signal() is safe from any thread and from a signal
// handler; a signal stays until a wait that was given this object has reported kWoken.
class Wakeup {
 public:
  Wakeup();
  void signal() const;
  // Takes the signal back; true if there was one.
  bool clear() const;
  int fd() const { return event_.get(); }

 private:
  Fd event_;
};

// One end of a connection. One thread may read while another writes, and any number may wait or
// shut down meanwhile; two readers at once or two writers at once are a bug of the caller.
class Connection {
 public:
  virtual ~Connection() = default;

  // Fills `into` from its front with what has arrived; at most kPiecesMax pieces are used. 0 means
  // that nothing is there (kNow only). The end of the stream, a reset or shut down connection is
  // an error: kLost, with a reason. An address that may not be written is kInvalid and takes
  // nothing off the stream; shared memory does not notice, and faults as the program's own store
  // would.
  virtual Result<std::size_t> read(std::span<const MutableBytes> into, Patience patience) = 0;

  // Sends from the front of `from` as much as the connection takes; at most kPiecesMax pieces are
  // looked at. 0 means that there is no room (kNow only). Errors as above.
  virtual Result<std::size_t> write(std::span<const Bytes> from, Patience patience) = 0;

  // Sleeps until one of `wanted` holds, `wakeup` (may be null) is signalled or `deadline` has
  // passed; kNothing then. kHangup is reported only if wanted, and is the cheap way to notice a
  // dead peer without reading.
  virtual ReadySet wait(ReadySet wanted, Instant deadline, const Wakeup* wakeup) = 0;

  // Ends both directions: present and later reads, writes and waits of both ends return. Bytes
  // already sent may still be read by the peer.
  virtual void shut_down() = 0;

  // Gives the connection up without a word to the peer, keeping it open for other processes that
  // hold the same socket: for the child after a fork. Every later call fails.
  virtual void abandon() = 0;

  // write() costs no system call while the peer is awake: bytes are best handed over at once, by
  // whoever has them.
  virtual bool eager() const { return false; }

  // A sparse file of kSharedFileBytes that both sides have, none can shrink, and each maps parts of
  // as it likes; -1 if there is none.
  virtual int shared_file() const { return -1; }

  // One bit from the server's side to the client's, which costs neither a message: the server sets
  // it while it has something to tell with its next reply. Without shared memory there is none, and
  // it is always set.
  virtual void set_notice(bool /*on*/) {}
  virtual bool notice() const { return true; }

  // The client's side, again and again: a thread of it looks all the while for what the GPU is to
  // write, so that commands will come as soon as that has. The server's side: a number that differs
  // each time it was shown. Costs no message; without shared memory nothing is shown.
  virtual void show_waiting() {}
  virtual std::uint32_t waiting_shown() const { return 0; }

  // A connection that has ended gives back the memory of what was not read.
  virtual void release_memory() {}

  // The socket behind it, for passing on or for a system call that only sockets have; -1 if none.
  virtual int fd() const = 0;

  // "tcp://10.0.0.7:41822" or the like: for logs.
  virtual std::string peer() const = 0;
};

inline constexpr std::size_t kPiecesMax = 64;

// What Connection::shared_file() has room for.
inline constexpr std::uint64_t kSharedFileBytes = 1024 * kGiB;

// Waits for peers. accept() belongs to one thread; shut_down() is safe from any.
class Listener {
 public:
  virtual ~Listener() = default;

  // The next peer, or kTimeout at the deadline, or kLost after shut_down().
  virtual Result<std::unique_ptr<Connection>> accept(Instant deadline, const Wakeup* wakeup) = 0;

  virtual void shut_down() = 0;

  // Where it listens; with the port that the system chose if the URL said port 0.
  virtual const Url& url() const = 0;

  // For a parent that polls several things itself.
  virtual int fd() const = 0;
};

// Opens a connection or says why it cannot be had before `deadline` of the system clock. Nobody
// listening is told at once. A URL with a delay makes a delayed connection (delayed.h).
Result<std::unique_ptr<Connection>> connect(const Url& url, Instant deadline);

// unix: creates the socket file with mode 0600, replacing a file that nobody listens on.
Result<std::unique_ptr<Listener>> listen(const Url& url);

// Wraps a connected socket (accepted, inherited or received) of kind unix or tcp.
Result<std::unique_ptr<Connection>> adopt(Fd socket);

// Two ends of one connection inside this process: a socket pair without misbehaviour.
using ConnectionPair = std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>>;
Result<ConnectionPair> connection_pair();

// Who is at the other end, as far as the system vouches for it: "unix-1000" for a user of this
// machine, "tcp-10.0.0.7" for an address; empty if it does not. Lower-case letters, digits, '-',
// '.' and '_' only.
std::string identity_of_peer(int fd);

// From now on the peer sends no open files with its bytes, where the system sees to that
// (Linux 6.16; Unix sockets alone can do it at all): each would have to be closed here, and that
// may take as long as its maker likes.
void refuse_files(int fd);

// Hands an open socket to the process at the other end of `channel`, a Unix socket, with up to
// 64 bytes of text for it.
Status send_fd(int channel, int fd, std::string_view text);
struct ReceivedFd {
  Fd fd;
  std::string text;
};
// Sleeps until one has arrived with all of its text: kTimeout at the deadline of the system clock,
// kLost when the other end is closed.
Result<ReceivedFd> receive_fd(int channel, Instant deadline);

}  // namespace flyt::transport
