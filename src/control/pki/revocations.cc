#include "control/pki/revocations.h"

#include <sys/stat.h>

#include <cerrno>

#include "base/wall_clock.h"
#include "control/settings/settings.h"

namespace flyt::pki {

Status Revocations::check() {
  const std::lock_guard lock(mutex_);
  return refresh();
}

// The list is read again when its file was replaced.
Status Revocations::refresh() {
  if (list_path_.empty()) return {};
  struct stat facts {};
  if (::stat(list_path_.c_str(), &facts) != 0) {
    return system_error("cannot read " + list_path_, errno);
  }
  const std::int64_t changed =
      std::int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
  if (list_ && changed == changed_) return {};
  const auto text = control::read_file(list_path_);
  if (!text) return text.error();
  const auto ca = control::read_file(ca_path_);
  if (!ca) return ca.error();
  auto list = RevocationList::parse(*text, *ca);
  if (!list) return Error{list.error().code, list_path_ + ": " + list.error().message};
  list_ = std::move(*list);
  changed_ = changed;
  return {};
}

Status Revocations::admit(const CertificateFacts& facts) {
  const auto denied = [](std::string why) { return Error{ErrorCode::kDenied, std::move(why)}; };
  if (facts.expires_at <= unix_seconds()) {
    return denied("the certificate of " + facts.name + " has expired");
  }
  const std::lock_guard lock(mutex_);
  if (Status status = refresh(); !status) {
    return denied("nobody is trusted: " + status.error().message);
  }
  if (list_ && list_->has(facts.serial)) {
    return denied("the certificate of " + facts.name + " was revoked");
  }
  return {};
}

}  // namespace flyt::pki
