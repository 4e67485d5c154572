#include "control/client/desk_server.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "base/haste.h"
#include "base/listening.h"
#include "transport/peer.h"
#include "wire/desk.h"

namespace flyt::vm {
namespace {

constexpr Duration kAskTime = std::chrono::seconds(2);
constexpr int kTickMs = 1000;
constexpr std::size_t kOutBytesMax = 64 * kKiB;
// Beside the programs: those that only ask how things are, or have not said anything yet.
constexpr std::size_t kFurtherPeersMax = 64;
// Of those that have not, the ones of one user.
constexpr std::size_t kSilentOfOneMax = 16;

}  // namespace

Result<std::unique_ptr<DeskServer>> DeskServer::open(const Config& config, Office& office,
                                                     const Log& log) {
  std::unique_ptr<DeskServer> server(new DeskServer(config, office, log));
  auto users = users_of(config);
  if (!users) return std::move(users).error();
  server->users_ = std::move(*users);
  transport::Url url;
  url.path = config.socket;
  auto listener = transport::listen(url);
  if (!listener) {
    return with_listening_advice(std::move(listener).error(), "programs.socket or --socket");
  }
  server->listener_ = std::move(*listener);
  // Who may ask is told by the system, not by the file.
  if (::chmod(config.socket.c_str(), 0666) != 0) {
    return system_error("cannot open " + config.socket + " to programs", errno);
  }
  server->take_over();
  return server;
}

void DeskServer::take_over() {
  const std::string path = config_.state_folder + "/programs";
  auto known = read_programs(path);
  if (!known) {
    log_.warn("which programs have the GPU is not known: they are counted when they ask again",
              {{"file", path}, {"why", known.error().message}});
    return;
  }
  if (known->senseless != 0) {
    // The next change of who has the GPU replaces it.
    const std::string kept = path + ".damaged";
    std::error_code error;
    std::filesystem::copy_file(path, kept, std::filesystem::copy_options::overwrite_existing,
                               error);
    log_.warn("lines of the state file name no program and are left out",
              {{"file", path},
               {"lines", known->senseless},
               {"programs", known->programs.size()},
               {"copy", error ? error.message() : kept}});
  }
  for (KnownProgram& one : known->programs) {
    const ProgramId id = ++last_id_;
    office_.adopt(id, {.user = one.user, .process = one.process, .name = one.name});
    log_.info("a program goes on", {{"program", one.name}, {"process", one.process}});
    adopted_.emplace(id, std::move(one));
  }
}

void DeskServer::stop() {
  stopped_ = true;
  office_.sends().signal();
}

void DeskServer::run() {
  while (!stopped_) {
    wait(system_clock().now());
    office_.sends().clear();
    office_.pass();
    deliver();
    look_after(system_clock().now());
    if (to_remember_) remember();
    lines_.tell_left_out(own_log_);
  }
  lines_.finish(own_log_);
}

// Sleeps until something happens, and takes what has come.
void DeskServer::wait(Instant now) {
  const int listener = no_connections_.resting(now) ? -1 : listener_->fd();
  std::vector<pollfd> entries{{office_.sends().fd(), POLLIN, 0}, {listener, POLLIN, 0}};
  std::vector<ProgramId> ids;
  for (const auto& [id, peer] : peers_) {
    const auto wanted = static_cast<short>(POLLIN | (peer.out.empty() ? 0 : POLLOUT));
    entries.push_back({peer.connection->fd(), wanted, 0});
    ids.push_back(id);
  }
  if (::poll(entries.data(), entries.size(), no_connections_.limit(kTickMs, now)) <= 0) return;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const short found = entries[i + 2].revents;
    const auto peer = peers_.find(ids[i]);
    if (found == 0) continue;
    if (!read(peer->first, peer->second)) {
      drop(peer, "");
    } else if (!flush(peer->second)) {
      drop(peer, "");
    }
  }
  if (entries[1].revents != 0) accept_one();
}

void DeskServer::accept_one() {
  const Instant now = system_clock().now();
  auto connection = listener_->accept(now, nullptr);
  if (!connection) {
    if (connection.error().code == ErrorCode::kSystem && no_connections_.met(now)) {
      log_.error("nobody can connect for now", {{"why", connection.error().message}});
    }
    return;
  }
  const auto process = transport::process_of_peer((*connection)->fd());
  if (!process) return;
  make_room(process->user);
  if (peers_.size() >= config_.programs_max + kFurtherPeersMax) return;
  Peer peer;
  peer.connection = std::move(*connection);
  peer.ask_by = now + kAskTime;
  peer.program.process = process->process;
  peer.program.user = process->user;
  peers_.emplace(++last_id_, std::move(peer));
}

// Whoever has said nothing for longest goes for a newcomer, of its user if that has too many such
// connections, else of all: a program asks as soon as it is connected, so that none is kept out.
void DeskServer::make_room(std::uint32_t user) {
  const auto silent = [](const auto& peer) { return !peer.second.asked; };
  const auto of_user = [&](const auto& peer) {
    return silent(peer) && peer.second.program.user == user;
  };
  const auto count = [this](const auto& which) {
    return static_cast<std::size_t>(std::count_if(peers_.begin(), peers_.end(), which));
  };
  if (count(of_user) >= kSilentOfOneMax) {
    drop(std::find_if(peers_.begin(), peers_.end(), of_user),
         "its user has too many that are silent");
  } else if (count(silent) >= kFurtherPeersMax) {
    drop(std::find_if(peers_.begin(), peers_.end(), silent), "too many are silent");
  }
}

bool DeskServer::may_ask(std::uint32_t user) const {
  return users_.empty() || user == 0 || user == ::geteuid() ||
         std::find(users_.begin(), users_.end(), user) != users_.end();
}

bool DeskServer::read(ProgramId id, Peer& peer) {
  std::array<std::byte, 1024> space;
  const std::array pieces{MutableBytes(space)};
  const auto got = [&] {
    // What else was sent, descriptors, is dropped with it.
    const Haste haste;
    return peer.connection->read(pieces, transport::Patience::kNow);
  }();
  if (!got) return false;
  if (*got == 0) return true;
  // Whoever has asked has nothing more to say.
  if (peer.asked) return false;
  peer.in.insert(peer.in.end(), space.begin(), space.begin() + static_cast<std::ptrdiff_t>(*got));
  auto message = wire::take_desk_message(peer.in);
  if (!message) {
    log_.warn("a program is not understood",
              {{"process", peer.program.process}, {"why", message.error().message}});
    return false;
  }
  if (!message->has_value()) return true;
  const auto* ask = std::get_if<wire::DeskAsk>(&**message);
  if (ask == nullptr || !peer.in.empty()) return false;
  answer(id, peer, *ask);
  return true;
}

void DeskServer::answer(ProgramId id, Peer& peer, const wire::DeskAsk& ask) {
  peer.asked = true;
  peer.program.name = ask.program;
  const auto say = [&peer](const wire::DeskMessage& message) {
    const auto bytes = wire::encode(message);
    peer.out.insert(peer.out.end(), bytes.begin(), bytes.end());
    peer.closing = true;
  };
  if (ask.purpose == wire::DeskPurpose::kStatus) {
    say(wire::DeskStatus{office_.status_json()});
  } else if (!may_ask(peer.program.user)) {
    log_.warn("a user has no part in the GPU",
              {{"user", peer.program.user}, {"program", ask.program}});
    say(wire::DeskRefused{ErrorCode::kDenied,
                          "user " + std::to_string(peer.program.user) +
                              " may not use this machine's virtual GPU (programs.users)"});
  } else {
    office_.arrive(id, {.user = peer.program.user,
                        .process = peer.program.process,
                        .name = ask.program,
                        .purpose = ask.purpose});
  }
}

bool DeskServer::flush(Peer& peer) {
  while (!peer.out.empty()) {
    const std::array pieces{Bytes(peer.out)};
    const auto sent = peer.connection->write(pieces, transport::Patience::kNow);
    if (!sent) return false;
    if (*sent == 0) return peer.out.size() <= kOutBytesMax;
    peer.out.erase(peer.out.begin(), peer.out.begin() + static_cast<std::ptrdiff_t>(*sent));
  }
  return !peer.closing;
}

void DeskServer::deliver() {
  for (const Broker::Send& send : office_.take_sends()) {
    const auto found = peers_.find(send.program);
    if (found == peers_.end()) continue;
    Peer& peer = found->second;
    const auto bytes = wire::encode(send.message);
    peer.out.insert(peer.out.end(), bytes.begin(), bytes.end());
    if (std::holds_alternative<wire::DeskRefused>(send.message)) peer.closing = true;
    if (std::holds_alternative<wire::DeskGranted>(send.message)) {
      peer.granted = true;
      peer.program.start = start_of_process(peer.program.process).value_or(0);
      to_remember_ = true;
      log_.info("a program has the GPU",
                {{"program", peer.program.name}, {"process", peer.program.process}});
    }
    if (!flush(peer)) drop(found, "");
  }
}

void DeskServer::drop(Peers::iterator peer, std::string_view why) {
  if (!why.empty()) {
    log_.warn("a program is sent away", {{"process", peer->second.program.process}, {"why", why}});
  }
  if (peer->second.asked) office_.leave(peer->first);
  to_remember_ = to_remember_ || peer->second.granted;
  const Haste haste;
  peers_.erase(peer);
}

void DeskServer::look_after(Instant now) {
  for (auto peer = peers_.begin(); peer != peers_.end();) {
    const auto next = std::next(peer);
    if (!peer->second.asked && now >= peer->second.ask_by) drop(peer, "it asked for nothing");
    peer = next;
  }
  for (auto one = adopted_.begin(); one != adopted_.end();) {
    if (runs(one->second)) {
      ++one;
      continue;
    }
    office_.leave(one->first);
    to_remember_ = true;
    one = adopted_.erase(one);
  }
}

void DeskServer::remember() {
  std::vector<KnownProgram> programs;
  for (const auto& [id, one] : adopted_) programs.push_back(one);
  for (const auto& [id, peer] : peers_) {
    if (peer.granted && peer.program.start != 0) programs.push_back(peer.program);
  }
  const Status written = write_programs(config_.state_folder + "/programs", programs);
  // It goes on without: only a restart would not know of them. The next change tries again.
  if (!written) log_.error("the state is not written", {{"why", written.error().message}});
  to_remember_ = false;
}

}  // namespace flyt::vm
