#include "transport/url.h"

#include <algorithm>
#include <charconv>

#include "transport/delayed.h"

namespace flyt::transport {
namespace {

constexpr std::string_view kUnixScheme = "unix://";
constexpr std::string_view kShmScheme = "shm://";
constexpr std::string_view kTcpScheme = "tcp://";
// What fits into sockaddr_un::sun_path with the terminating zero.
constexpr std::size_t kUnixPathBytesMax = 107;
constexpr std::size_t kHostBytesMax = 255;

Error bad(std::string_view text, std::string_view why) {
  return Error{ErrorCode::kInvalid,
               "address \"" + std::string(text) + "\": " + std::string(why) +
                   " (use shm:///path, unix:///path, unix:///@name or tcp://host:port)"};
}

Result<Url> parse_unix(Kind kind, std::string_view text, std::string_view rest) {
  if (!rest.starts_with('/')) return bad(text, "a socket path is absolute");
  if (rest.starts_with("/@")) rest.remove_prefix(1);
  if (rest.size() < 2) return bad(text, "the socket path is empty");
  if (rest.size() > kUnixPathBytesMax) {
    return bad(text, "the socket path is longer than " + std::to_string(kUnixPathBytesMax));
  }
  if (rest.find('\0') != std::string_view::npos) return bad(text, "a zero byte in the path");
  return Url{kind, std::string(rest), {}, 0};
}

Result<Url> parse_tcp(std::string_view text, std::string_view rest) {
  std::string_view host;
  std::string_view port;
  if (rest.starts_with('[')) {
    const std::size_t end = rest.find(']');
    if (end == std::string_view::npos) return bad(text, "'[' without ']'");
    host = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
    if (!rest.starts_with(':')) return bad(text, "the port is missing");
    port = rest.substr(1);
  } else {
    const std::size_t colon = rest.rfind(':');
    if (colon == std::string_view::npos) return bad(text, "the port is missing");
    host = rest.substr(0, colon);
    port = rest.substr(colon + 1);
    if (host.find(':') != std::string_view::npos) {
      return bad(text, "an IPv6 address stands in brackets");
    }
  }
  if (host.empty()) return bad(text, "the host is empty");
  if (host.size() > kHostBytesMax) return bad(text, "the host is too long");
  if (host.find_first_of("/@?# \t\r\n") != std::string_view::npos ||
      host.find('\0') != std::string_view::npos) {
    return bad(text, "the host holds a character that no host has");
  }
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc{} || end != port.data() + port.size()) {
    return bad(text, "the port is not a number from 0 to 65535");
  }
  return Url{Kind::kTcp, {}, std::string(host), number};
}

struct Unit {
  std::string_view name;
  std::int64_t ns;
};
constexpr Unit kUnits[] = {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}};

Status parse_delay(std::string_view text, std::string_view value, Duration& out) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const std::string_view unit = value.substr(static_cast<std::size_t>(end - value.data()));
  for (const Unit& known : kUnits) {
    if (error != std::errc{} || known.name != unit) continue;
    out = Duration(static_cast<std::int64_t>(number) * known.ns);
    if (out <= kDelayMax) return {};
  }
  return bad(text, "delay is a whole number of us, ms or s, at most 10s, such as delay=1ms");
}

constexpr std::string_view kCodeOptions[] = {"auto", "send", "store", "pack"};

Status parse_code(std::string_view text, std::string_view value, CodeOption& out) {
  for (std::size_t i = 0; i < std::size(kCodeOptions); ++i) {
    if (kCodeOptions[i] != value) continue;
    out = static_cast<CodeOption>(i);
    return {};
  }
  return bad(text, "code is auto, send, store or pack");
}

Status parse_lanes(std::string_view text, std::string_view value, std::optional<unsigned>& out) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size() || number > kLanesOptionMax) {
    return bad(text, "lanes is a number from 0 to 16");
  }
  out = number;
  return {};
}

constexpr std::string_view kCompressOptions[] = {"auto", "off", "on"};

Status parse_compress(std::string_view text, std::string_view value, CompressOption& out) {
  for (std::size_t i = 0; i < std::size(kCompressOptions); ++i) {
    if (kCompressOptions[i] != value) continue;
    out = static_cast<CompressOption>(i);
    return {};
  }
  return bad(text, "compress is auto, off or on");
}

constexpr std::string_view kRecoverOptions[] = {"on", "off", "replay"};

Status parse_recover(std::string_view text, std::string_view value, RecoverOption& out) {
  for (std::size_t i = 0; i < std::size(kRecoverOptions); ++i) {
    if (kRecoverOptions[i] != value) continue;
    out = static_cast<RecoverOption>(i);
    return {};
  }
  return bad(text, "recover is on, off or replay");
}

// What stands behind '?': name=value, separated by '&'.
Status parse_options(std::string_view text, std::string_view rest, Url& url) {
  while (!rest.empty()) {
    const std::string_view option = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), option.size() + 1));
    const std::string_view name = option.substr(0, option.find('='));
    const std::string_view value = option.substr(std::min(option.size(), name.size() + 1));
    Status read;
    if (option == "shm=off" && url.kind == Kind::kUnix) {
      url.socket_only = true;
    } else if (name == "delay" && url.kind != Kind::kShm) {
      read = parse_delay(text, value, url.delay);
    } else if (name == "code") {
      read = parse_code(text, value, url.code);
    } else if (name == "recover") {
      read = parse_recover(text, value, url.recover);
    } else if (name == "lanes" && url.kind == Kind::kTcp) {
      read = parse_lanes(text, value, url.lanes);
    } else if (name == "compress" && url.kind == Kind::kTcp) {
      read = parse_compress(text, value, url.compress);
    } else {
      return bad(
          text,
          "unknown option of " + std::string(to_string(url.kind)) +
              "; there are code=auto and recover=on, for unix and tcp delay=1ms, for unix shm=off, "
              "and for tcp lanes=8 and compress=auto");
    }
    if (!read) return read;
  }
  return {};
}

std::string options_text(const Url& url) {
  std::string text;
  const auto add = [&text](const std::string& option) {
    text += (text.empty() ? "?" : "&") + option;
  };
  if (url.socket_only) add("shm=off");
  for (const Unit& unit : kUnits) {
    const std::int64_t count = url.delay.count() / unit.ns;
    if (count == 0 || count * unit.ns != url.delay.count()) continue;
    add("delay=" + std::to_string(count) + std::string(unit.name));
    break;
  }
  if (url.code != CodeOption::kAuto) {
    add("code=" + std::string(kCodeOptions[static_cast<std::size_t>(url.code)]));
  }
  if (url.lanes) add("lanes=" + std::to_string(*url.lanes));
  if (url.recover != RecoverOption::kOn) {
    add("recover=" + std::string(kRecoverOptions[static_cast<std::size_t>(url.recover)]));
  }
  if (url.compress != CompressOption::kAuto) {
    add("compress=" + std::string(kCompressOptions[static_cast<std::size_t>(url.compress)]));
  }
  return text;
}

}  // namespace

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::kUnix:
      return "unix";
    case Kind::kTcp:
      return "tcp";
    case Kind::kShm:
      return "shm";
  }
  return "unknown";
}

Result<Url> parse_url(std::string_view text) {
  if (text.empty()) return bad(text, "it is empty");
  const std::string_view address = text.substr(0, text.find('?'));
  Result<Url> url = bad(text, "unknown scheme");
  if (address.starts_with(kUnixScheme)) {
    url = parse_unix(Kind::kUnix, text, address.substr(kUnixScheme.size()));
  } else if (address.starts_with(kShmScheme)) {
    url = parse_unix(Kind::kShm, text, address.substr(kShmScheme.size()));
  } else if (address.starts_with(kTcpScheme)) {
    url = parse_tcp(text, address.substr(kTcpScheme.size()));
  }
  if (url && address.size() < text.size()) {
    Status options = parse_options(text, text.substr(address.size() + 1), *url);
    if (!options) return std::move(options).error();
  }
  if (url) return url;
  if (text.find("://") == std::string_view::npos) return bad(text, "the scheme is missing");
  return url;
}

Result<Url> parse_listening_url(std::string_view text) {
  Result<Url> url = parse_url(text);
  std::string_view rest = text.substr(std::min(text.size(), text.find('?')));
  while (url && !rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view option = rest.substr(0, rest.find('&'));
    rest.remove_prefix(option.size());
    const std::string_view name = option.substr(0, option.find('='));
    if (name == "shm") continue;
    return Error{ErrorCode::kInvalid, "address \"" + std::string(text) +
                                          "\": " + std::string(name) +
                                          " is for clients, who put it behind the address that "
                                          "they connect to; who listens has no use for it"};
  }
  return url;
}

bool reaches_others(const Url& url) {
  return url.kind == Kind::kTcp && url.host != "localhost" && url.host != "::1" &&
         !url.host.starts_with("127.");
}

std::string to_string(const Url& url) {
  switch (url.kind) {
    case Kind::kUnix:
    case Kind::kShm:
      return std::string(url.kind == Kind::kShm ? kShmScheme : kUnixScheme) +
             (url.path.starts_with('@') ? "/" : "") + url.path + options_text(url);
    case Kind::kTcp: {
      const bool brackets = url.host.find(':') != std::string::npos;
      return std::string(kTcpScheme) + (brackets ? "[" : "") + url.host + (brackets ? "]" : "") +
             ":" + std::to_string(url.port) + options_text(url);
    }
  }
  return {};
}

}  // namespace flyt::transport
