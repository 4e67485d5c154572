// Certificates: who a peer is, and an authority that says so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace flyt::pki {

// Of a certificate: "CN" is its name, "OU" its role, in upper-case hexadecimal digits its number.
struct CertificateFacts {
  std::string name;
  std::string role;
  std::string serial;
  std::int64_t begins_at = 0;  // Seconds since 1970, as what follows.
  std::int64_t expires_at = 0;
};
Result<CertificateFacts> facts_of(const std::string& certificate_pem);
// Whether its holder is to be found at this DNS name or address; also if it tells of none.
Result<bool> may_serve_at(const std::string& certificate_pem, const std::string& host);
// SHA-256 of the first certificate, in lower-case hexadecimal digits.
Result<std::string> fingerprint_of(const std::string& certificate_pem);

// A list of revoked certificates.
class RevocationList {
 public:
  // kInvalid: it is none, is not signed by this authority, or should have been replaced by now.
  static Result<RevocationList> parse(const std::string& list_pem, const std::string& ca_pem);
  bool has(std::string_view serial) const;

 private:
  std::vector<std::string> serials_;  // In order.
};

struct KeyPair {
  std::string certificate;  // PEM
  std::string key;
};

// kInvalid: the key is not that of the certificate.
Status check_authority(const KeyPair& authority);
Status check_pair(const KeyPair& pair);

// A new authority, valid for so many days.
Result<KeyPair> make_authority(const std::string& name, std::uint32_t days);

struct CertificateRequest {
  std::string name;
  std::string role;
  std::vector<std::string> hosts;  // DNS names or addresses at which it serves.
  std::uint32_t days = 365;
};
Result<KeyPair> issue(const KeyPair& authority, const CertificateRequest& request);
// What the certificate was made for, but for its days.
Result<CertificateRequest> request_of(const std::string& certificate_pem);

// Of a key that stays where it was made.
struct SigningRequest {
  std::string request;  // PEM
  std::string key;
};
Result<SigningRequest> make_request(const std::string& name, const std::string& role);
inline constexpr std::size_t kSigningRequestBytesMax = 4096;
// Signs the request's key, and nothing else of it: what the certificate says stands in `wanted`.
// kInvalid: it is too long, its signature is none of its key, the key is none of the curves P-256
// and P-384; kDenied: it asks for another name or role.
Result<std::string> sign(const KeyPair& authority, const std::string& request,
                         const CertificateRequest& wanted);

// The list with one more serial number in it; `before` may be empty.
Result<std::string> revoke(const KeyPair& authority, const std::string& before,
                           std::string_view serial, std::uint32_t days);

}  // namespace flyt::pki
