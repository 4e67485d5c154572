#include "control/node/config.h"

#include <toml++/toml.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "base/text.h"

namespace flyt::node {
namespace {

using Setter = std::function<Status(const toml::node&)>;

Error expected(std::string what) { return {ErrorCode::kInvalid, "expected " + std::move(what)}; }

Setter text(std::string& out) {
  return [&out](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::string>();
    if (!value || value->empty()) return expected("a text, not empty");
    out = *value;
    return {};
  };
}

Setter one_of(std::string& out, std::vector<std::string> choices) {
  return [&out, choices](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::string>();
    std::string list;
    for (const std::string& choice : choices) {
      if (value == choice) {
        out = choice;
        return {};
      }
      list += (list.empty() ? "\"" : ", \"") + choice + "\"";
    }
    return expected("one of " + list);
  };
}

Setter folder(std::string& out) {
  return [&out](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::string>();
    if (!value || !value->starts_with('/')) return expected("an absolute path");
    out = *value;
    return {};
  };
}

template <class T>
Setter number(T& out, std::int64_t least, std::int64_t most) {
  return [&out, least, most](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::int64_t>();
    if (!value || *value < least || *value > most) {
      return expected("a number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    out = static_cast<T>(*value);
    return {};
  };
}

Setter size(std::uint64_t& out, std::uint64_t least, std::uint64_t most) {
  return [&out, least, most](const toml::node& node) -> Status {
    Result<std::uint64_t> value = Error{};
    if (const auto bytes = node.value_exact<std::int64_t>(); bytes && *bytes >= 0) {
      value = static_cast<std::uint64_t>(*bytes);
    } else if (const auto written = node.value_exact<std::string>()) {
      value = parse_size(*written);
    }
    if (!value || *value < least || *value > most) {
      return expected("a size from " + size_text(least) + " to " + size_text(most) +
                      ", such as \"600M\"");
    }
    out = *value;
    return {};
  };
}

Setter address(std::string& out) {
  return [&out](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::string>();
    if (!value || !parse_address(*value)) return expected("\"HOST:PORT\"");
    out = *value;
    return {};
  };
}

Setter mode(Mode& out) {
  return [&out](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::string>();
    const auto known = value ? mode_of(*value) : std::nullopt;
    if (!known) return expected("\"isolated\" or \"shared\"");
    out = *known;
    return {};
  };
}

// "7710-7799"
Setter ports(std::uint16_t& first, std::uint16_t& last) {
  return [&first, &last](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::string>();
    const auto dash = value ? value->find('-') : std::string::npos;
    if (dash != std::string::npos) {
      const auto port = [](std::string_view digits, std::uint16_t& out) {
        const char* end = digits.data() + digits.size();
        const auto [stop, error] = std::from_chars(digits.data(), end, out);
        return error == std::errc() && stop == end && out != 0;
      };
      const std::string_view whole(*value);
      if (port(whole.substr(0, dash), first) && port(whole.substr(dash + 1), last) &&
          first <= last) {
        return {};
      }
    }
    return expected("\"FIRST-LAST\", two port numbers");
  };
}

using Keys = std::map<std::string, Setter, std::less<>>;

std::map<std::string, Keys, std::less<>> keys_of(Config& config) {
  constexpr std::uint64_t kMost = 1ull << 42;
  return {
      {"node",
       {{"name", text(config.name)},
        {"state", folder(config.state_folder)},
        {"run", folder(config.run_folder)},
        {"server", folder(config.server)},
        {"log_level", one_of(config.log_level, {"debug", "info", "warn", "error", "off"})}}},
      {"api",
       {{"unix", folder(config.api_unix)},
        {"tcp", address(config.api_tcp)},
        {"cert", folder(config.cert)},
        {"key", folder(config.key)},
        {"ca", folder(config.ca)}}},
      {"metrics", {{"listen", address(config.metrics)}}},
      {"gpus",
       {{"mode", mode(config.mode)},
        {"soft", number(config.soft, 0, kSoftGpusMax)},
        {"reserve", size(config.reserve_bytes, 0, kMost)},
        {"overhead_per_session", size(config.overhead_per_session_bytes, 0, kMost)},
        {"mps_control", text(config.mps_control)},
        {"nvml", folder(config.nvml)}}},
      {"soft",
       {{"sms", number(config.soft_sms, 1, 4096)},
        {"memory", size(config.soft_memory_bytes, 16ull << 20, 256ull << 30)}}},
      {"leases",
       {{"max", number(config.leases_max, 1, 4096)},
        {"sessions", number(config.sessions_max, 1, 1024)},
        {"warm", number(config.warm, 0, 64)},
        {"tcp_host", text(config.tcp_host)},
        {"tcp_ports", ports(config.tcp_port_first, config.tcp_port_last)},
        {"advertise", text(config.advertise)},
        {"token_seconds", number(config.token_seconds, 1, 86400)},
        {"token_seconds_max", number(config.token_seconds_max, 1, 86400)}}},
      {"events", {{"max", number(config.events_max, 10, 1000000)}}},
  };
}

Error at(const std::string& file, const toml::source_region& where, const std::string& what) {
  return {ErrorCode::kInvalid, file + ":" + std::to_string(where.begin.line) + ": " + what};
}

template <class Map>
std::string names_of(const Map& map) {
  std::string names;
  for (const auto& entry : map) names += (names.empty() ? "" : ", ") + entry.first;
  return names;
}

Status take_table(const toml::table& table, const std::string& section, const Keys& keys,
                  const std::string& file) {
  for (const auto& [name, value] : table) {
    const auto known = keys.find(name.str());
    const std::string key = section + "." + std::string(name.str());
    if (known == keys.end()) {
      return at(file, name.source(), "unknown key " + key + "; there are " + names_of(keys));
    }
    if (Status status = known->second(value); !status) {
      return at(file, value.source(), key + ": " + status.error().message);
    }
  }
  return {};
}

std::string machine_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "node";
  return name.data();
}

Status check(const Config& config) {
  const auto invalid = [](std::string message) {
    return Error{ErrorCode::kInvalid, std::move(message)};
  };
  if (config.run_folder.size() > kRunFolderBytesMax) {
    return invalid("node.run has more than " + std::to_string(kRunFolderBytesMax) +
                   " bytes; names of sockets must be short");
  }
  const bool all = !config.cert.empty() && !config.key.empty() && !config.ca.empty();
  if (!config.api_tcp.empty() && !all) {
    return invalid(
        "api.tcp needs api.cert, api.key and api.ca: TCP is served with mutual TLS"
        " only");
  }
  if (!config.metrics.empty() && !is_loopback(parse_address(config.metrics)->host)) {
    return invalid("metrics.listen must be a loopback address: who asks there is not identified");
  }
  if (config.tcp_host.empty() != (config.tcp_port_first == 0)) {
    return invalid("leases.tcp_host and leases.tcp_ports belong together");
  }
  if (config.token_seconds > config.token_seconds_max) {
    return invalid("leases.token_seconds is larger than leases.token_seconds_max");
  }
  return {};
}

}  // namespace

Result<Address> parse_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return expected("HOST:PORT");
  Address address;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string_view digits = text.substr(colon + 1);
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, address.port);
  if (host.empty() || error != std::errc() || stop != end || address.port == 0) {
    return expected("HOST:PORT");
  }
  address.host = host;
  return address;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Result<Config> parse_config(std::string_view text, const std::string& file) {
  Config config;
  const auto sections = keys_of(config);
  try {
    const toml::table root = toml::parse(text, file);
    for (const auto& [name, value] : root) {
      const auto section = sections.find(name.str());
      if (section == sections.end()) {
        return at(file, name.source(),
                  "unknown section or key " + std::string(name.str()) + "; there are " +
                      names_of(sections));
      }
      const toml::table* table = value.as_table();
      if (table == nullptr) {
        return at(file, value.source(), section->first + " is a section: [" + section->first + "]");
      }
      if (Status status = take_table(*table, section->first, section->second, file); !status) {
        return status.error();
      }
    }
  } catch (const toml::parse_error& error) {
    return at(file, error.source(), std::string(error.description()));
  }
  return config;
}

Result<Config> read_config(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error("cannot read " + path, errno);
  std::ostringstream text;
  text << file.rdbuf();
  return parse_config(text.str(), path);
}

Status finish(Config& config, const std::string& program_folder, const std::string& home) {
  if (config.name.empty()) config.name = machine_name();
  if (config.state_folder.empty()) {
    config.state_folder = home.empty() ? "/var/lib/flyt/node" : home + "/.local/state/flyt/node";
  }
  if (config.run_folder.empty()) {
    config.run_folder = home.empty() ? "/run/flyt" : "/tmp/flyt-node-" + std::to_string(::getuid());
  }
  if (config.server.empty()) config.server = program_folder + "/flyt-server";
  if (config.api_unix.empty()) config.api_unix = config.run_folder + "/node.sock";
  if (config.advertise.empty()) config.advertise = config.tcp_host;
  // A context under MPS was seen to take 516 MiB, and the MPS server 70 MiB.
  const bool soft = config.soft != 0;
  if (config.reserve_bytes == UINT64_MAX) config.reserve_bytes = soft ? 0 : 512ull << 20;
  if (config.overhead_per_session_bytes == UINT64_MAX) {
    config.overhead_per_session_bytes = soft ? 0 : 544ull << 20;
  }
  return check(config);
}

}  // namespace flyt::node
