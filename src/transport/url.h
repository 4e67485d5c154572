// Url: where a server listens: shm:///path, unix:///path, tcp://host:port; a path may be /@name, in
// the abstract space. Options may follow: unix:///path?shm=off, tcp://host:port?delay=1ms
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace flyt::transport {

// kUnix goes on in shared memory where the server offers that; kShm insists on it.
enum class Kind : std::uint8_t { kUnix, kTcp, kShm };

std::string_view to_string(Kind kind);

// How a client's code travels (docs/flyt-run.md).
enum class CodeOption : std::uint8_t { kAuto, kSend, kStore, kPack };

// Whether what travels on lanes is packed (docs/flyt-run.md).
enum class CompressOption : std::uint8_t { kAuto, kOff, kOn };

// Whether a client's session goes on when its process is killed (docs/recovery.md).
enum class RecoverOption : std::uint8_t { kOn, kOff, kReplay };

// Lanes that a client may ask for.
inline constexpr unsigned kLanesOptionMax = 16;

struct Url {
  Kind kind = Kind::kUnix;
  std::string path;          // unix, shm: an absolute path, or '@' and an abstract name.
  std::string host;          // tcp: a name or address, without the brackets of IPv6.
  std::uint16_t port = 0;    // tcp: 0 only makes sense for listening.
  Duration delay{0};         // Connecting only: how much later everything arrives (delayed.h).
  bool socket_only = false;  // unix: shm=off, the session stays on its socket.
  CodeOption code = CodeOption::kAuto;  // Connecting only, as are the next.
  std::optional<unsigned> lanes;        // tcp: further connections for bulk data; none: by cores.
  CompressOption compress = CompressOption::kAuto;
  RecoverOption recover = RecoverOption::kOn;
  friend bool operator==(const Url&, const Url&) = default;
};

// Errors name what is wrong and show the forms that are right.
Result<Url> parse_url(std::string_view text);

// The same of an address to listen at, in which options that only a client understands are refused:
// all but shm=off.
Result<Url> parse_listening_url(std::string_view text);

// Whether other machines may reach who listens there: over tcp at anything but the loopback.
bool reaches_others(const Url& url);

// The text that parse_url() reads back.
std::string to_string(const Url& url);

}  // namespace flyt::transport
