#include "control/client/broker.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace flyt::vm {
namespace {

// A token must last until the program has connected.
constexpr std::int64_t kTokenMarginSeconds = 10;
constexpr Duration kFresh = std::chrono::seconds(5);
constexpr Duration kRetryLeast = std::chrono::milliseconds(500);
constexpr Duration kRetryMost = std::chrono::seconds(5);
// The cluster may have forgotten a wish while nobody told us.
constexpr Duration kAskAgain = std::chrono::seconds(5);
// Where it does not answer, how long a program waits for it that could have what was known.
constexpr Duration kDoubtMost = std::chrono::seconds(2);
constexpr std::size_t kReasonBytesMax = 512;

// Once more will not help: an operator has to do something first.
bool is_final(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
    case ErrorCode::kNotFound:
    case ErrorCode::kDenied:
    case ErrorCode::kUnsupported:
      return true;
    case ErrorCode::kLimit:
    case ErrorCode::kLost:
    case ErrorCode::kTimeout:
    case ErrorCode::kSystem:
      return false;
  }
  return false;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    // Control characters and bytes beyond ASCII are nobody's to print.
    out += c >= ' ' && c <= '~' ? c : '?';
  }
  return out + "\"";
}

}  // namespace

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::kNone:
      return "none";
    case Phase::kWaiting:
      return "waiting";
    case Phase::kStarting:
      return "starting";
    case Phase::kReady:
      return "ready";
    case Phase::kEnding:
      return "ending";
  }
  return "unknown";
}

std::size_t Broker::users() const {
  return static_cast<std::size_t>(std::count_if(
      programs_.begin(), programs_.end(), [](const auto& one) { return one.second.granted; }));
}

void Broker::arrive(ProgramId id, Program program, Now now) {
  if (programs_.size() >= options_.programs_max) {
    sends_.push_back(
        {id, wire::DeskRefused{ErrorCode::kLimit, std::to_string(options_.programs_max) +
                                                      " programs use or want the GPU already"}});
    return;
  }
  if (const auto error = out_of_reach()) {
    sends_.push_back({id, wire::DeskRefused{error->code, error->message}});
    return;
  }
  Entry& entry = programs_[id];
  entry.program = std::move(program);
  // What it was granted is not there: what the cluster says now is to be asked for.
  if (entry.program.purpose == wire::DeskPurpose::kAgain) tokens_.erase(entry.program.user);
  if (!away_.empty()) entry.doubts_until = now.at + kDoubtMost;
  tell(id, entry, now);
}

void Broker::believe() {
  for (auto& [id, entry] : programs_) entry.doubts_until.reset();
}

void Broker::pass(Now now) {
  for (auto& [id, entry] : programs_) {
    if (!entry.doubts_until || now.at < *entry.doubts_until) continue;
    entry.doubts_until.reset();
    tell(id, entry, now);
  }
}

void Broker::adopt(ProgramId id, Program program) {
  programs_[id] = {.program = std::move(program), .granted = true, .told = {}};
}

void Broker::leave(ProgramId id, Now now) {
  if (programs_.erase(id) != 0 && programs_.empty()) idle_since_ = now.at;
}

void Broker::learn(const VirtualGpu& gpu) {
  gpu_ = gpu;
  gpu_.token.clear();
  gpu_.reason = gpu_.reason.substr(0, kReasonBytesMax);
  known_ = true;
}

void Broker::heard(const VirtualGpu& gpu, Now now) {
  away_.clear();
  believe();
  const bool waited = !known_ || gpu_.phase != Phase::kReady;
  learn(gpu);
  // The rest was for what is over now; that of a cluster that fails stays.
  if (waited && gpu_.phase == Phase::kReady && failures_ == 0) retry_at_ = now.at;
  if (const auto error = out_of_reach()) refuse_waiting(*error);
  tell_all(now);
}

void Broker::cluster_away(const std::string& why, Now now) {
  away_ = why.empty() ? "it does not answer" : why.substr(0, kReasonBytesMax);
  tell_all(now);
}

const Broker::Token* Broker::token_of(std::uint32_t user, Now now) const {
  const auto found = tokens_.find(user);
  if (found == tokens_.end() || found->second.generation != gpu_.generation) return nullptr;
  const Token& token = found->second;
  const bool lasts = token.expires_at - kTokenMarginSeconds > now.unix_seconds;
  return lasts || now.at < token.fresh_until ? &token : nullptr;
}

std::optional<std::string> Broker::url() const {
  const bool here = !options_.host.empty() && options_.host == gpu_.host;
  for (const std::string& url : gpu_.urls) {
    if (url.starts_with("unix://") && here) return url;
  }
  for (const std::string& url : gpu_.urls) {
    if (!url.starts_with("unix://")) return url;
  }
  return std::nullopt;
}

std::optional<Error> Broker::out_of_reach() const {
  // What is known may be old, or is over soon.
  if (!known_ || gpu_.phase != Phase::kReady || !away_.empty() || releasing_ || url()) {
    return std::nullopt;
  }
  return Error{ErrorCode::kUnsupported,
               "node " + gpu_.node +
                   " tells no address for other machines: set leases.tcp_host and leases.tcp_ports"
                   " in its node.toml; or, if this is its machine, vm.host = \"" +
                   gpu_.host + "\" in this one's client.toml"};
}

void Broker::tell_all(Now now) {
  for (auto& [id, entry] : programs_) {
    if (!entry.granted) tell(id, entry, now);
  }
}

void Broker::tell(ProgramId id, Entry& entry, Now now) {
  const Token* token = token_of(entry.program.user, now);
  if (known_ && gpu_.phase == Phase::kReady && token != nullptr && !releasing_ &&
      !entry.doubts_until) {
    if (const auto where = url()) {
      entry.granted = true;
      sends_.push_back({id, wire::DeskGranted{gpu_.generation, *where, token->text}});
      return;
    }
  }
  wire::DeskWaiting waiting;
  if (!away_.empty()) {
    waiting.why = "the cluster does not answer: " + away_;
  } else if (known_ && gpu_.phase == Phase::kWaiting) {
    waiting.ahead = gpu_.ahead;
    waiting.why = gpu_.reason;
  } else if (known_ && gpu_.phase == Phase::kStarting) {
    waiting.why = "node " + gpu_.node + " is asked for it";
  } else {
    // It has only just been asked for: nothing is known yet.
    return;
  }
  if (entry.told == waiting) return;
  entry.told = waiting;
  sends_.push_back({id, waiting});
}

void Broker::refuse_waiting(const Error& error) {
  for (auto& [id, entry] : programs_) {
    if (!entry.granted) sends_.push_back({id, wire::DeskRefused{error.code, error.message}});
  }
  // Whoever is refused leaves; until then it is not asked for again.
  std::erase_if(programs_, [](const auto& one) { return !one.second.granted; });
}

std::optional<Broker::Ask> Broker::next(Now now) {
  if (asking_) return std::nullopt;
  const bool rests = now.at < retry_at_;
  for (const auto& [id, entry] : programs_) {
    // Whoever doubts asks at once: it may be answered again.
    if (entry.granted || (rests && !entry.doubts_until)) continue;
    const bool ready = known_ && gpu_.phase == Phase::kReady;
    const bool under_way =
        known_ && (gpu_.phase == Phase::kWaiting || gpu_.phase == Phase::kStarting);
    if (ready && token_of(entry.program.user, now) != nullptr && !entry.doubts_until) continue;
    // While it is under way the cluster tells by itself, as long as it is there.
    if (under_way && away_.empty()) continue;
    asking_ = true;
    return Ask{Ask::Kind::kRequest, entry.program.user};
  }
  if (rests) return std::nullopt;
  const bool ours = known_ && gpu_.phase != Phase::kNone && gpu_.phase != Phase::kEnding;
  // What nobody can use here is not kept for the next program.
  const bool over = now.at >= idle_since_ + options_.grace || out_of_reach();
  if (programs_.empty() && ours && over) {
    asking_ = releasing_ = true;
    return Ask{Ask::Kind::kRelease, 0};
  }
  return std::nullopt;
}

Instant Broker::wake_at(Now now) const {
  if (asking_) return now.at + kAskAgain;
  Instant at = now.at + kAskAgain;
  if (retry_at_ > now.at) at = std::min(at, retry_at_);
  if (programs_.empty() && idle_since_ + options_.grace > now.at) {
    at = std::min(at, idle_since_ + options_.grace);
  }
  return at;
}

void Broker::answered(const Ask& ask, const Result<VirtualGpu>& answer, Now now) {
  asking_ = releasing_ = false;
  believe();
  if (!answer) {
    failures_ = std::min(failures_ + 1, 16u);
    const Duration wait = kRetryLeast * (1u << std::min(failures_ - 1, 6u));
    retry_at_ = now.at + std::min<Duration>(wait, kRetryMost);
    if (!is_final(answer.error().code)) {
      cluster_away(answer.error().message, now);
    } else if (ask.kind == Ask::Kind::kRequest) {
      refuse_waiting(answer.error());
    } else {
      // It is not ours any more, whatever it was.
      gpu_.phase = Phase::kNone;
    }
    if (programs_.empty()) idle_since_ = now.at;
    tell_all(now);
    return;
  }
  failures_ = 0;
  // Who must wait is not asked for again at once.
  retry_at_ = answer->phase == Phase::kReady || ask.kind == Ask::Kind::kRelease
                  ? now.at
                  : now.at + kRetryLeast;
  learn(*answer);
  away_.clear();
  if (ask.kind == Ask::Kind::kRequest && answer->phase == Phase::kReady) {
    const bool needless = answer->token.empty() && answer->token_expires_at == 0;
    const std::int64_t until = needless ? INT64_MAX : answer->token_expires_at;
    tokens_[ask.user] = {answer->token, until, answer->generation, now.at + kFresh};
    std::erase_if(tokens_,
                  [&](const auto& one) { return one.second.generation != gpu_.generation; });
    if (until - kTokenMarginSeconds <= now.unix_seconds) {
      retry_at_ = now.at + kRetryLeast;
    }
  }
  if (const auto error = out_of_reach()) refuse_waiting(*error);
  tell_all(now);
}

std::vector<Broker::Send> Broker::take_sends() { return std::exchange(sends_, {}); }

std::string Broker::status_json() const {
  std::string text = "{\"vm\": " + quoted(gpu_.vm) + ", \"phase\": ";
  text += known_ ? quoted(to_string(gpu_.phase)) : "\"unknown\"";
  text += ", \"reason\": " + quoted(gpu_.reason) + ", \"ahead\": " + std::to_string(gpu_.ahead);
  text += ", \"node\": " + quoted(gpu_.node) + ", \"gpu\": " + quoted(gpu_.gpu_name);
  text += ", \"sms\": " + std::to_string(gpu_.sms);
  text += ", \"memory_bytes\": " + std::to_string(gpu_.memory_bytes);
  text += ", \"url\": " + quoted(gpu_.phase == Phase::kReady ? url().value_or("") : "");
  text += ", \"programs\": " + std::to_string(users());
  text += ", \"waiting\": " + std::to_string(waiting());
  text += ", \"cluster\": " + (away_.empty() ? std::string("\"answers\"") : quoted(away_));
  return text + "}";
}

}  // namespace flyt::vm
