#include "control/grpc/credentials.h"

#include <map>

#include "control/grpc/leak_check.h"
#include "control/pki/certificate.h"
#include "control/settings/settings.h"

namespace flyt::control {
namespace {

// The same with the files' contents.
Result<TlsFiles> read(const TlsFiles& files) {
  TlsFiles contents;
  for (const auto member : {&TlsFiles::cert, &TlsFiles::key, &TlsFiles::ca}) {
    auto text = read_file(files.*member);
    if (!text) return std::move(text).error();
    contents.*member = std::move(*text);
  }
  if (const Status pair = pki::check_pair({contents.cert, contents.key}); !pair) {
    return Error{pair.error().code, files.cert + " and " + files.key + ": " + pair.error().message};
  }
  // gRPC would only find nobody to connect to.
  if (const auto authority = pki::facts_of(contents.ca); !authority) {
    return Error{authority.error().code, files.ca + ": " + authority.error().message};
  }
  return contents;
}

bool has_role(const pki::CertificateFacts& facts, ServerRole server) {
  switch (server) {
    case ServerRole::kAny:
      return true;
    case ServerRole::kCluster:
      return facts.role == "admin" || facts.role == "cluster";
    case ServerRole::kNode:
      return facts.role == "node" || facts.role.empty();
  }
  return false;
}

// Asked before each call is sent: of credentials that every version of gRPC has, these alone know
// the other side's certificate. Its name has been compared in the handshake.
class RoleCheck final : public grpc::MetadataCredentialsPlugin {
 public:
  RoleCheck(ServerRole server, Revoked revoked) : server_(server), revoked_(std::move(revoked)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext& context,
                           std::multimap<grpc::string, grpc::string>*) override {
    const auto pem = context.FindPropertyValues("x509_pem_cert");
    const auto facts = pem.empty() ? Result<pki::CertificateFacts>(Error{})
                                   : pki::facts_of({pem.front().data(), pem.front().size()});
    if (facts && has_role(*facts, server_)) {
      const Status good = revoked_ ? revoked_->admit(*facts) : Status();
      if (good) return grpc::Status::OK;
      return {grpc::StatusCode::UNAUTHENTICATED, "whoever answers there: " + good.error().message};
    }
    const std::string wanted = server_ == ServerRole::kNode ? "node" : "admin";
    return {grpc::StatusCode::UNAUTHENTICATED,
            "whoever answers there has the certificate of " +
                (facts ? facts->name + " with the role '" + facts->role + "'" : "nobody") +
                ", not one of the role " + wanted};
  }

 private:
  const ServerRole server_;
  const Revoked revoked_;
};

std::shared_ptr<grpc::ChannelCredentials> checked(const grpc::SslCredentialsOptions& options,
                                                  ServerRole server, Revoked revoked) {
  end_threads_before_leaks_are_looked_for();
  const auto plain = grpc::SslCredentials(options);
  if (server == ServerRole::kAny) return plain;
  return grpc::CompositeChannelCredentials(
      plain,
      grpc::MetadataCredentialsFromPlugin(std::make_unique<RoleCheck>(server, std::move(revoked))));
}

}  // namespace

Result<std::shared_ptr<grpc::ChannelCredentials>> client_credentials(const TlsFiles& files,
                                                                     ServerRole server,
                                                                     Revoked revoked) {
  const auto contents = read(files);
  if (!contents) return contents.error();
  if (revoked) {
    if (Status status = revoked->check(); !status) return status.error();
  }
  return checked({contents->ca, contents->key, contents->cert}, server, std::move(revoked));
}

std::shared_ptr<grpc::ChannelCredentials> nameless_credentials(const std::string& ca,
                                                               ServerRole server) {
  return checked({ca, {}, {}}, server, nullptr);
}

Result<std::shared_ptr<grpc::ServerCredentials>> open_server_credentials(const TlsFiles& files) {
  const auto contents = read(files);
  if (!contents) return contents.error();
  end_threads_before_leaks_are_looked_for();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = contents->ca;
  options.pem_key_cert_pairs.push_back({contents->key, contents->cert + "\n" + contents->ca});
  return grpc::SslServerCredentials(options);
}

Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const TlsFiles& files) {
  const auto contents = read(files);
  if (!contents) return contents.error();
  end_threads_before_leaks_are_looked_for();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = contents->ca;
  options.pem_key_cert_pairs.push_back({contents->key, contents->cert});
  return grpc::SslServerCredentials(options);
}

}  // namespace flyt::control
