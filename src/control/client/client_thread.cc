#include "control/client/client_thread.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <thread>

#include "base/log.h"
#include "control/client/cluster_link.h"
#include "control/client/desk_server.h"
#include "control/client/office.h"
#include "control/daemon/stop_signals.h"

namespace flyt::vm {
namespace {

// Two of them would write over what the other one knows of its programs.
Result<Fd> lock_state(const std::string& folder) {
  const std::string path = folder + "/lock";
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return system_error("cannot open " + path, errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  return Error{ErrorCode::kDenied, "another client manager runs with the folder " + folder +
                                       "; stop it, or set client.state"};
}

}  // namespace

Status run_client(const Config& config, const Fd& signals) {
  const Log log("client", log_level_of(config.log_level, LogLevel::kInfo));
  std::error_code error;
  std::filesystem::create_directories(config.state_folder, error);
  if (error) {
    return Error{ErrorCode::kSystem, "cannot make " + config.state_folder + ": " + error.message()};
  }
  auto link = link_to_cluster(config);
  if (!link) return std::move(link).error();
  Office office({.host = config.host,
                 .grace = std::chrono::seconds(config.grace_seconds),
                 .programs_max = config.programs_max},
                log);
  auto desk = DeskServer::open(config, office, log);
  if (!desk) return std::move(desk).error();
  const auto alone = lock_state(config.state_folder);
  if (!alone) return alone.error();
  log.info("serving", {{"socket", config.socket}, {"cluster", config.addresses.front()}});
  std::thread serves([&] { (*desk)->run(); });
  std::thread asks([&] { office.run_asks(**link); });
  std::thread watches([&] { office.run_watch(**link); });
  control::await_stop(signals);
  log.info("stopping");
  office.stop();
  (*link)->stop();
  (*desk)->stop();
  for (std::thread* one : {&serves, &asks, &watches}) one->join();
  return {};
}

}  // namespace flyt::vm
