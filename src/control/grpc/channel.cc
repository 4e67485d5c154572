#include "control/grpc/channel.h"

#include <grpcpp/create_channel.h>
#include <stdlib.h>

namespace flyt::control {
namespace {

constexpr std::string_view kUnix = "unix://";

// What is the same for all.
void prepare(grpc::ChannelArguments& arguments) {
  // gRPC's own words would stand beside ours; and the C library's resolver is enough for one name.
  ::setenv("GRPC_VERBOSITY", "NONE", 0);
  ::setenv("GRPC_DNS_RESOLVER", "native", 0);
  // While nobody waits for an answer, a connection is made only as often as this looks for it.
  ::setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "1000", 0);
  // A proxy of the environment is for the web.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
}

std::string target_of(const std::string& address) {
  return is_local(address) ? "unix:" + address.substr(kUnix.size()) : "dns:///" + address;
}

}  // namespace

bool is_local(std::string_view address) { return address.starts_with(kUnix); }

Result<std::shared_ptr<grpc::Channel>> open_channel(const std::string& address,
                                                    const TlsFiles& files,
                                                    grpc::ChannelArguments arguments) {
  if (is_local(address)) return open_clear_channel(address, std::move(arguments));
  prepare(arguments);
  const auto credentials = client_credentials(files);
  if (!credentials) return credentials.error();
  return grpc::CreateCustomChannel(target_of(address), *credentials, arguments);
}

std::shared_ptr<grpc::Channel> open_clear_channel(const std::string& address,
                                                  grpc::ChannelArguments arguments) {
  prepare(arguments);
  return grpc::CreateCustomChannel(target_of(address), grpc::InsecureChannelCredentials(),
                                   arguments);
}

}  // namespace flyt::control
