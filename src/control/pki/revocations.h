// Revocations: a list of revoked certificates as a file, which may be replaced at any time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "control/pki/certificate.h"

namespace flyt::pki {

// Safe from any thread.
class Revocations {
 public:
  // For who asks; null where there is no list.
  static std::shared_ptr<Revocations> of(const std::string& list_path, const std::string& ca_path) {
    return list_path.empty() ? nullptr : std::make_shared<Revocations>(list_path, ca_path);
  }
  // Of the authority in `ca_path`; an empty path: nobody was revoked.
  Revocations(std::string list_path, std::string ca_path)
      : list_path_(std::move(list_path)), ca_path_(std::move(ca_path)) {}

  // Whether the list can be read.
  Status check();
  // kDenied: the certificate has expired or was revoked, or nobody knows because the list cannot be
  // read.
  Status admit(const CertificateFacts& facts);

 private:
  // With the mutex held.
  Status refresh();

  const std::string list_path_;
  const std::string ca_path_;
  // gRPC's headers, which have annotations of the same names as ours, stand beside this one. It
  // guards what follows.
  std::mutex mutex_;
  std::optional<RevocationList> list_;
  std::int64_t changed_ = -1;
};

}  // namespace flyt::pki
