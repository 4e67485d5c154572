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
  std::int64_t expires_at = 0;  // Seconds since 1970.
};
Result<CertificateFacts> facts_of(const std::string& certificate_pem);

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

// A new authority, valid for so many days.
Result<KeyPair> make_authority(const std::string& name, std::uint32_t days);

struct CertificateRequest {
  std::string name;
  std::string role;
  std::vector<std::string> hosts;  // DNS names or addresses at which it serves.
  std::uint32_t days = 365;
};
Result<KeyPair> issue(const KeyPair& authority, const CertificateRequest& request);

// The list with one more serial number in it; `before` may be empty.
Result<std::string> revoke(const KeyPair& authority, const std::string& before,
                           std::string_view serial, std::uint32_t days);

}  // namespace flyt::pki
