#include "transport/shm.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "transport/shm_ring.h"
#include "transport/socket.h"

namespace flyt::transport {
namespace {

// Small enough to stay in a core's cache, large enough for a bulk transfer to flow.
constexpr std::size_t kRingBytes = 2 * kMiB;
constexpr std::size_t kControlBytes = 4096;
constexpr std::size_t kSegmentBytes = kControlBytes + 2 * kRingBytes;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int kBellBytes = 4096;
constexpr std::string_view kMemoryLabel = "rings";
constexpr std::string_view kFileLabel = "host";
constexpr std::string_view kBellLabel = "bell";

struct Controls {
  RingControl to_server;
  RingControl to_client;
  alignas(64) std::atomic<std::uint32_t> notice;
  alignas(64) std::atomic<std::uint32_t> waiting;
};
static_assert(sizeof(Controls) <= kControlBytes);

// The mapping of one segment. Both rings are all zero at first, which is how they begin.
class Segment {
 public:
  static Result<Segment> map(int fd) {
    void* base = ::mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return flyt::system_error("mapping shared memory", errno);
    // A forked child has no part in the connection.
    ::madvise(base, kSegmentBytes, MADV_DONTFORK);
    return Segment(static_cast<std::byte*>(base));
  }
  Segment(Segment&& other) noexcept : base_(std::exchange(other.base_, nullptr)) {}
  Segment& operator=(Segment&&) = delete;
  ~Segment() {
    if (base_ != nullptr) ::munmap(base_, kSegmentBytes);
  }

  Controls& controls() const { return *reinterpret_cast<Controls*>(base_); }
  // The addresses stay, for threads that are late.
  void release() const {
    ::madvise(base_ + kControlBytes, kSegmentBytes - kControlBytes, MADV_REMOVE);
  }
  MutableBytes to_server() const { return {base_ + kControlBytes, kRingBytes}; }
  MutableBytes to_client() const { return {base_ + kControlBytes + kRingBytes, kRingBytes}; }

 private:
  explicit Segment(std::byte* base) : base_(base) {}
  std::byte* base_;
};

// One that is full rings already.
void ring(const Fd& bell) {
  const char once = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell.get(), &once, sizeof once);
}

// What is left rings once more, for nothing.
void silence(const Fd& bell) {
  std::array<char, 64> rings;
  [[maybe_unused]] const ssize_t got = ::read(bell.get(), rings.data(), rings.size());
}

std::string own_link(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// A bell is a pipe that each side has open for itself, both ways: whether reading and writing may
// wait belongs to what was opened, and must not be the other side's to decide.
Result<Fd> open_bell(int pipe) {
  // Told by the name, as asking another file system what a file is may take it for ever.
  std::array<char, 8> name{};
  const std::string link = own_link(pipe);
  const ssize_t length = ::readlink(link.c_str(), name.data(), name.size());
  if (length < 0) return flyt::system_error("a bell", errno);
  if (std::string_view(name.data(), static_cast<std::size_t>(length)).substr(0, 6) != "pipe:[") {
    return Error{ErrorCode::kInvalid, "a bell is no pipe"};
  }
  Fd bell(::open(link.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!bell.valid()) return flyt::system_error("opening a bell", errno);
  return bell;
}

// For any user: who has the pipe got it from us.
Result<Fd> make_bell() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return flyt::system_error("pipe2", errno);
  const Fd reading(ends[0]);
  const Fd writing(ends[1]);
  if (::fchmod(reading.get(), 0666) != 0) return flyt::system_error("a bell's mode", errno);
  // A user's pipes have so many pages together.
  static_cast<void>(::fcntl(reading.get(), F_SETPIPE_SZ, kBellBytes));
  return open_bell(reading.get());
}

// A memory file of fixed size.
Result<Fd> make_memory(const char* name, std::uint64_t bytes) {
  Fd memory(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid()) return flyt::system_error("making shared memory", errno);
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) {
    return flyt::system_error("sealing shared memory", errno);
  }
  return memory;
}

// Memory whose size can change would let the peer pull it away under our feet. Only memory has
// seals, and asking it for its size takes nobody else.
Status check_memory(int fd, std::uint64_t bytes) {
  struct stat file {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd, &file) != 0 ||
      file.st_size != static_cast<off_t>(bytes)) {
    return Error{ErrorCode::kInvalid, "the shared memory is not as agreed"};
  }
  return {};
}

}  // namespace

// Thread rules as for Connection.
class SharedConnection final : public Connection {
 public:
  enum class Side : std::uint8_t { kClient, kServer };

  SharedConnection(std::unique_ptr<Connection> socket, SharedRings rings, Segment segment,
                   Side side)
      : socket_(std::move(socket)),
        rings_(std::move(rings)),
        segment_(std::move(segment)),
        side_(side),
        writer_(
            side == Side::kClient ? segment_.controls().to_server : segment_.controls().to_client,
            side == Side::kClient ? segment_.to_server() : segment_.to_client()),
        reader_(
            side == Side::kClient ? segment_.controls().to_client : segment_.controls().to_server,
            side == Side::kClient ? segment_.to_client() : segment_.to_server()) {}

  Result<std::size_t> read(std::span<const MutableBytes> into, Patience patience) override;
  Result<std::size_t> write(std::span<const Bytes> from, Patience patience) override;
  ReadySet wait(ReadySet wanted, Instant deadline, const Wakeup* wakeup) override;
  void shut_down() override {
    shut_.store(true);
    socket_->shut_down();
  }
  void abandon() override {
    abandoned_.store(true);
    socket_->abandon();
  }
  bool eager() const override { return true; }
  int shared_file() const override { return abandoned_.load() ? -1 : rings_.file_.get(); }
  void set_notice(bool on) override { segment_.controls().notice.store(on ? 1 : 0); }
  bool notice() const override { return segment_.controls().notice.load() != 0; }
  void show_waiting() override {
    segment_.controls().waiting.fetch_add(1, std::memory_order_relaxed);
  }
  std::uint32_t waiting_shown() const override {
    return segment_.controls().waiting.load(std::memory_order_relaxed);
  }
  void release_memory() override { segment_.release(); }
  int fd() const override { return socket_->fd(); }
  std::string peer() const override { return "shared memory, " + socket_->peer(); }

 private:
  using Rings = SharedRings;
  const Fd& my_bell(ReadySet condition) const {
    const bool reads = condition == kReadable;
    if (side_ == Side::kServer)
      return rings_.bells_[reads ? Rings::kServerReads : Rings::kServerWrites];
    return rings_.bells_[reads ? Rings::kClientReads : Rings::kClientWrites];
  }
  const Fd& peers_bell(ReadySet condition) const {
    const bool reads = condition == kReadable;
    if (side_ == Side::kServer)
      return rings_.bells_[reads ? Rings::kClientReads : Rings::kClientWrites];
    return rings_.bells_[reads ? Rings::kServerReads : Rings::kServerWrites];
  }
  static std::size_t index(ReadySet condition) { return condition == kReadable ? 0 : 1; }
  Error lost() const;
  Error corrupt();
  ReadySet look(ReadySet wanted);
  bool prepare_to_sleep(ReadySet condition);

  const std::unique_ptr<Connection> socket_;
  SharedRings rings_;
  const Segment segment_;
  const Side side_;
  RingWriter writer_;
  RingReader reader_;
  std::atomic<bool> shut_{false};
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> peer_gone_{false};
  std::atomic<bool> spoilt_{false};  // The peer says that it has read what it cannot have.
  // The bell for this condition may be ringing.
  std::array<std::atomic<bool>, 2> ringing_{};
};

Error SharedConnection::lost() const {
  const bool here = shut_.load();
  return Error{ErrorCode::kLost, "connection to " + peer() +
                                     (here ? " was shut down here" : " was closed by the peer")};
}

Error SharedConnection::corrupt() {
  Error error{ErrorCode::kLost, "connection to " + peer() + ": the peer spoilt the shared memory"};
  shut_down();
  return error;
}

Result<std::size_t> SharedConnection::read(std::span<const MutableBytes> into, Patience patience) {
  while (true) {
    if (abandoned_.load(std::memory_order_relaxed)) return lost();
    // Asked before the bytes are: what a peer wrote before it went is still read.
    const bool ended = peer_gone_.load() || shut_.load(std::memory_order_relaxed);
    const std::optional<std::size_t> got = reader_.read(into);
    if (!got) return corrupt();
    if (*got > 0) {
      if (reader_.owes_bell()) ring(peers_bell(kWritable));
      return *got;
    }
    if (spoilt_.load(std::memory_order_relaxed)) return corrupt();
    if (ended) return lost();
    if (patience == Patience::kNow) return std::size_t{0};
    wait(kReadable, kNever, nullptr);
  }
}

Result<std::size_t> SharedConnection::write(std::span<const Bytes> from, Patience patience) {
  while (true) {
    if (abandoned_.load(std::memory_order_relaxed) || shut_.load(std::memory_order_relaxed) ||
        peer_gone_.load(std::memory_order_relaxed)) {
      return lost();
    }
    if (spoilt_.load(std::memory_order_relaxed)) return corrupt();
    const std::optional<std::size_t> sent = writer_.write(from);
    if (!sent) return corrupt();
    if (*sent > 0) {
      if (writer_.owes_bell()) ring(peers_bell(kReadable));
      return *sent;
    }
    if (patience == Patience::kNow) return std::size_t{0};
    wait(kWritable, kNever, nullptr);
  }
}

// A broken connection counts as ready for whatever was asked, so that the caller meets the error.
ReadySet SharedConnection::look(ReadySet wanted) {
  if (abandoned_.load() || shut_.load() || peer_gone_.load() || spoilt_.load()) {
    return wanted & (kReadable | kWritable | kHangup);
  }
  ReadySet ready = kNothing;
  if ((wanted & kReadable) != 0 && reader_.state() != RingState::kStuck) ready |= kReadable;
  if ((wanted & kWritable) != 0 && writer_.state() != RingState::kStuck) ready |= kWritable;
  return ready;
}

// While there is room a writer does not look how far the peer has read, so whoever sleeps does.
// Several threads may sleep on one bell. Who silences it does so before he asks for it and looks
// once more; if he then finds that there was something to be told, he rings for the others.
bool SharedConnection::prepare_to_sleep(ReadySet condition) {
  if (writer_.state() == RingState::kCorrupt) spoilt_.store(true);
  std::atomic<bool>& ringing = ringing_[index(condition)];
  if (ringing.exchange(false)) silence(my_bell(condition));
  if (condition == kReadable) {
    reader_.ask_for_bell();
  } else {
    writer_.ask_for_bell();
  }
  if (look(condition) == kNothing) return true;
  ringing.store(true);
  ring(my_bell(condition));
  return false;
}

ReadySet SharedConnection::wait(ReadySet wanted, Instant deadline, const Wakeup* wakeup) {
  bool late = false;
  while (true) {
    ReadySet ready = look(wanted);
    if (ready != kNothing) {
      if (wakeup != nullptr && wakeup->clear()) ready |= kWoken;
      return ready;
    }
    if (late) return kNothing;
    const bool reads = (wanted & kReadable) != 0;
    const bool writes = (wanted & kWritable) != 0;
    if ((reads && !prepare_to_sleep(kReadable)) || (writes && !prepare_to_sleep(kWritable))) {
      continue;
    }
    std::array<PollEntry, 4> entries{
        PollEntry{wanted != kNothing ? socket_->fd() : -1, POLLRDHUP, 0},
        PollEntry{reads ? my_bell(kReadable).get() : -1, POLLIN, 0},
        PollEntry{writes ? my_bell(kWritable).get() : -1, POLLIN, 0},
        PollEntry{wakeup != nullptr ? wakeup->fd() : -1, POLLIN, 0}};
    if (!poll_until(entries, deadline)) return kNothing;
    if (entries[0].found != 0) peer_gone_.store(true);
    if (entries[1].found != 0) ringing_[index(kReadable)].store(true);
    if (entries[2].found != 0) ringing_[index(kWritable)].store(true);
    if (wakeup != nullptr && (entries[3].found & POLLIN) != 0 && wakeup->clear()) {
      return look(wanted) | kWoken;
    }
    // A peer that rings for nothing, again and again, does not make this wait any longer.
    late = deadline != kNever && system_clock().now() >= deadline;
  }
}

Result<SharedRings> SharedRings::make(Fd file) {
  SharedRings rings;
  auto memory = make_memory("flyt-rings", kSegmentBytes);
  if (!memory) return std::move(memory).error();
  rings.memory_ = std::move(*memory);
  rings.file_ = std::move(file);
  if (!rings.file_.valid()) {
    auto made = make_memory("flyt-host", kSharedFileBytes);
    if (!made) return std::move(made).error();
    rings.file_ = std::move(*made);
  }
  for (Fd& bell : rings.bells_) {
    auto made = make_bell();
    if (!made) return std::move(made).error();
    bell = std::move(*made);
  }
  return rings;
}

bool may_have_bells() { return ::access("/proc/self/fd", X_OK) == 0; }

bool may_share_memory(const Connection& connection) {
  int family = AF_UNSPEC;
  socklen_t size = sizeof family;
  return ::getsockopt(connection.fd(), SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 &&
         family == AF_UNIX;
}

Result<std::unique_ptr<Connection>> offer_rings(std::unique_ptr<Connection> socket,
                                                SharedRings rings) {
  auto segment = Segment::map(rings.memory_.get());
  if (!segment) return std::move(segment).error();
  Status sent = send_fd(socket->fd(), rings.memory_.get(), kMemoryLabel);
  if (sent) sent = send_fd(socket->fd(), rings.file_.get(), kFileLabel);
  for (const Fd& bell : rings.bells_) {
    // Another opening of it than ours.
    const auto theirs = open_bell(bell.get());
    if (!theirs) return theirs.error();
    if (sent) sent = send_fd(socket->fd(), theirs->get(), kBellLabel);
  }
  if (!sent) return std::move(sent).error();
  return std::unique_ptr<Connection>(std::make_unique<SharedConnection>(
      std::move(socket), std::move(rings), std::move(*segment), SharedConnection::Side::kServer));
}

namespace {

Result<Fd> take_fd(const Connection& socket, std::string_view label, Instant deadline) {
  Result<ReceivedFd> received = receive_fd(socket.fd(), deadline);
  if (!received && received.error().code == ErrorCode::kTimeout) {
    return Error{ErrorCode::kTimeout, "the server did not hand over its shared memory in time"};
  }
  if (!received) return std::move(received).error();
  if (received->text != label) {
    return Error{ErrorCode::kInvalid, "the server handed over something else than agreed"};
  }
  return std::move(received->fd);
}

}  // namespace

Result<std::unique_ptr<Connection>> take_rings(std::unique_ptr<Connection> socket,
                                               Instant deadline) {
  SharedRings rings;
  auto memory = take_fd(*socket, kMemoryLabel, deadline);
  if (!memory) return std::move(memory).error();
  rings.memory_ = std::move(*memory);
  auto file = take_fd(*socket, kFileLabel, deadline);
  if (!file) return std::move(file).error();
  rings.file_ = std::move(*file);
  for (Fd& bell : rings.bells_) {
    auto taken = take_fd(*socket, kBellLabel, deadline);
    if (!taken) return std::move(taken).error();
    auto own = open_bell(taken->get());
    if (!own) return std::move(own).error();
    bell = std::move(*own);
  }
  refuse_files(socket->fd());
  Status fit = check_memory(rings.memory_.get(), kSegmentBytes);
  if (fit) fit = check_memory(rings.file_.get(), kSharedFileBytes);
  if (!fit) return std::move(fit).error();
  auto segment = Segment::map(rings.memory_.get());
  if (!segment) return std::move(segment).error();
  return std::unique_ptr<Connection>(std::make_unique<SharedConnection>(
      std::move(socket), std::move(rings), std::move(*segment), SharedConnection::Side::kClient));
}

}  // namespace flyt::transport
