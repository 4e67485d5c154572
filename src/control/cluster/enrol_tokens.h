// EnrolTokens: which machines may get a certificate, each once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/cluster.pb.h"
#include "control/cluster_state.pb.h"

namespace flyt::cluster {

inline constexpr std::size_t kEnrolTokensMax = 1000;
inline constexpr std::uint32_t kEnrolSecondsMax = 7 * 86400;
inline constexpr int kEnrolHostsMax = 16;

// What a machine without a certificate says.
struct EnrolClaim {
  std::string id;
  std::string secret;
  std::string role;
  std::string name;
};

// Decides over records, which its owner writes down first. Times are seconds since 1970. Not
// thread-safe.
class EnrolTokens {
 public:
  struct Record {
    std::string id;
    state::EnrolToken token;
  };
  // As read, or when it is written.
  void set(const Record& record) { tokens_[record.id] = record.token; }
  void forget(const std::string& id) { tokens_.erase(id); }

  struct Made {
    Record record;
    std::string secret;                 // Nobody is told it again.
    std::vector<std::string> outdated;  // Tokens that make room.
  };
  // kInvalid: the request makes no sense; kLimit: so many are unused.
  Result<Made> make(const v1::CreateEnrolTokenRequest& request, const std::string& by,
                    std::uint32_t seconds, std::int64_t now) const;
  // The token as it is when the claim is granted. kNotFound: there is none with this secret;
  // kDenied: it does not admit that machine now, which only who knows the secret is told.
  Result<Record> use(const EnrolClaim& claim, std::int64_t now) const;
  // kNotFound: there is none; kUnsupported: it was used.
  Result<Record> revoke(const std::string& id) const;

  v1::ListEnrolTokensResponse list(std::int64_t now) const;
  static v1::EnrolToken view(const Record& record, std::int64_t now);

 private:
  std::vector<std::string> outdated(std::int64_t now) const;

  std::map<std::string, state::EnrolToken> tokens_;
};

}  // namespace flyt::cluster
