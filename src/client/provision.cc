#include "client/provision.h"

#include "client/settings.h"
#include "rpc/credential.h"
#include "rpc/desk.h"

namespace flyt::client {
namespace {

// A node takes less to start a server.
constexpr Duration kQuiet = std::chrono::seconds(1);

Result<Provision> of_environment(std::string_view url) {
  auto credential = rpc::own_credential();
  if (!credential) return std::move(credential).error();
  return Provision{std::string(url), std::move(credential).value(), nullptr};
}

Result<Provision> of_desk(const std::string& socket, const Log& log) {
  const auto on_waiting = [&log](const wire::DeskWaiting& waiting) {
    log.warn("waiting for a GPU", {{"ahead", waiting.ahead}, {"why", waiting.why}});
  };
  const rpc::DeskPatience patience{wait_patience(), kQuiet};
  auto visit = rpc::visit_desk(socket, wire::DeskPurpose::kUse, patience, on_waiting);
  if (!visit) return std::move(visit).error();
  return Provision{std::move(visit->granted.url), std::move(visit->granted.token),
                   std::move(visit->connection)};
}

}  // namespace

Result<Provision> find_provision(const Log& log) {
  const std::string socket = rpc::desk_socket();
  const std::string_view url = environment("FLYT_SERVER");
  if (url.empty() && !rpc::has_desk(socket)) {
    log.warn(
        "no GPU server: set FLYT_SERVER to unix:///PATH or tcp://HOST:PORT, or start the"
        " program with `flyt run --server URL -- PROGRAM`");
    return Error{ErrorCode::kNotFound, "no GPU server"};
  }
  auto found = url.empty() ? of_desk(socket, log) : of_environment(url);
  if (!found) {
    log.warn("no GPU", {{"asked", url.empty() ? std::string_view(socket) : url},
                        {"why", found.error().message}});
  }
  return found;
}

}  // namespace flyt::client
