// Credentials: certificates on both sides, from files.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "base/result.h"
#include "control/settings/tls_files.h"

namespace flyt::control {

Result<std::shared_ptr<grpc::ChannelCredentials>> client_credentials(const TlsFiles& files);
// Clients without a certificate that the authority signed are turned away.
Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const TlsFiles& files);

}  // namespace flyt::control
