// Gate: whom a certificate or a user of this machine makes of a caller.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/annotations.h"
#include "base/result.h"
#include "control/cluster/config.h"
#include "control/cluster/roles.h"
#include "control/pki/certificate.h"
#include "control/pki/revocations.h"

namespace flyt::cluster {

// Safe from any thread.
class Gate {
 public:
  explicit Gate(const Config& config) : config_(config), revocations_(config.crl, config.ca) {}

  // Whether the configured files and users make sense.
  Status check();
  // Of a certificate that the transport has found to be signed by api.ca. kDenied: revoked, of no
  // role, or the list of revoked ones cannot be read.
  Result<Caller> caller_of(const std::string& certificate_pem, const std::string& peer);
  // The role of a user of this machine; none: not let in.
  static std::optional<Role> role_of_user(const Config& config, std::uint32_t user);

  // For whom a manager that does not decide asks: `behalf` is a v1::Behalf. kDenied: the caller is
  // none, or says nothing that makes sense.
  static Result<Caller> speaks_for(const Caller& caller, std::string_view behalf);

 private:
  const Config& config_;
  pki::Revocations revocations_;
  Mutex mutex_;
  std::map<std::string, pki::CertificateFacts> known_ GUARDED_BY(mutex_);
};

}  // namespace flyt::cluster
