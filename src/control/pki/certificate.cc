#include "control/pki/certificate.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/random.h"
#include "base/wall_clock.h"

namespace flyt::pki {
namespace {

template <class T, void (*Free)(T*)>
struct Deleter {
  void operator()(T* object) const { Free(object); }
};
using Certificate = std::unique_ptr<X509, Deleter<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY, EVP_PKEY_free>>;
using Asked = std::unique_ptr<X509_REQ, Deleter<X509_REQ, X509_REQ_free>>;
using List = std::unique_ptr<X509_CRL, Deleter<X509_CRL, X509_CRL_free>>;
using Number = std::unique_ptr<BIGNUM, Deleter<BIGNUM, BN_free>>;
using Asn1Number = std::unique_ptr<ASN1_INTEGER, Deleter<ASN1_INTEGER, ASN1_INTEGER_free>>;
using Asn1Time = std::unique_ptr<ASN1_TIME, Deleter<ASN1_TIME, ASN1_TIME_free>>;
using Revoked = std::unique_ptr<X509_REVOKED, Deleter<X509_REVOKED, X509_REVOKED_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Deleter<GENERAL_NAMES, GENERAL_NAMES_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Deleter<X509_EXTENSION, X509_EXTENSION_free>>;
struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Bio = std::unique_ptr<BIO, BioFree>;

constexpr std::int64_t kDay = 86400;
// Clocks of machines differ.
constexpr std::int64_t kEarlier = 300;

Error failure(const std::string& what) {
  std::array<char, 256> text{};
  const unsigned long code = ERR_get_error();
  ERR_error_string_n(code, text.data(), text.size());
  ERR_clear_error();
  return {ErrorCode::kInvalid, code == 0 ? what : what + ": " + text.data()};
}

Bio reading(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string written(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

// The library would ask at the terminal for the password of what is encrypted, and wait.
int no_password(char*, int, int, void*) { return -1; }

Certificate certificate_of(const std::string& pem) {
  return Certificate(PEM_read_bio_X509(reading(pem).get(), nullptr, no_password, nullptr));
}

std::string part_of(const X509_NAME* name, int nid) {
  const int at = X509_NAME_get_index_by_NID(name, nid, -1);
  if (at < 0) return {};
  const ASN1_STRING* value = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at));
  unsigned char* text = nullptr;
  const int size = ASN1_STRING_to_UTF8(&text, value);
  if (size < 0) return {};
  std::string out;
  for (int i = 0; i < size; ++i) out.push_back(static_cast<char>(text[i]));
  OPENSSL_free(text);
  return out;
}

std::string digits_of(const ASN1_INTEGER* number) {
  const Number big(ASN1_INTEGER_to_BN(number, nullptr));
  if (!big) return {};
  char* text = BN_bn2hex(big.get());
  std::string digits = text == nullptr ? "" : text;
  OPENSSL_free(text);
  return digits;
}

// Since 1970; 0: it is no time.
std::int64_t seconds_of(const ASN1_TIME* time) {
  int days = 0;
  int seconds = 0;
  if (ASN1_TIME_diff(&days, &seconds, nullptr, time) != 1) return 0;
  return unix_seconds() + days * kDay + seconds;
}

bool sign_fields(X509* certificate, X509_NAME* issuer, std::uint32_t days) {
  std::array<unsigned char, 16> bytes{};
  random_bytes(bytes.data(), bytes.size());
  bytes[0] &= 0x7f;
  bytes[0] |= 0x40;
  const Number serial(BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr));
  return X509_set_version(certificate, 2) == 1 &&
         BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate)) != nullptr &&
         X509_gmtime_adj(X509_getm_notBefore(certificate), -kEarlier) != nullptr &&
         X509_gmtime_adj(X509_getm_notAfter(certificate), kDay * days) != nullptr &&
         X509_set_issuer_name(certificate, issuer) == 1;
}

bool add_name(X509_NAME* name, const char* field, const std::string& value) {
  std::vector<unsigned char> bytes(value.begin(), value.end());
  return X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, bytes.data(),
                                    static_cast<int>(bytes.size()), -1, 0) == 1;
}

bool extend(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

Result<std::string> text_of(X509* certificate) {
  const Bio out(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(out.get(), certificate) != 1) return failure("cannot write a certificate");
  return written(out.get());
}

Result<std::string> text_of(EVP_PKEY* key) {
  const Bio out(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return failure("cannot write a key");
  }
  return written(out.get());
}

Result<KeyPair> texts_of(X509* certificate, EVP_PKEY* key) {
  auto cert = text_of(certificate);
  if (!cert) return std::move(cert).error();
  auto secret = text_of(key);
  if (!secret) return std::move(secret).error();
  return KeyPair{std::move(*cert), std::move(*secret)};
}

struct Authority {
  Certificate certificate;
  Key key;
};

// `whose`: "the authority's ", for what is wrong.
Result<Authority> pair_of(const KeyPair& pair, const std::string& whose) {
  Authority authority{
      certificate_of(pair.certificate),
      Key(PEM_read_bio_PrivateKey(reading(pair.key).get(), nullptr, no_password, nullptr))};
  if (!authority.certificate) return failure(whose + "certificate cannot be read");
  if (!authority.key) return failure(whose + "key cannot be read");
  if (X509_check_private_key(authority.certificate.get(), authority.key.get()) != 1) {
    return failure(whose + "key is not that of its certificate");
  }
  return authority;
}

Result<Authority> authority_of(const KeyPair& pair) { return pair_of(pair, "the authority's "); }

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == ':';
  });
}

bool name_subject(X509_NAME* subject, const std::string& name, const std::string& role) {
  return add_name(subject, "O", "flyt") && add_name(subject, "OU", role) &&
         add_name(subject, "CN", name);
}

// A DNS name or address at which the holder serves.
Result<std::string> host_of(GENERAL_NAME* name) {
  const Bio out(BIO_new(BIO_s_mem()));
  if (GENERAL_NAME_print(out.get(), name) != 1) return failure("cannot read a certificate's names");
  const std::string text = written(out.get());
  for (const std::string_view kind : {"DNS:", "IP Address:"}) {
    if (text.starts_with(kind)) return text.substr(kind.size());
  }
  return Error{ErrorCode::kInvalid, "the certificate has names that are no hosts'"};
}

// As the extension for alternative names has them.
Result<std::string> names_of(const CertificateRequest& request) {
  if (!is_name(request.name) || !is_name(request.role)) {
    return Error{ErrorCode::kInvalid, "names have 1 to 64 letters, digits, '-', '_', '.' or ':'"};
  }
  std::string names;
  for (const std::string& host : request.hosts) {
    if (!is_name(host)) return Error{ErrorCode::kInvalid, "'" + host + "' is no name of a host"};
    const bool address =
        host.find_first_not_of("0123456789.") == std::string::npos || host.find(':') != host.npos;
    names += (names.empty() ? "" : ",") + std::string(address ? "IP:" : "DNS:") + host;
  }
  return names;
}

Result<Certificate> certify(const Authority& authority, EVP_PKEY* key,
                            const CertificateRequest& request) {
  const auto names = names_of(request);
  if (!names) return names.error();
  Certificate certificate(X509_new());
  if (key == nullptr || !certificate) return failure("cannot make a key");
  X509* ca = authority.certificate.get();
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  const bool made =
      name_subject(subject, request.name, request.role) &&
      sign_fields(certificate.get(), X509_get_subject_name(ca), request.days) &&
      X509_set_pubkey(certificate.get(), key) == 1 &&
      extend(certificate.get(), ca, NID_basic_constraints, "critical,CA:FALSE") &&
      extend(certificate.get(), ca, NID_key_usage, "critical,digitalSignature") &&
      extend(certificate.get(), ca, NID_ext_key_usage, "serverAuth,clientAuth") &&
      extend(certificate.get(), ca, NID_authority_key_identifier, "keyid") &&
      (names->empty() || extend(certificate.get(), ca, NID_subject_alt_name, *names)) &&
      X509_sign(certificate.get(), authority.key.get(), EVP_sha256()) != 0;
  if (!made) return failure("cannot issue a certificate");
  return certificate;
}

bool is_good_key(EVP_PKEY* key) {
  std::array<char, 64> curve{};
  std::size_t size = 0;
  if (key == nullptr || EVP_PKEY_get_base_id(key) != EVP_PKEY_EC ||
      EVP_PKEY_get_group_name(key, curve.data(), curve.size(), &size) != 1) {
    return false;
  }
  const std::string_view name(curve.data(), size);
  return name == SN_X9_62_prime256v1 || name == SN_secp384r1;
}

}  // namespace

Result<std::string> fingerprint_of(const std::string& certificate_pem) {
  const Certificate certificate = certificate_of(certificate_pem);
  std::array<unsigned char, 32> digest{};
  unsigned size = 0;
  if (!certificate || X509_digest(certificate.get(), EVP_sha256(), digest.data(), &size) != 1) {
    return failure("the certificate cannot be read");
  }
  std::string text;
  for (const unsigned char byte : digest) {
    for (const unsigned digit : {byte / 16u, byte % 16u}) text += "0123456789abcdef"[digit];
  }
  return text;
}

Result<CertificateFacts> facts_of(const std::string& certificate_pem) {
  const Certificate certificate = certificate_of(certificate_pem);
  if (!certificate) return failure("the certificate cannot be read");
  CertificateFacts facts;
  const X509_NAME* subject = X509_get_subject_name(certificate.get());
  facts.name = part_of(subject, NID_commonName);
  facts.role = part_of(subject, NID_organizationalUnitName);
  facts.serial = digits_of(X509_get0_serialNumber(certificate.get()));
  facts.begins_at = seconds_of(X509_get0_notBefore(certificate.get()));
  facts.expires_at = seconds_of(X509_get0_notAfter(certificate.get()));
  return facts;
}

Result<bool> may_serve_at(const std::string& certificate_pem, const std::string& host) {
  const Certificate certificate = certificate_of(certificate_pem);
  if (!certificate) return failure("the certificate cannot be read");
  X509* of = certificate.get();
  if (X509_get_ext_by_NID(of, NID_subject_alt_name, -1) < 0) return true;
  return X509_check_ip_asc(of, host.c_str(), 0) == 1 ||
         X509_check_host(of, host.data(), host.size(), X509_CHECK_FLAG_NEVER_CHECK_SUBJECT,
                         nullptr) == 1;
}

Result<RevocationList> RevocationList::parse(const std::string& list_pem,
                                             const std::string& ca_pem) {
  const List list(PEM_read_bio_X509_CRL(reading(list_pem).get(), nullptr, no_password, nullptr));
  if (!list) return failure("the list of revoked certificates cannot be read");
  const Certificate authority = certificate_of(ca_pem);
  if (!authority) return failure("the authority's certificate cannot be read");
  if (X509_CRL_verify(list.get(), X509_get0_pubkey(authority.get())) != 1) {
    return failure("the list of revoked certificates is not signed by the authority");
  }
  const ASN1_TIME* next = X509_CRL_get0_nextUpdate(list.get());
  if (next != nullptr && X509_cmp_current_time(next) < 0) {
    return Error{ErrorCode::kInvalid, "the list of revoked certificates is too old"};
  }
  RevocationList out;
  STACK_OF(X509_REVOKED)* all = X509_CRL_get_REVOKED(list.get());
  for (int i = 0; i < sk_X509_REVOKED_num(all); ++i) {
    const X509_REVOKED* one = sk_X509_REVOKED_value(all, i);
    out.serials_.push_back(digits_of(X509_REVOKED_get0_serialNumber(one)));
  }
  std::sort(out.serials_.begin(), out.serials_.end());
  return out;
}

bool RevocationList::has(std::string_view serial) const {
  return std::binary_search(serials_.begin(), serials_.end(), serial);
}

Status check_authority(const KeyPair& pair) {
  const auto authority = authority_of(pair);
  return authority ? Status() : Status(authority.error());
}

Status check_pair(const KeyPair& pair) {
  const auto good = pair_of(pair, "the ");
  return good ? Status() : Status(good.error());
}

Result<KeyPair> make_authority(const std::string& name, std::uint32_t days) {
  if (!is_name(name))
    return Error{ErrorCode::kInvalid, "an authority's name is letters and digits"};
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  if (!key || !certificate) return failure("cannot make a key");
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  const bool made =
      add_name(subject, "O", "flyt") && add_name(subject, "CN", name) &&
      sign_fields(certificate.get(), subject, days) &&
      X509_set_pubkey(certificate.get(), key.get()) == 1 &&
      extend(certificate.get(), certificate.get(), NID_basic_constraints,
             "critical,CA:TRUE,pathlen:0") &&
      extend(certificate.get(), certificate.get(), NID_key_usage, "critical,keyCertSign,cRLSign") &&
      extend(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash") &&
      X509_sign(certificate.get(), key.get(), EVP_sha256()) != 0;
  if (!made) return failure("cannot make an authority");
  return texts_of(certificate.get(), key.get());
}

Result<KeyPair> issue(const KeyPair& pair, const CertificateRequest& request) {
  const auto authority = authority_of(pair);
  if (!authority) return authority.error();
  const Key key(EVP_EC_gen("P-256"));
  const auto certificate = certify(*authority, key.get(), request);
  if (!certificate) return certificate.error();
  return texts_of(certificate->get(), key.get());
}

Result<CertificateRequest> request_of(const std::string& certificate_pem) {
  const Certificate certificate = certificate_of(certificate_pem);
  if (!certificate) return failure("the certificate cannot be read");
  const X509_NAME* subject = X509_get_subject_name(certificate.get());
  CertificateRequest request{.name = part_of(subject, NID_commonName),
                             .role = part_of(subject, NID_organizationalUnitName),
                             .hosts = {}};
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    auto host = host_of(sk_GENERAL_NAME_value(names.get(), i));
    if (!host) return std::move(host).error();
    request.hosts.push_back(std::move(*host));
  }
  return request;
}

Result<SigningRequest> make_request(const std::string& name, const std::string& role) {
  const auto good = names_of({.name = name, .role = role, .hosts = {}});
  if (!good) return good.error();
  const Key key(EVP_EC_gen("P-256"));
  const Asked request(X509_REQ_new());
  const Bio out(BIO_new(BIO_s_mem()));
  const bool made = key && request && X509_REQ_set_version(request.get(), 0) == 1 &&
                    name_subject(X509_REQ_get_subject_name(request.get()), name, role) &&
                    X509_REQ_set_pubkey(request.get(), key.get()) == 1 &&
                    X509_REQ_sign(request.get(), key.get(), EVP_sha256()) != 0 &&
                    PEM_write_bio_X509_REQ(out.get(), request.get()) == 1;
  if (!made) return failure("cannot make a request for a certificate");
  auto secret = text_of(key.get());
  if (!secret) return std::move(secret).error();
  return SigningRequest{written(out.get()), std::move(*secret)};
}

Result<std::string> sign(const KeyPair& pair, const std::string& text,
                         const CertificateRequest& wanted) {
  if (text.size() > kSigningRequestBytesMax) {
    return Error{ErrorCode::kInvalid, "the request for a certificate has more than " +
                                          std::to_string(kSigningRequestBytesMax) + " bytes"};
  }
  const Asked request(PEM_read_bio_X509_REQ(reading(text).get(), nullptr, no_password, nullptr));
  if (!request) return failure("the request for a certificate cannot be read");
  EVP_PKEY* key = X509_REQ_get0_pubkey(request.get());
  if (!is_good_key(key)) {
    ERR_clear_error();
    return Error{ErrorCode::kInvalid, "a key of the curve P-256 or P-384 is needed"};
  }
  if (X509_REQ_verify(request.get(), key) != 1) {
    return failure("the request for a certificate is not signed by its own key");
  }
  const X509_NAME* subject = X509_REQ_get_subject_name(request.get());
  if (part_of(subject, NID_commonName) != wanted.name ||
      part_of(subject, NID_organizationalUnitName) != wanted.role) {
    return Error{ErrorCode::kDenied,
                 "the request is for another name or role than " + wanted.role + " " + wanted.name};
  }
  const auto authority = authority_of(pair);
  if (!authority) return authority.error();
  const auto certificate = certify(*authority, key, wanted);
  if (!certificate) return certificate.error();
  return text_of(certificate->get());
}

Result<std::string> revoke(const KeyPair& pair, const std::string& before, std::string_view serial,
                           std::uint32_t days) {
  const auto authority = authority_of(pair);
  if (!authority) return authority.error();
  List list(before.empty()
                ? X509_CRL_new()
                : PEM_read_bio_X509_CRL(reading(before).get(), nullptr, no_password, nullptr));
  if (!list) return failure("the list of revoked certificates cannot be read");
  BIGNUM* digits = nullptr;
  const bool read = !serial.empty() && BN_hex2bn(&digits, std::string(serial).c_str()) ==
                                           static_cast<int>(serial.size());
  const Number number(digits);
  if (!read) return Error{ErrorCode::kInvalid, "'" + std::string(serial) + "' is no serial number"};
  const Asn1Number wanted(BN_to_ASN1_INTEGER(number.get(), nullptr));
  const Asn1Time now(X509_gmtime_adj(nullptr, 0));
  const Asn1Time next(X509_gmtime_adj(nullptr, kDay * days));
  X509_REVOKED* known = nullptr;
  const bool there = X509_CRL_get0_by_serial(list.get(), &known, wanted.get()) != 0;
  X509_NAME* issuer = X509_get_subject_name(authority->certificate.get());
  bool made = X509_CRL_set_version(list.get(), 1) == 1 &&
              X509_CRL_set_issuer_name(list.get(), issuer) == 1 &&
              X509_CRL_set1_lastUpdate(list.get(), now.get()) == 1 &&
              X509_CRL_set1_nextUpdate(list.get(), next.get()) == 1;
  if (made && !there) {
    Revoked fresh(X509_REVOKED_new());
    made = X509_REVOKED_set_serialNumber(fresh.get(), wanted.get()) == 1 &&
           X509_REVOKED_set_revocationDate(fresh.get(), now.get()) == 1 &&
           X509_CRL_add0_revoked(list.get(), fresh.get()) == 1;
    if (made) static_cast<void>(fresh.release());
  }
  made = made && X509_CRL_sort(list.get()) == 1 &&
         X509_CRL_sign(list.get(), authority->key.get(), EVP_sha256()) != 0;
  const Bio out(BIO_new(BIO_s_mem()));
  if (!made || PEM_write_bio_X509_CRL(out.get(), list.get()) != 1) {
    return failure("cannot sign the list of revoked certificates");
  }
  return written(out.get());
}

}  // namespace flyt::pki
