#include "control/grpc/channel.h"

#include <grpcpp/create_channel.h>
#include <stdlib.h>

namespace flyt::control {
namespace {

constexpr std::string_view kUnix = "unix://";

}  // namespace

bool is_local(std::string_view address) { return address.starts_with(kUnix); }

Result<std::shared_ptr<grpc::Channel>> open_channel(const std::string& address,
                                                    const TlsFiles& files,
                                                    grpc::ChannelArguments arguments) {
  // gRPC's own words would stand beside ours; and the C library's resolver is enough for one name.
  ::setenv("GRPC_VERBOSITY", "NONE", 0);
  ::setenv("GRPC_DNS_RESOLVER", "native", 0);
  // A proxy of the environment is for the web.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (is_local(address)) {
    return grpc::CreateCustomChannel("unix:" + address.substr(kUnix.size()),
                                     grpc::InsecureChannelCredentials(), arguments);
  }
  const auto credentials = client_credentials(files);
  if (!credentials) return credentials.error();
  return grpc::CreateCustomChannel("dns:///" + address, *credentials, arguments);
}

}  // namespace flyt::control
