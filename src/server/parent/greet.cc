#include "server/parent/greet.h"

#include <unistd.h>

#include "commands/ops.h"
#include "rpc/endpoint.h"

namespace flyt::server {

Result<wire::Limits> greet_without_session(transport::Connection& connection,
                                           const wire::ClientHello& hello,
                                           const nvml::Fleet& fleet) {
  const Instant deadline = system_clock().now() + kWelcomeTime;
  const auto refuse = [&](wire::RefusalCode code, const Error& error) {
    static_cast<void>(rpc::send_refusal(connection, {code, error.message}, deadline).ok());
    return error;
  };
  const auto version = wire::common_version(hello.version_min, hello.version_max);
  if (!version) return refuse(wire::RefusalCode::kVersion, version.error());
  const auto limits = wire::common_limits(wire::Limits{}, hello.limits);
  if (!limits) return refuse(wire::RefusalCode::kMalformed, limits.error());
  wire::Welcome welcome;
  welcome.version = *version;
  welcome.name = "flyt-server";
  welcome.process_id = static_cast<std::uint32_t>(::getpid());
  welcome.driver = fleet.driver_kind;
  welcome.driver_version = static_cast<std::uint32_t>(fleet.cuda_version);
  welcome.limits = *limits;
  welcome.highest_op = static_cast<std::uint16_t>(commands::kOpMax);
  if (Status sent = rpc::send_welcome(connection, welcome, deadline); !sent) {
    return std::move(sent).error();
  }
  return *limits;
}

}  // namespace flyt::server
