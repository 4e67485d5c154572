#include "control/pki/pinned.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <memory>

#include "control/pki/certificate.h"
#include "transport/transport.h"

namespace flyt::pki {
namespace {

template <class T, void (*Free)(T*)>
struct Deleter {
  void operator()(T* object) const { Free(object); }
};
using Context = std::unique_ptr<SSL_CTX, Deleter<SSL_CTX, SSL_CTX_free>>;
using Handshake = std::unique_ptr<SSL, Deleter<SSL, SSL_free>>;
struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};

std::string pem_of(X509* certificate) {
  const std::unique_ptr<BIO, BioFree> out(BIO_new(BIO_s_mem()));
  if (!out || PEM_write_bio_X509(out.get(), certificate) != 1) return {};
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

Status shake_hands(SSL* handshake, transport::Connection& connection, Instant deadline) {
  for (;;) {
    const int done = SSL_connect(handshake);
    if (done == 1) return {};
    const int why = SSL_get_error(handshake, done);
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
      return Error{ErrorCode::kLost, "there is no TLS"};
    }
    const auto wanted = why == SSL_ERROR_WANT_READ ? transport::kReadable : transport::kWritable;
    if (connection.wait(wanted, deadline, nullptr) == transport::kNothing) {
      return Error{ErrorCode::kTimeout, "it does not answer"};
    }
  }
}

}  // namespace

Result<std::string> find_authority(const std::string& host, std::uint16_t port,
                                   const std::string& fingerprint, Instant deadline) {
  transport::Url url;
  url.kind = transport::Kind::kTcp;
  url.host = host;
  url.port = port;
  auto connection = transport::connect(url, deadline);
  if (!connection) return std::move(connection).error();
  const Context context(SSL_CTX_new(TLS_client_method()));
  const Handshake handshake(context ? SSL_new(context.get()) : nullptr);
  if (!handshake) return Error{ErrorCode::kSystem, "TLS does not start"};
  // What is found is compared with the fingerprint, and nothing else is used.
  SSL_set_verify(handshake.get(), SSL_VERIFY_NONE, nullptr);
  if (SSL_set_fd(handshake.get(), (*connection)->fd()) != 1) {
    return Error{ErrorCode::kSystem, "TLS does not start"};
  }
  if (Status status = shake_hands(handshake.get(), **connection, deadline); !status) {
    return status.error();
  }
  STACK_OF(X509)* shown = SSL_get_peer_cert_chain(handshake.get());
  for (int i = 0; i < sk_X509_num(shown); ++i) {
    std::string pem = pem_of(sk_X509_value(shown, i));
    const auto found = fingerprint_of(pem);
    if (found && *found == fingerprint) return pem;
  }
  return Error{ErrorCode::kDenied,
               "whoever answers there does not show the authority that the token names"};
}

}  // namespace flyt::pki
