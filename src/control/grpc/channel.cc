#include "control/grpc/channel.h"

#include <grpcpp/create_channel.h>
#include <stdlib.h>

#include "base/text.h"
#include "control/settings/settings.h"

namespace flyt::control {
namespace {

constexpr std::string_view kUnix = "unix://";
constexpr std::size_t kAddressBytesMax = 256;  // In messages.

// gRPC is told so by the environment alone, which any thread may be reading once there are some:
// before main().
[[gnu::constructor]] void tell_grpc() {
  // Its own words would stand beside ours; and the C library's resolver is enough for one name.
  ::setenv("GRPC_VERBOSITY", "NONE", 0);
  ::setenv("GRPC_DNS_RESOLVER", "native", 0);
  // While nobody waits for an answer, a connection is made only as often as this looks for it.
  ::setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "1000", 0);
}

// What is the same for all.
void prepare(grpc::ChannelArguments& arguments) {
  // A proxy of the environment is for the web.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
}

std::string target_of(const std::string& address) {
  return is_local(address) ? "unix:" + address.substr(kUnix.size()) : "dns:///" + address;
}

}  // namespace

bool is_local(std::string_view address) { return address.starts_with(kUnix); }

Status check_address(const std::string& address) {
  if (is_local(address) || parse_address(address)) return {};
  return Error{ErrorCode::kInvalid, "'" + plain_text(address, kAddressBytesMax) +
                                        "' is no address; addresses are unix:///PATH or HOST:PORT"};
}

Result<std::shared_ptr<grpc::Channel>> open_channel(const std::string& address,
                                                    const TlsFiles& files, ServerRole server,
                                                    grpc::ChannelArguments arguments,
                                                    Revoked revoked) {
  if (is_local(address)) return open_clear_channel(address, std::move(arguments));
  if (Status good = check_address(address); !good) return good.error();
  prepare(arguments);
  const auto credentials = client_credentials(files, server, std::move(revoked));
  if (!credentials) return credentials.error();
  return grpc::CreateCustomChannel(target_of(address), *credentials, arguments);
}

std::shared_ptr<grpc::Channel> open_nameless_channel(const std::string& address,
                                                     const std::string& ca,
                                                     grpc::ChannelArguments arguments) {
  prepare(arguments);
  return grpc::CreateCustomChannel(target_of(address),
                                   nameless_credentials(ca, ServerRole::kCluster), arguments);
}

std::shared_ptr<grpc::Channel> open_clear_channel(const std::string& address,
                                                  grpc::ChannelArguments arguments) {
  prepare(arguments);
  return grpc::CreateCustomChannel(target_of(address), grpc::InsecureChannelCredentials(),
                                   arguments);
}

}  // namespace flyt::control
