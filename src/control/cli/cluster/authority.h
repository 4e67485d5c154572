// Authority: `flytctl ca`: a folder with an authority, and certificates that it signed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace flyt::cli {

// The folder has ca.crt, ca.key, crl.pem (who was revoked), and for each certificate NAME.crt and
// NAME.key. Keys are readable for their owner alone. What is there is never written over, but for
// crl.pem.
struct AuthorityOptions {
  std::string folder = "/etc/flyt/ca";
  std::string name;
  std::string role;
  std::vector<std::string> hosts;
  std::uint32_t days = 365;             // Of a certificate.
  std::uint32_t authority_days = 3650;  // With the authority all that it signed ends.
  bool json = false;
};

Status ca_init(const AuthorityOptions& options);
Status ca_issue(const AuthorityOptions& options);
// `name` is that of a certificate in the folder, a file, or a serial number.
Status ca_revoke(const AuthorityOptions& options);

}  // namespace flyt::cli
