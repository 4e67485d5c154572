#include "control/cluster/config.h"

#include "control/cluster/requirements/requirement.h"
#include "control/etcd/etcd_client.h"

namespace flyt::cluster {
namespace {

using control::address_setting;
using control::flag_setting;
using control::number_setting;
using control::one_of_setting;
using control::path_setting;
using control::seconds_setting;
using control::text_setting;
using control::texts_setting;

constexpr std::size_t kPrefixBytesMax = 200;
constexpr std::size_t kDatabaseBytesMax = 63;
constexpr std::size_t kCollectionBytesMax = 120;

control::SettingSections sections_of(Config& config) {
  constexpr std::uint32_t kDay = 86400;
  return {
      {"cluster",
       {{"name", text_setting(config.name)},
        {"store", text_setting(config.store)},
        {"advertise", text_setting(config.advertise)},
        {"state", path_setting(config.state_folder)},
        {"run", path_setting(config.run_folder)},
        {"log_level",
         one_of_setting(config.log_level, {"debug", "info", "warn", "error", "off"})}}},
      {"api",
       {{"unix", path_setting(config.api_unix)},
        {"tcp", address_setting(config.api_tcp)},
        {"cert", path_setting(config.cert)},
        {"key", path_setting(config.key)},
        {"ca", path_setting(config.ca)},
        {"crl", path_setting(config.crl)}}},
      {"etcd",
       {{"prefix", text_setting(config.etcd_prefix)},
        {"lease", seconds_setting(config.etcd_lease_seconds, 2, 60)},
        {"cert", path_setting(config.etcd_tls.cert)},
        {"key", path_setting(config.etcd_tls.key)},
        {"ca", path_setting(config.etcd_tls.ca)}}},
      {"enrol",
       {{"listen", address_setting(config.enrol)},
        {"key", path_setting(config.enrol_key)},
        {"days", number_setting(config.enrol_days, 1, 3650)},
        {"token_lasts", seconds_setting(config.enrol_token_seconds, 1, 7 * kDay)}}},
      {"access",
       {{"operators", texts_setting(config.operators)},
        {"viewers", texts_setting(config.viewers)}}},
      {"nodes",
       {{"report_every", seconds_setting(config.report_seconds, 1, 300)},
        {"lost_after", seconds_setting(config.lost_seconds, 2, kDay)}}},
      {"vms",
       {{"grace", seconds_setting(config.grace_seconds, 1, 30 * kDay)},
        {"free_unused", flag_setting(config.free_unused)},
        {"keep_wish", seconds_setting(config.keep_seconds, 2, kDay)}}},
      {"placement", {{"policy", one_of_setting(config.policy, {"host-first", "pack", "spread"})}}},
      {"scaling",
       {{"window", seconds_setting(config.scaling_window_seconds, 1, kDay)},
        {"cool_down", seconds_setting(config.scaling_cool_down_seconds, 1, kDay)},
        {"grow_above", number_setting(config.grow_above, 2, 99)},
        {"shrink_below", number_setting(config.shrink_below, 0, 49)}}},
      {"requirements",
       {{"mongodb", text_setting(config.mongodb)},
        {"database", text_setting(config.mongodb_database)},
        {"collection", text_setting(config.mongodb_collection)},
        {"password_file", path_setting(config.mongodb_password_file)},
        {"poll", seconds_setting(config.requirements_seconds, 1, 3600)}}},
      {"page", {{"listen", address_setting(config.page)}}},
      {"metrics",
       {{"listen", address_setting(config.metrics)},
        {"token", path_setting(config.metrics_token)}}},
      {"events",
       {{"max", number_setting(config.events_max, 10, 1000000)},
        {"audit_max", number_setting(config.audit_max, 10, 10000000)}}},
  };
}

Error invalid(std::string message) { return {ErrorCode::kInvalid, std::move(message)}; }

// Of a manager that is one of several.
Status check_etcd(const Config& config) {
  const auto members = control::parse_etcd_url(config.store);
  if (!members) {
    return invalid("cluster.store is \"sqlite\", or " + members.error().message);
  }
  const control::TlsFiles& tls = config.etcd_tls;
  const bool some = !tls.cert.empty() || !tls.key.empty() || !tls.ca.empty();
  if (some && !tls.complete()) return invalid("etcd.cert, etcd.key and etcd.ca belong together");
  if (config.etcd_prefix.empty() || config.etcd_prefix.size() > kPrefixBytesMax ||
      !config.etcd_prefix.ends_with('/')) {
    return invalid("etcd.prefix ends with '/' and has at most 200 bytes");
  }
  if (config.name.empty() || config.name.size() > kPrefixBytesMax) {
    return invalid("cluster.name has 1 to 200 bytes");
  }
  if (config.advertise.starts_with("unix:///")) return {};
  const auto address = control::parse_address(config.advertise);
  if (!address || address->host == "0.0.0.0" || address->host == "::") {
    return invalid(
        "cluster.advertise must be HOST:PORT of this manager's api.tcp, as the other managers"
        " reach it, or unix:///PATH if all are on this machine");
  }
  return {};
}

Status check_requirements(const Config& config) {
  if (config.mongodb.empty()) {
    if (config.mongodb_password_file.empty()) return {};
    return invalid("requirements.password_file is of no use without requirements.mongodb");
  }
  if (Status status = requirements::check_uri(config.mongodb); !status) {
    return invalid("requirements.mongodb is " + status.error().message);
  }
  // As MongoDB names them.
  if (config.mongodb_database.size() > kDatabaseBytesMax ||
      config.mongodb_database.find_first_of("/\\. \"$") != std::string::npos) {
    return invalid("requirements.database is a name of at most 63 bytes");
  }
  if (config.mongodb_collection.size() > kCollectionBytesMax ||
      config.mongodb_collection.find('$') != std::string::npos) {
    return invalid("requirements.collection is a name of at most 120 bytes");
  }
  return {};
}

Status check(const Config& config) {
  if (Status status = control::check_doors(config.api_tcp, {config.cert, config.key, config.ca},
                                           config.metrics);
      !status) {
    return status;
  }
  if (!config.page.empty() && !control::TlsFiles{config.cert, config.key, config.ca}.complete()) {
    return invalid(
        "page.listen needs api.cert, api.key and api.ca: the page is served with mutual TLS only");
  }
  if (config.enrol.empty() != config.enrol_key.empty()) {
    return invalid("enrol.listen and enrol.key belong together");
  }
  if (!config.enrol.empty() && !control::TlsFiles{config.cert, config.key, config.ca}.complete()) {
    return invalid("enrol.listen needs api.cert, api.key and api.ca");
  }
  if (config.lost_seconds < 2 * config.report_seconds) {
    return invalid("nodes.lost_after must be at least twice nodes.report_every");
  }
  if (config.scaling_window_seconds < 2 * config.report_seconds) {
    return invalid("scaling.window must be at least twice nodes.report_every");
  }
  if (Status status = check_requirements(config); !status) return status;
  if (const Status bad = scaling::check(scaling_rules(config)); !bad) return bad;
  return uses_etcd(config) ? check_etcd(config) : Status();
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
  return control::check_readable({{"api.cert", config.cert},
                                  {"api.key", config.key},
                                  {"api.ca", config.ca},
                                  {"api.crl", config.crl},
                                  {"etcd.cert", config.etcd_tls.cert},
                                  {"etcd.key", config.etcd_tls.key},
                                  {"etcd.ca", config.etcd_tls.ca},
                                  {"enrol.key", config.enrol_key},
                                  {"requirements.password_file", config.mongodb_password_file},
                                  {"metrics.token", config.metrics_token}});
}

scaling::Rules scaling_rules(const Config& config) {
  return {.window = std::chrono::seconds(config.scaling_window_seconds),
          .cool_down = std::chrono::seconds(config.scaling_cool_down_seconds),
          .grow_above = config.grow_above,
          .shrink_below = config.shrink_below};
}

Status finish(Config& config, const control::Folders& folders) {
  if (config.state_folder.empty()) config.state_folder = folders.state;
  if (config.run_folder.empty()) config.run_folder = folders.run;
  if (config.api_unix.empty()) config.api_unix = config.run_folder + "/cluster.sock";
  if (config.name.empty()) config.name = control::machine_name();
  if (config.advertise.empty()) {
    config.advertise = config.api_tcp.empty() ? "unix://" + config.api_unix : config.api_tcp;
  }
  return check(config);
}

}  // namespace flyt::cluster
