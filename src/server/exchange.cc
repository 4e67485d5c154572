// Exchange: what sessions of one server share, kept in a process of its own.
#include "server/exchange.h"

#include <poll.h>
#include <sys/socket.h>  // lint: allow(sockets): files go from process to process
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "base/random.h"
#include "server/parent/fd_line.h"

namespace flyt::server {
namespace {

enum class Ask : std::uint32_t { kHello = 1, kShare = 2, kFind = 3, kWithdraw = 4, kAnswer = 5 };

// One message, either direction; a file may go with it.
struct Message {
  Ask ask{};
  std::uint32_t user = 0;  // kHello
  std::uint32_t ok = 0;    // kAnswer
  SharedKind kind{};
  Token token{};
  std::array<std::byte, SharedObject::kFactsBytes> facts{};
};
static_assert(sizeof(Message) == 128);

constexpr std::size_t kFilesKept = 32;  // Of this process, beside what is shared.
// A session has one, and for a moment a second one.
constexpr std::ptrdiff_t kLinesOfOneMax = 16;

bool send(int socket, const Message& message, int file, int flags) {
  return send_message(socket, bytes_at(&message, sizeof message), file, flags);
}
bool receive(int socket, Message& message, Fd& file, int flags) {
  return receive_message(socket, mutable_bytes_at(&message, sizeof message), file, flags);
}

// The process that keeps things. One thread.
class Shelf {
 public:
  Shelf(Fd door, std::size_t files_max) : door_(std::move(door)), files_max_(files_max) {}

  void run() {
    if (files_max_ == 0) files_max_ = allow_most_files();
    while (door_.valid()) turn();
  }

 private:
  struct Line {
    Fd socket;
    pid_t process = 0;
    std::uint32_t user = 0;
    bool greeted = false;
    std::size_t objects = 0;
  };
  struct Kept {
    SharedObject object;
    int line = 0;
    std::uint32_t user = 0;
  };

  void turn() {
    std::vector<pollfd> wanted = {{door_.get(), POLLIN, 0}};
    for (const auto& [socket, line] : lines_) wanted.push_back({socket, POLLIN, 0});
    if (::poll(wanted.data(), wanted.size(), -1) < 0) return;
    for (const pollfd& item : wanted) {
      if (item.revents == 0) continue;
      if (item.fd == door_.get()) {
        admit(item.revents);
      } else {
        serve(item.fd);
      }
    }
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
    if (!socket.valid() || message.ask != Ask::kHello || room() == 0) return;
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

  void serve(int number) {
    Line& line = lines_.at(number);
    Message message;
    Fd file;
    if (!receive(number, message, file, MSG_DONTWAIT) || !answer(line, message, std::move(file))) {
      std::erase_if(kept_, [number](const auto& entry) { return entry.second.line == number; });
      lines_.erase(number);
    }
  }

  // False: the session broke a rule, or does not read its answers.
  bool answer(Line& line, const Message& message, Fd file) {
    if (message.ask < Ask::kHello || message.ask > Ask::kAnswer) return false;
    Message reply{.ask = Ask::kAnswer};
    int reply_file = -1;
    switch (message.ask) {
      case Ask::kHello:
        if (line.greeted) return false;
        line.greeted = true;
        line.user = message.user;
        reply.ok = 1;
        break;
      case Ask::kShare:
        reply.ok = line.greeted && keep(line, message, std::move(file), reply.token) ? 1 : 0;
        break;
      case Ask::kFind: {
        const auto found = kept_.find(message.token);
        if (!line.greeted || found == kept_.end() || found->second.user != line.user ||
            found->second.object.kind != message.kind) {
          break;
        }
        reply.ok = 1;
        reply.kind = found->second.object.kind;
        reply.facts = found->second.object.facts;
        reply_file = found->second.object.file.get();
        break;
      }
      case Ask::kWithdraw: {
        const auto found = kept_.find(message.token);
        if (found == kept_.end() || found->second.line != line.socket.get()) break;
        kept_.erase(found);
        --line.objects;
        reply.ok = 1;
        break;
      }
      case Ask::kAnswer:
        return false;
    }
    return send(line.socket.get(), reply, reply_file, MSG_DONTWAIT);
  }

  // For lines and objects together.
  std::size_t room() const {
    const std::size_t used = lines_.size() + kept_.size() + kFilesKept;
    return files_max_ - std::min(used, files_max_);
  }

  bool keep(Line& line, const Message& message, Fd file, Token& token) {
    if (message.kind < SharedKind::kMemory || message.kind > SharedKind::kPool) return false;
    const bool full = line.objects >= std::min(Exchange::kObjectsMax, room());
    if (full || (message.kind == SharedKind::kMemory) != file.valid()) return false;
    random_bytes(token.data(), token.size());
    Kept kept{{message.kind, message.facts, std::move(file)}, line.socket.get(), line.user};
    if (!kept_.emplace(token, std::move(kept)).second) return false;
    ++line.objects;
    return true;
  }

  Fd door_;
  std::size_t files_max_;
  std::map<int, Line> lines_;  // By socket.
  std::map<Token, Kept> kept_;
};

}  // namespace

// FNV-1a; what keeps tenants apart is that the exchange's names cannot be guessed.
std::uint32_t user_of(std::string_view identity) {
  std::uint32_t hash = 2166136261U;
  for (const char letter : identity) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619U;
  return hash;
}

Result<Door> make_door() {
  auto ends = make_line();
  if (!ends) return std::move(ends).error();
  // Of all who have it.
  limit_patience(ends->second.get(), SO_SNDTIMEO);
  return Door{std::move(ends->first), std::move(ends->second)};
}

void run_exchange(Fd inside, std::size_t files_max) { Shelf(std::move(inside), files_max).run(); }

Status Exchange::connect() {
  if (line_.valid()) return {};
  if (door_ < 0) return Error{ErrorCode::kUnsupported, "nothing is shared here"};
  auto ends = make_line();
  if (!ends) return std::move(ends).error();
  limit_patience(ends->first.get(), SO_RCVTIMEO);
  limit_patience(ends->first.get(), SO_SNDTIMEO);
  Message hello{.ask = Ask::kHello, .user = user_};
  Message reply;
  Fd file;
  if (!send(door_, hello, ends->second.get(), 0)) {
    return system_error("sendmsg to the exchange", errno);
  }
  ends->second.close();
  if (!send(ends->first.get(), hello, -1, 0) || !receive(ends->first.get(), reply, file, 0) ||
      reply.ok == 0) {
    return Error{ErrorCode::kLost, "the exchange does not answer"};
  }
  line_ = std::move(ends->first);
  return {};
}

Result<Token> Exchange::share(const SharedObject& object) {
  const Lock lock(mutex_);
  if (Status status = connect(); !status) return std::move(status).error();
  Message message{.ask = Ask::kShare, .kind = object.kind, .facts = object.facts};
  Message reply;
  Fd file;
  if (!send(line_.get(), message, object.file.valid() ? object.file.get() : -1, 0) ||
      !receive(line_.get(), reply, file, 0)) {
    line_.close();
    return Error{ErrorCode::kLost, "the exchange does not answer"};
  }
  if (reply.ok == 0) return Error{ErrorCode::kLimit, "the exchange takes no more"};
  return reply.token;
}

Result<SharedObject> Exchange::find(const Token& token, SharedKind kind) {
  const Lock lock(mutex_);
  if (Status status = connect(); !status) return std::move(status).error();
  Message message{.ask = Ask::kFind, .kind = kind, .token = token};
  Message reply;
  Fd file;
  if (!send(line_.get(), message, -1, 0) || !receive(line_.get(), reply, file, 0)) {
    line_.close();
    return Error{ErrorCode::kLost, "the exchange does not answer"};
  }
  if (reply.ok == 0) return Error{ErrorCode::kInvalid, "no such shared object"};
  return SharedObject{kind, reply.facts, std::move(file)};
}

void Exchange::withdraw(const Token& token) {
  const Lock lock(mutex_);
  if (!line_.valid()) return;
  Message message{.ask = Ask::kWithdraw, .token = token};
  Message reply;
  Fd file;
  if (!send(line_.get(), message, -1, 0) || !receive(line_.get(), reply, file, 0)) {
    line_.close();
  }
}

}  // namespace flyt::server
