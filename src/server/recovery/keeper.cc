// Keeper: the process that holds what must outlive a session's process, and the line to it.
#include "server/recovery/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>  // lint: allow(sockets): files go from process to process
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/random.h"
#include "base/shortage.h"
#include "server/parent/fd_line.h"
#include "server/parent/process_state.h"

namespace flyt::server {
namespace {

enum class Ask : std::uint32_t {
  kHello = 1,     // -> kAnswer. At the door, then on the line: user.
  kOpen = 2,      // -> kAnswer: token. place.
  kTakeOver = 3,  // -> kAnswer: id is the number of files. token, place.
  kFetch = 4,     // -> kAnswer: the file with that number. id.
  kCounted = 5,
  kKeep = 6,
  kDrop = 7,
  kEnd = 8,
  kAnswer = 9,
  kGone = 10,   // -> kAnswer: whether the process before is.
  kQuit = 11,   // Of the server's parent alone.
  kKnows = 12,  // -> kAnswer: whether there is such a session; id is 1 while it is served. user,
                // token.
};
constexpr std::uint32_t kAskMax = 12;

enum class Outcome : std::uint32_t { kRefused = 0, kGood = 1, kStillThere = 2 };

// One message, either direction; a file may go with it.
struct Message {
  Ask ask{};
  Outcome outcome{};
  std::uint32_t user = 0;
  KeptKind kind{};
  Token token{};
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
  std::uint64_t place = 0;
  std::int32_t device = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(Message) == 64);

constexpr std::size_t kFilesOfItsOwn = 32;
// A session's process has one, and for a moment a second one.
constexpr std::ptrdiff_t kLinesOfOneMax = 16;
// Those of a session's process that are kept room for.
constexpr std::size_t kLinesShare = 2;
// Questions that are asked before the first answer is read.
constexpr std::uint64_t kFetchesAtOnce = 32;
constexpr Duration kStillTherePause = std::chrono::milliseconds(1);
// Of the messages above: a server of another build must speak the same.
constexpr std::uint64_t kKeeperVersion = 2;
// How long a new keeper waits for its first parent, and how often one without a parent looks
// whether it is still needed.
constexpr Duration kParentTime = std::chrono::seconds(10);
constexpr int kParentLookMs = 100;

bool send(int socket, const Message& message, int file, int flags) {
  return send_message(socket, bytes_at(&message, sizeof message), file, flags);
}
bool receive(int socket, Message& message, Fd& file, int flags) {
  return receive_message(socket, mutable_bytes_at(&message, sizeof message), file, flags);
}

// Leaves those that have not.
bool all_ended(std::vector<pid_t>& processes) {
  std::erase_if(processes, has_ended);
  return processes.empty();
}

// The process that keeps things. One thread.
class KeeperProcess {
 public:
  KeeperProcess(Fd door, const KeeperOptions& options)
      : door_(std::move(door)),
        options_(options),
        files_max_(allow_most_files()),
        share_(std::min(Keeping::kFilesShare,
                        all_files() / std::max<std::size_t>(options.sessions, 1) / 2)),
        waits_until_(system_clock().now() + kParentTime) {}

  void run() {
    while (options_.home < 0 ? door_.valid() : needed()) turn();
  }

 private:
  using Name = std::pair<KeptKind, std::uint64_t>;
  struct Line {
    Fd socket;
    pid_t process = 0;
    std::uint32_t user = 0;
    bool greeted = false;
    std::optional<Token> session;
    std::vector<Name> fetched;  // What there was to fetch when the session was taken over.
  };
  struct Session {
    std::uint32_t user = 0;
    pid_t process = 0;
    std::vector<pid_t> processes_before;  // Those that may not be gone.
    std::uint64_t place = 0;
    std::optional<std::uint64_t> old_place;  // Of the process before, until that is counted here.
    bool orphan = false;
    bool spoilt = false;  // Something could not be kept.
    Instant since;        // When it became an orphan.
    std::map<Name, Kept> files;
  };

  void turn() {
    std::vector<pollfd> wanted = {{door_.get(), POLLIN, 0}};
    for (const auto& [socket, line] : lines_) wanted.push_back({socket, POLLIN, 0});
    // Last, so that what a parent leaves behind is heard before the next one.
    const bool rest = no_parent_.resting(system_clock().now());
    for (const int fd : {parent_.get(), rest ? -1 : options_.home}) {
      if (fd >= 0) wanted.push_back({fd, POLLIN, 0});
    }
    if (::poll(wanted.data(), wanted.size(), timeout_ms()) < 0) return;
    for (const pollfd& item : wanted) {
      if (item.revents == 0) continue;
      if (item.fd == door_.get()) {
        admit(item.revents);
      } else if (item.fd == options_.home) {
        meet_parent();
      } else if (item.fd == parent_.get()) {
        hear_parent();
      } else {
        serve(item.fd);
      }
    }
    drop_expired();
  }

  // A parent is there, or may still come for what the sessions of the one before have left.
  bool needed() const {
    if (told_to_quit_) return false;
    return parent_.valid() || !sessions_.empty() || system_clock().now() < waits_until_;
  }

  void meet_parent() {
    Fd line(::accept4(options_.home, nullptr, nullptr, SOCK_CLOEXEC));
    // It stays readable while no descriptor is free.
    if (!line.valid()) no_parent_.met(system_clock().now());
    if (!line.valid() || !of_this_user(line.get()) || parent_.valid()) return;
    const Message door{.ask = Ask::kAnswer, .outcome = Outcome::kGood, .id = kKeeperVersion};
    const Message board{.ask = Ask::kAnswer, .outcome = Outcome::kGood};
    if (!send(line.get(), door, options_.outside, MSG_DONTWAIT) ||
        !send(line.get(), board, options_.board, MSG_DONTWAIT)) {
      return;
    }
    parent_ = std::move(line);
    waits_until_ = {};
  }

  void hear_parent() {
    Message message;
    Fd file;
    if (receive(parent_.get(), message, file, MSG_DONTWAIT) && message.ask == Ask::kQuit) {
      told_to_quit_ = true;
    }
    parent_.close();
  }

  int timeout_ms() const {
    int timeout = options_.home >= 0 && !parent_.valid() ? kParentLookMs : -1;
    for (const auto& [token, session] : sessions_) {
      if (!session.orphan) continue;
      const Duration left = session.since + options_.keeps - system_clock().now();
      const auto ms = std::max<std::int64_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1, 0);
      timeout = timeout < 0 ? static_cast<int>(ms) : std::min(timeout, static_cast<int>(ms));
    }
    return no_parent_.limit(timeout, system_clock().now());
  }

  // Those of killed processes whose time is over, and those that have been given up since.
  void drop_expired() {
    const Instant now = system_clock().now();
    for (auto at = sessions_.begin(); at != sessions_.end();) {
      const auto next = std::next(at);
      const bool over =
          now >= at->second.since + options_.keeps || !options_.may_return(at->second.place);
      if (at->second.orphan && over) forget(at);
      at = next;
    }
  }

  void forget(std::map<Token, Session>::iterator session) {
    const std::uint64_t place = session->second.place;
    const auto old_place = session->second.old_place;
    drop_files(session->second, session->second.files.size());
    sessions_.erase(session);
    // Only now is the memory nobody's.
    if (old_place) options_.on_free(*old_place);
    options_.on_free(place);
  }

  // All sessions have the door: what one of them says there cannot close it, only that nobody has
  // its outside any more.
  void admit(short events) {
    Message message;
    Fd socket;
    if (!receive(door_.get(), message, socket, MSG_DONTWAIT)) {
      if ((events & POLLHUP) != 0) door_.close();
      return;
    }
    if (!socket.valid() || message.ask != Ask::kHello || full()) return;
    const pid_t process = maker_of(socket.get());
    const auto of_process =
        std::count_if(lines_.begin(), lines_.end(),
                      [process](const auto& line) { return line.second.process == process; });
    if (of_process >= kLinesOfOneMax) return;
    const int number = socket.get();
    Line& line = lines_[number];
    line.socket = std::move(socket);
    line.process = process;
  }

  std::size_t all_files() const {
    return files_max_ > kFilesOfItsOwn ? files_max_ - kFilesOfItsOwn : 0;
  }
  bool full() const { return lines_.size() + files_ >= all_files(); }
  // Within its share a session has room; beyond it none that is another one's share.
  bool has_room(const Session& session) const {
    if (full() || session.files.size() >= Keeping::kFilesMax) return false;
    const std::size_t shares = options_.sessions * (share_ + kLinesShare);
    return session.files.size() < share_ || beyond_ + shares < all_files();
  }
  void note_file(const Session& session) {
    ++files_;
    if (session.files.size() > share_) ++beyond_;
  }
  // Before they go.
  void drop_files(const Session& session, std::size_t count) {
    const std::size_t has = session.files.size();
    files_ -= count;
    beyond_ -= std::min(count, has > share_ ? has - share_ : 0);
  }

  void serve(int number) {
    Line& line = lines_.at(number);
    Message message;
    Fd file;
    if (receive(number, message, file, MSG_DONTWAIT) && answer(line, message, std::move(file))) {
      return;
    }
    if (line.session) {
      const auto session = sessions_.find(*line.session);
      session->second.orphan = true;
      session->second.since = system_clock().now();
      if (!options_.may_return(session->second.place)) forget(session);
    }
    lines_.erase(number);
  }

  // False: the session's process broke a rule, or does not read its answers.
  bool answer(Line& line, const Message& message, Fd file) {
    const auto ask = static_cast<std::uint32_t>(message.ask);
    const auto kind = static_cast<std::uint32_t>(message.kind);
    if (ask == 0 || ask > kAskMax || kind > kKeptKindMax) return false;
    Message reply{.ask = Ask::kAnswer};
    int reply_file = -1;
    switch (message.ask) {
      case Ask::kHello:
        if (line.greeted) return false;
        line.greeted = true;
        line.user = message.user;
        reply.outcome = Outcome::kGood;
        break;
      case Ask::kOpen:
        if (!open(line, message.place, reply)) return false;
        break;
      case Ask::kTakeOver:
        if (line.session || !line.greeted) return false;
        take_over(line, message, reply);
        break;
      case Ask::kKnows:
        if (!line.greeted) return false;
        tell(may_go_on(message.token, message.user), reply);
        break;
      case Ask::kGone:
        if (!line.session) return false;
        reply.outcome = all_ended(sessions_.at(*line.session).processes_before)
                            ? Outcome::kGood
                            : Outcome::kStillThere;
        break;
      case Ask::kFetch:
        if (!line.session) return false;
        fetch(line, message.id, reply, reply_file);
        break;
      case Ask::kCounted:
      case Ask::kKeep:
      case Ask::kDrop:
      case Ask::kEnd:
        return line.session && note(line, message, std::move(file));
      case Ask::kAnswer:
      case Ask::kQuit:
        return false;
    }
    return send(line.socket.get(), reply, reply_file, MSG_DONTWAIT);
  }

  // The parent gives a place to the next one when it hears of the end of a process, unless it is
  // kept by then; whoever has not ended by now it has not heard of.
  bool keep_place(const Line& line, std::uint64_t place) {
    options_.on_keep(place);
    if (!has_ended(line.process)) return true;
    options_.on_free(place);
    return false;
  }

  bool open(Line& line, std::uint64_t place, Message& reply) {
    if (line.session || !line.greeted || !keep_place(line, place)) return false;
    random_bytes(reply.token.data(), reply.token.size());
    Session session;
    session.user = line.user;
    session.process = line.process;
    session.place = place;
    if (!sessions_.emplace(reply.token, std::move(session)).second) return false;
    line.session = reply.token;
    reply.outcome = Outcome::kGood;
    return true;
  }

  // The session of that name, if somebody of that user may go on with it, now or soon.
  std::map<Token, Session>::iterator may_go_on(const Token& token, std::uint32_t user) {
    const auto found = sessions_.find(token);
    const bool may = found != sessions_.end() && found->second.user == user &&
                     !found->second.spoilt && options_.may_return(found->second.place);
    return may ? found : sessions_.end();
  }

  // Who is not gone may still write to the memory.
  static bool is_served(const Session& session) {
    return !session.orphan || !(has_ended(session.process) || is_ending(session.process));
  }

  void tell(std::map<Token, Session>::iterator session, Message& reply) const {
    if (session == sessions_.end()) return;
    reply.outcome = Outcome::kGood;
    reply.id = is_served(session->second) ? 1 : 0;
  }

  void take_over(Line& line, const Message& message, Message& reply) {
    const auto found = may_go_on(message.token, line.user);
    if (found == sessions_.end()) return;
    Session& session = found->second;
    if (is_served(session)) {
      reply.outcome = Outcome::kStillThere;
      return;
    }
    if (!keep_place(line, message.place)) return;
    // That of a process before, which died before it had counted anything, stays the one to free.
    if (session.old_place) {
      options_.on_free(session.place);
    } else {
      session.old_place = session.place;
    }
    session.place = message.place;
    // One that took over may have been killed while the one before was still ending.
    static_cast<void>(all_ended(session.processes_before));
    session.processes_before.push_back(session.process);
    session.process = line.process;
    session.orphan = false;
    line.session = message.token;
    line.fetched.clear();
    for (const auto& [name, kept] : session.files) line.fetched.push_back(name);
    reply.outcome = Outcome::kGood;
    reply.id = line.fetched.size();
  }

  void fetch(const Line& line, std::uint64_t number, Message& reply, int& file) const {
    if (number >= line.fetched.size()) return;
    const Session& session = sessions_.at(*line.session);
    const auto found = session.files.find(line.fetched[number]);
    if (found == session.files.end()) return;
    const Kept& kept = found->second;
    reply.outcome = Outcome::kGood;
    reply.kind = kept.kind;
    reply.id = kept.id;
    reply.bytes = kept.bytes;
    reply.device = kept.device;
    file = kept.file.get();
  }

  // What is not answered.
  bool note(Line& line, const Message& message, Fd file) {
    const auto found = sessions_.find(*line.session);
    Session& session = found->second;
    const Name name{message.kind, message.id};
    if (message.ask == Ask::kEnd) {
      line.session.reset();
      forget(found);
    } else if (message.ask == Ask::kCounted) {
      if (session.old_place) options_.on_free(*session.old_place);
      session.old_place.reset();
    } else if (message.ask == Ask::kDrop) {
      drop_files(session, session.files.count(name));
      session.files.erase(name);
    } else if (message.kind == KeptKind{}) {
      return false;
    } else if (!file.valid() || !(session.files.contains(name) || has_room(session))) {
      session.spoilt = true;
    } else {
      Kept kept{message.kind, message.id, message.bytes, message.device, std::move(file)};
      if (session.files.insert_or_assign(name, std::move(kept)).second) note_file(session);
    }
    return true;
  }

  Fd door_;
  const KeeperOptions& options_;
  const std::size_t files_max_;
  const std::size_t share_;    // Files that each session has room for.
  std::size_t files_ = 0;      // Kept, of all sessions.
  std::size_t beyond_ = 0;     // Of those, what is beyond its session's share.
  std::map<int, Line> lines_;  // By socket.
  std::map<Token, Session> sessions_;
  Fd parent_;  // Where the keeper outlives it: the server's.
  Shortage no_parent_;
  Instant waits_until_;
  bool told_to_quit_ = false;
};

}  // namespace

void run_keeper(Fd inside, const KeeperOptions& options) {
  KeeperProcess(std::move(inside), options).run();
}

Result<KeeperLine> KeeperLine::find(const std::string& path) {
  auto line = connect_line(path);
  if (!line) return std::move(line).error();
  limit_patience(line->get(), SO_RCVTIMEO);
  Message door;
  Message board;
  KeeperLine found;
  if (!receive(line->get(), door, found.door_, 0) || door.outcome != Outcome::kGood ||
      !receive(line->get(), board, found.board_, 0) || !found.door_.valid() ||
      !found.board_.valid()) {
    return Error{ErrorCode::kDenied, "the keeper at " + path + " has another server"};
  }
  found.line_ = std::move(*line);
  if (door.id != kKeeperVersion) {
    found.quit();
    return Error{ErrorCode::kUnsupported, "the keeper is one of another version"};
  }
  return found;
}

void KeeperLine::quit() {
  if (!line_.valid()) return;
  static_cast<void>(send(line_.get(), {.ask = Ask::kQuit}, -1, MSG_DONTWAIT));
  // Its end of the line closes when it is gone.
  Message none;
  Fd file;
  static_cast<void>(receive(line_.get(), none, file, 0));
  line_.close();
}

Status Keeping::connect() {
  if (line_.valid()) return {};
  if (door_ < 0) return Error{ErrorCode::kUnsupported, "nothing is kept here"};
  auto ends = make_line();
  if (!ends) return std::move(ends).error();
  limit_patience(ends->first.get(), SO_RCVTIMEO);
  limit_patience(ends->first.get(), SO_SNDTIMEO);
  const Message hello{.ask = Ask::kHello, .user = user_};
  Message reply;
  Fd file;
  if (!send(door_, hello, ends->second.get(), 0)) {
    return system_error("sendmsg to the keeper", errno);
  }
  ends->second.close();
  if (!send(ends->first.get(), hello, -1, 0) || !receive(ends->first.get(), reply, file, 0) ||
      reply.outcome != Outcome::kGood) {
    return Error{ErrorCode::kLost, "the keeper does not answer"};
  }
  line_ = std::move(ends->first);
  return {};
}

Result<Token> Keeping::open() {
  const Lock lock(mutex_);
  if (Status status = connect(); !status) return std::move(status).error();
  Message reply;
  Fd file;
  if (!send(line_.get(), {.ask = Ask::kOpen, .place = place_}, -1, 0) ||
      !receive(line_.get(), reply, file, 0) || reply.outcome != Outcome::kGood) {
    line_.close();
    return Error{ErrorCode::kLost, "the keeper does not answer"};
  }
  return reply.token;
}

Status Keeping::reach() {
  const Lock lock(mutex_);
  return connect();
}

Result<Keeping::Known> Keeping::knows(const Token& token, std::uint32_t user) {
  const Lock lock(mutex_);
  if (Status status = connect(); !status) return std::move(status).error();
  Message reply;
  Fd file;
  if (!send(line_.get(), {.ask = Ask::kKnows, .user = user, .token = token}, -1, 0) ||
      !receive(line_.get(), reply, file, 0)) {
    line_.close();
    return Error{ErrorCode::kLost, "the keeper does not answer"};
  }
  if (reply.outcome != Outcome::kGood) return Known::kNothing;
  return reply.id != 0 ? Known::kServed : Known::kLeft;
}

Result<std::vector<Kept>> Keeping::take_over(const Token& token, Instant deadline) {
  const Lock lock(mutex_);
  if (Status status = connect(); !status) return std::move(status).error();
  while (true) {
    Message reply;
    Fd file;
    if (!send(line_.get(), {.ask = Ask::kTakeOver, .token = token, .place = place_}, -1, 0) ||
        !receive(line_.get(), reply, file, 0)) {
      line_.close();
      return Error{ErrorCode::kLost, "the keeper does not answer"};
    }
    if (reply.outcome == Outcome::kGood) return fetch(reply.id);
    if (reply.outcome != Outcome::kStillThere) {
      return Error{ErrorCode::kInvalid, "nothing is kept of such a session"};
    }
    if (system_clock().now() >= deadline) {
      return Error{ErrorCode::kTimeout, "the session's process is still there"};
    }
    system_clock().sleep_for(kStillTherePause);
  }
}

Result<std::vector<Kept>> Keeping::fetch(std::uint64_t count) {
  std::vector<Kept> all;
  for (std::uint64_t first = 0; first < count; first += kFetchesAtOnce) {
    const std::uint64_t end = std::min(first + kFetchesAtOnce, count);
    bool good = true;
    for (std::uint64_t i = first; i < end && good; ++i) {
      good = send(line_.get(), {.ask = Ask::kFetch, .id = i}, -1, 0);
    }
    for (std::uint64_t i = first; i < end && good; ++i) {
      Message reply;
      Kept kept;
      good = receive(line_.get(), reply, kept.file, 0) && reply.outcome == Outcome::kGood &&
             kept.file.valid();
      kept.kind = reply.kind;
      kept.id = reply.id;
      kept.bytes = reply.bytes;
      kept.device = reply.device;
      if (good) all.push_back(std::move(kept));
    }
    if (good) continue;
    line_.close();
    return Error{ErrorCode::kLost, "the keeper does not answer"};
  }
  return all;
}

Status Keeping::await_end(Instant deadline) {
  const Lock lock(mutex_);
  while (true) {
    Message reply;
    Fd file;
    if (!line_.valid() || !send(line_.get(), {.ask = Ask::kGone}, -1, 0) ||
        !receive(line_.get(), reply, file, 0)) {
      line_.close();
      return Error{ErrorCode::kLost, "the keeper does not answer"};
    }
    if (reply.outcome == Outcome::kGood) return {};
    if (system_clock().now() >= deadline) {
      return Error{ErrorCode::kTimeout, "the session's process does not end"};
    }
    system_clock().sleep_for(kStillTherePause);
  }
}

void Keeping::counted() {
  const Lock lock(mutex_);
  if (line_.valid()) static_cast<void>(send(line_.get(), {.ask = Ask::kCounted}, -1, 0));
}

void Keeping::keep(const Kept& kept) {
  const Lock lock(mutex_);
  if (!line_.valid()) return;
  const Message message{.ask = Ask::kKeep,
                        .kind = kept.kind,
                        .id = kept.id,
                        .bytes = kept.bytes,
                        .device = kept.device};
  // A keeper that takes nothing must not be left with half of a session.
  if (!send(line_.get(), message, kept.file.get(), 0)) line_.close();
}

void Keeping::drop(KeptKind kind, std::uint64_t id) {
  const Lock lock(mutex_);
  if (!line_.valid()) return;
  if (!send(line_.get(), {.ask = Ask::kDrop, .kind = kind, .id = id}, -1, 0)) line_.close();
}

void Keeping::end() {
  const Lock lock(mutex_);
  if (line_.valid()) static_cast<void>(send(line_.get(), {.ask = Ask::kEnd}, -1, 0));
}

}  // namespace flyt::server
