#include "control/grpc/credentials.h"

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
  return contents;
}

}  // namespace

Result<std::shared_ptr<grpc::ChannelCredentials>> client_credentials(const TlsFiles& files) {
  const auto contents = read(files);
  if (!contents) return contents.error();
  return grpc::SslCredentials({contents->ca, contents->key, contents->cert});
}

Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const TlsFiles& files) {
  const auto contents = read(files);
  if (!contents) return contents.error();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = contents->ca;
  options.pem_key_cert_pairs.push_back({contents->key, contents->cert});
  return grpc::SslServerCredentials(options);
}

}  // namespace flyt::control
