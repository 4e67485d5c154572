#include "control/client/config.h"

#include <pwd.h>

#include <array>
#include <charconv>

#include "control/settings/settings.h"

namespace flyt::vm {
namespace {

constexpr std::size_t kSocketBytesMax = 100;
constexpr std::size_t kAddressesMax = 16;

control::SettingSections sections_of(Config& config) {
  return {
      {"vm",
       {{"name", control::text_setting(config.name)},
        {"host", control::text_setting(config.host)}}},
      {"cluster",
       {{"addresses", control::texts_setting(config.addresses)},
        {"cert", control::path_setting(config.cert)},
        {"key", control::path_setting(config.key)},
        {"ca", control::path_setting(config.ca)},
        {"crl", control::path_setting(config.crl)}}},
      {"programs",
       {{"socket", control::path_setting(config.socket)},
        {"users", control::texts_setting(config.users)},
        {"max", control::number_setting(config.programs_max, 1, 65536)}}},
      {"lease",
       {{"grace", control::seconds_setting(config.grace_seconds, 0, 86400)},
        {"token_seconds", control::seconds_setting(config.token_seconds, 30, 86400)}}},
      {"client",
       {{"state", control::path_setting(config.state_folder)},
        {"log_level",
         control::one_of_setting(config.log_level, {"debug", "info", "warn", "error", "off"})}}},
  };
}

Error invalid(const std::string& file, std::string message) {
  return {ErrorCode::kInvalid, file + ": " + std::move(message)};
}

Status check(const Config& config, const std::string& file) {
  if (config.addresses.empty()) {
    return invalid(file, "cluster.addresses is missing: [\"HOST:PORT\"] of the cluster managers");
  }
  if (config.addresses.size() > kAddressesMax) {
    return invalid(file, "cluster.addresses has more than " + std::to_string(kAddressesMax));
  }
  const bool all = !config.cert.empty() && !config.key.empty() && !config.ca.empty();
  for (const std::string& address : config.addresses) {
    if (address.starts_with("unix:///")) continue;
    if (!control::parse_address(address)) {
      return invalid(
          file, "cluster.addresses: \"" + address + "\" is not \"HOST:PORT\" or \"unix:///PATH\"");
    }
    if (!all) {
      return invalid(file,
                     "cluster.cert, cluster.key and cluster.ca are missing: a cluster manager at"
                     " HOST:PORT is asked with a certificate; `flytctl ca issue` makes one");
    }
  }
  if (!config.crl.empty() && config.ca.empty()) {
    return invalid(file, "cluster.crl needs cluster.ca, which has signed the list");
  }
  if (config.socket.size() > kSocketBytesMax) {
    return invalid(file,
                   "programs.socket has more than " + std::to_string(kSocketBytesMax) + " bytes");
  }
  return {};
}

}  // namespace

Result<Config> parse_config(std::string_view text, const std::string& file) {
  Config config;
  if (Status status = control::parse_settings(text, file, sections_of(config)); !status) {
    return status.error();
  }
  if (Status status = check(config, file); !status) return status.error();
  return config;
}

Result<Config> read_config(const std::string& path) {
  return control::read_parsed(path, parse_config);
}

Status check_files(const Config& config) {
  return control::check_readable({{"cluster.cert", config.cert},
                                  {"cluster.key", config.key},
                                  {"cluster.ca", config.ca},
                                  {"cluster.crl", config.crl}});
}

Result<std::vector<std::uint32_t>> users_of(const Config& config) {
  std::vector<std::uint32_t> users;
  for (const std::string& name : config.users) {
    std::uint32_t number = 0;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data(), end, number);
    if (error != std::errc() || stop != end) {
      passwd found{};
      passwd* there = nullptr;
      std::array<char, 16384> space;
      ::getpwnam_r(name.c_str(), &found, space.data(), space.size(), &there);
      if (there == nullptr) {
        return Error{ErrorCode::kInvalid, "programs.users: there is no user " + name};
      }
      number = there->pw_uid;
    }
    users.push_back(number);
  }
  return users;
}

}  // namespace flyt::vm
