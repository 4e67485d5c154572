#include "control/node/config.h"

#include <array>
#include <charconv>

#include "control/settings/settings.h"

namespace flyt::node {
namespace {

using control::address_setting;
using control::expected;
using control::number_setting;
using control::one_of_setting;
using control::path_setting;
using control::size_setting;
using control::text_setting;
using control::texts_setting;

control::Setter mode_setting(Mode& out) {
  return [&out](const control::SettingValue& value) -> Status {
    const auto text = value.text();
    const auto known = text ? mode_of(*text) : std::nullopt;
    if (!known) return expected("\"isolated\" or \"shared\"");
    out = *known;
    return {};
  };
}

// "7710-7799"
control::Setter ports_setting(std::uint16_t& first, std::uint16_t& last) {
  return [&first, &last](const control::SettingValue& value) -> Status {
    const auto text = value.text();
    const auto dash = text ? text->find('-') : std::string::npos;
    if (dash != std::string::npos) {
      const auto port = [](std::string_view digits, std::uint16_t& out) {
        const char* end = digits.data() + digits.size();
        const auto [stop, error] = std::from_chars(digits.data(), end, out);
        return error == std::errc() && stop == end && out != 0;
      };
      const std::string_view whole(*text);
      if (port(whole.substr(0, dash), first) && port(whole.substr(dash + 1), last) &&
          first <= last) {
        return {};
      }
    }
    return expected("\"FIRST-LAST\", two port numbers");
  };
}

control::SettingSections sections_of(Config& config) {
  constexpr std::uint64_t kMost = 1ull << 42;
  return {
      {"node",
       {{"name", text_setting(config.name)},
        {"state", path_setting(config.state_folder)},
        {"run", path_setting(config.run_folder)},
        {"server", path_setting(config.server)},
        {"log_level",
         one_of_setting(config.log_level, {"debug", "info", "warn", "error", "off"})}}},
      {"api",
       {{"unix", path_setting(config.api_unix)},
        {"tcp", address_setting(config.api_tcp)},
        {"cert", path_setting(config.cert)},
        {"key", path_setting(config.key)},
        {"ca", path_setting(config.ca)},
        {"crl", path_setting(config.crl)}}},
      {"metrics",
       {{"listen", address_setting(config.metrics)},
        {"token", path_setting(config.metrics_token)}}},
      {"gpus",
       {{"mode", mode_setting(config.mode)},
        {"soft", number_setting(config.soft, 0, kSoftGpusMax)},
        {"sm_percent", number_setting(config.sm_percent, 100, kSmPercentMax)},
        {"reserve", size_setting(config.reserve_bytes, 0, kMost)},
        {"overhead_per_session", size_setting(config.overhead_per_session_bytes, 0, kMost)},
        {"sessions", number_setting(config.gpu_sessions, 0, kGpuSessionsMax)},
        {"mps_control", text_setting(config.mps_control)},
        {"nvml", path_setting(config.nvml)}}},
      {"soft",
       {{"sms", number_setting(config.soft_sms, 1, 4096)},
        {"memory", size_setting(config.soft_memory_bytes, 16ull << 20, 256ull << 30)}}},
      {"leases",
       {{"max", number_setting(config.leases_max, 1, 4096)},
        {"sessions", number_setting(config.sessions_max, 1, 1024)},
        {"warm", number_setting(config.warm, 0, 64)},
        {"recover_seconds", number_setting(config.recover_seconds, 0, 3600)},
        {"handover_seconds", number_setting(config.handover_seconds, 0, 3600)},
        {"tcp_host", text_setting(config.tcp_host)},
        {"tcp_ports", ports_setting(config.tcp_port_first, config.tcp_port_last)},
        {"advertise", text_setting(config.advertise)},
        {"token_seconds", number_setting(config.token_seconds, 1, 86400)},
        {"token_seconds_max", number_setting(config.token_seconds_max, 1, 86400)}}},
      {"events", {{"max", number_setting(config.events_max, 10, 1000000)}}},
      {"cluster",
       {{"address", text_setting(config.cluster)},
        {"addresses", texts_setting(config.cluster_others)},
        {"advertise", text_setting(config.cluster_advertise)},
        {"host", text_setting(config.cluster_host)},
        {"cert", path_setting(config.cluster_cert)},
        {"key", path_setting(config.cluster_key)},
        {"ca", path_setting(config.cluster_ca)},
        {"crl", path_setting(config.cluster_crl)}}},
  };
}

Status check(const Config& config) {
  const auto invalid = [](std::string message) {
    return Error{ErrorCode::kInvalid, std::move(message)};
  };
  if (config.run_folder.size() > kRunFolderBytesMax) {
    return invalid("node.run has more than " + std::to_string(kRunFolderBytesMax) +
                   " bytes; names of sockets must be short");
  }
  if (Status status = control::check_doors(config.api_tcp, {config.cert, config.key, config.ca},
                                           config.metrics);
      !status) {
    return status;
  }
  if (!config.crl.empty() && config.ca.empty()) {
    return invalid("api.crl needs api.ca, which has signed the list");
  }
  if (!config.cluster_crl.empty() && config.cluster_ca.empty()) {
    return invalid("cluster.crl needs cluster.ca, which has signed the list");
  }
  if (config.tcp_host.empty() != (config.tcp_port_first == 0)) {
    return invalid("leases.tcp_host and leases.tcp_ports belong together");
  }
  for (const std::string& address : config.clusters) {
    if (address.starts_with("unix:///") || parse_address(address)) continue;
    return invalid("cluster.address must be unix:///PATH or HOST:PORT, and each of addresses");
  }
  if (!config.clusters.empty() && config.cluster_advertise.empty()) {
    return invalid(
        "cluster.advertise is missing: HOST:PORT of this node's api.tcp, as the cluster manager"
        " reaches it");
  }
  if (config.token_seconds > config.token_seconds_max) {
    return invalid("leases.token_seconds is larger than leases.token_seconds_max");
  }
  return {};
}

}  // namespace

Result<Config> parse_config(std::string_view text, const std::string& file) {
  Config config;
  Status status = control::parse_settings(text, file, sections_of(config));
  if (!status) return status.error();
  return config;
}

Result<Config> read_config(const std::string& path) {
  return control::read_parsed(path, parse_config);
}

Status check_files(const Config& config) {
  const auto own = [](const std::string& path, const std::string& general) {
    return path == general ? std::string() : path;
  };
  return control::check_readable({{"api.cert", config.cert},
                                  {"api.key", config.key},
                                  {"api.ca", config.ca},
                                  {"api.crl", config.crl},
                                  {"metrics.token", config.metrics_token},
                                  {"cluster.cert", own(config.cluster_cert, config.cert)},
                                  {"cluster.key", own(config.cluster_key, config.key)},
                                  {"cluster.ca", own(config.cluster_ca, config.ca)},
                                  {"cluster.crl", own(config.cluster_crl, config.crl)}});
}

Status finish(Config& config, const std::string& program_folder, const control::Folders& folders) {
  if (config.name.empty()) config.name = control::machine_name();
  if (config.state_folder.empty()) config.state_folder = folders.state;
  if (config.run_folder.empty()) config.run_folder = folders.run;
  if (config.server.empty()) config.server = program_folder + "/flyt-server";
  if (config.api_unix.empty()) config.api_unix = config.run_folder + "/node.sock";
  if (config.advertise.empty()) config.advertise = config.tcp_host;
  config.clusters = config.cluster_others;
  if (!config.cluster.empty()) config.clusters.insert(config.clusters.begin(), config.cluster);
  const bool local = !config.clusters.empty() && config.clusters.front().starts_with("unix:");
  if (config.cluster_advertise.empty() && local) {
    config.cluster_advertise = "unix://" + config.api_unix;
  }
  if (config.cluster_host.empty()) config.cluster_host = control::machine_name();
  for (auto [own, general] :
       {std::pair(&config.cluster_cert, &config.cert), std::pair(&config.cluster_key, &config.key),
        std::pair(&config.cluster_ca, &config.ca)}) {
    if (own->empty()) *own = *general;
  }
  if (config.cluster_crl.empty() && config.cluster_ca == config.ca) config.cluster_crl = config.crl;
  // A context under MPS was seen to take 516 MiB, and the MPS server 70 MiB.
  const bool soft = config.soft != 0;
  if (config.gpu_sessions == UINT32_MAX) {
    config.gpu_sessions = config.mode == Mode::kShared ? kSharedGpuSessions : 0;
  }
  if (config.reserve_bytes == UINT64_MAX) config.reserve_bytes = soft ? 0 : 512ull << 20;
  if (config.overhead_per_session_bytes == UINT64_MAX) {
    config.overhead_per_session_bytes = soft ? 0 : 544ull << 20;
  }
  return check(config);
}

}  // namespace flyt::node
