#include "control/daemon/page_tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <array>
#include <memory>

namespace flyt::control {
namespace {

struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct CertificateFree {
  void operator()(X509* certificate) const { X509_free(certificate); }
};

std::string pem_of(X509* certificate) {
  const std::unique_ptr<BIO, BioFree> out(BIO_new(BIO_s_mem()));
  if (certificate == nullptr || !out || PEM_write_bio_X509(out.get(), certificate) != 1) return {};
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

Error unusable(const std::string& path, const char* what) {
  std::array<char, 256> text{};
  const unsigned long code = ERR_get_error();
  ERR_error_string_n(code, text.data(), text.size());
  ERR_clear_error();
  return {ErrorCode::kInvalid, path + ": expected " + what + ": " + text.data()};
}

int verify(X509_STORE_CTX* store, void* argument) {
  if (X509_verify_cert(store) != 1) return 0;
  const auto& tls = *static_cast<const PageTls*>(argument);
  if (tls.admit(pem_of(X509_STORE_CTX_get0_cert(store)))) return 1;
  X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
  return 0;
}

}  // namespace

Status set_up_tls(ssl_ctx_st& context, const PageTls& tls) {
  const TlsFiles& files = tls.files;
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(&context, files.cert.c_str()) != 1) {
    return unusable(files.cert, "a certificate");
  }
  if (SSL_CTX_use_PrivateKey_file(&context, files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return unusable(files.key, "the certificate's key");
  }
  if (SSL_CTX_load_verify_locations(&context, files.ca.c_str(), nullptr) != 1) {
    return unusable(files.ca, "certificates of an authority");
  }
  // A browser offers those of its certificates that these have signed.
  SSL_CTX_set_client_CA_list(&context, SSL_load_client_CA_file(files.ca.c_str()));
  SSL_CTX_set_min_proto_version(&context, TLS1_2_VERSION);
  SSL_CTX_set_verify(&context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // It comes back as it is, and is only read.
  SSL_CTX_set_cert_verify_callback(&context, verify, const_cast<PageTls*>(&tls));
  // What is taken up again would not be verified again.
  SSL_CTX_set_session_cache_mode(&context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(&context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(&context, 0);
  return {};
}

std::string certificate_of(const ssl_st& connection) {
  const std::unique_ptr<X509, CertificateFree> certificate(SSL_get1_peer_certificate(&connection));
  return pem_of(certificate.get());
}

}  // namespace flyt::control
