#include "control/pki/expiry.h"

#include <algorithm>

#include "base/text.h"
#include "control/pki/certificate.h"
#include "control/settings/settings.h"

namespace flyt::pki {
namespace {

constexpr std::int64_t kTold = 14 * 86400;

}  // namespace

Expiry::Expiry(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const bool known =
        std::any_of(ends_.begin(), ends_.end(), [&](const End& one) { return one.path == path; });
    const auto text =
        path.empty() || known ? Result<std::string>(Error{}) : control::read_file(path);
    const auto facts = text ? facts_of(*text) : Result<CertificateFacts>(Error{});
    if (facts) ends_.push_back({path, facts->expires_at});
  }
}

std::vector<std::string> Expiry::problems(std::int64_t now) const {
  std::vector<std::string> problems;
  for (const End& end : ends_) {
    if (end.at - now > kTold) continue;
    const std::string when =
        end.at <= now ? " has ended"
                      : " ends in " + seconds_text(static_cast<std::uint64_t>(end.at - now));
    problems.push_back("the certificate " + end.path + when +
                       "; it is read when the daemon starts: docs/operate.md says how to renew it");
  }
  return problems;
}

}  // namespace flyt::pki
