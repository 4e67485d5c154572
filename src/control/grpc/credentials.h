// Credentials: certificates on both sides, from files.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "control/pki/revocations.h"
#include "control/settings/tls_files.h"

namespace flyt::control {

// Whose certificate a server has to show; one authority signs those of VMs and people, too.
enum class ServerRole : std::uint8_t {
  kAny,      // Of an authority that signs nothing else.
  kCluster,  // "admin" or "cluster".
  kNode,     // "node", or of an authority that says no roles.
};

// Which certificates were revoked; null: none was.
using Revoked = std::shared_ptr<pki::Revocations>;

// The server's certificate is of the name or address that is dialled, of the role, and not revoked
// now; otherwise no call is sent to it.
Result<std::shared_ptr<grpc::ChannelCredentials>> client_credentials(const TlsFiles& files,
                                                                     ServerRole server,
                                                                     Revoked revoked = nullptr);
// For who has no certificate yet. `ca` is the authority's certificate itself.
std::shared_ptr<grpc::ChannelCredentials> nameless_credentials(const std::string& ca,
                                                               ServerRole server);
// The other side of that: clients need no certificate, and are shown the authority's, too. If they
// have one, the authority has signed it.
Result<std::shared_ptr<grpc::ServerCredentials>> open_server_credentials(const TlsFiles& files);
// Clients without a certificate that the authority signed are turned away.
Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const TlsFiles& files);

}  // namespace flyt::control
