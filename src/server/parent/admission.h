// Admission: who may have a session here, where the server has a key: clients with a token of the
// lease. All processes of the server share what it remembers. docs/leases.md has the policy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/parent/token_book.h"
#include "wire/token.h"

namespace flyt::server {

// Safe from any thread, and from any process forked after it was made.
class Admission {
 public:
  static constexpr std::size_t kTokensMax = TokenBook::kTokensMax;
  // A token is short-lived: what is valid for longer is refused.
  static constexpr std::int64_t kTokenSecondsMax = 86400;

  // The key is the file's 32 bytes; nobody but its owner, this user or root, may read or write it.
  static Result<wire::TokenKey> read_key(const std::string& path);
  // `book`: the file of the tokens in use (TokenBook); empty: they end with this server.
  static Result<std::unique_ptr<Admission>> create(std::string lease, const wire::TokenKey& key,
                                                   const std::string& book);
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // kWaiting: a session, for which there is no place yet.
  enum class For : std::uint8_t { kSession, kMonitor, kWaiting };
  // `peer`: what is known of the client's machine or user itself, whatever it says. A session takes
  // one of the token's; a monitor none, and who waits needs one that is left, and takes it later.
  // `now`: unix_seconds(). The error says why not. `charged`, if not null: the token of a session
  // that is admitted.
  Status admit(std::string_view credential, std::string_view peer, For what, std::int64_t now,
               std::optional<wire::TokenNonce>* charged = nullptr);
  // The session has not begun after all, and counts no more.
  void give_back(const wire::TokenNonce& charged);

  // 0 < seconds <= kTokenSecondsMax, 0 < sessions <= wire::kTokenSessionsMax.
  Result<std::string> new_token(std::uint32_t seconds, std::uint32_t sessions,
                                std::int64_t now) const;

  // In a process that goes on to work for a client: it shall not be able to make tokens.
  void forget_key();

 private:
  Admission(std::string lease, const wire::TokenKey& key, std::unique_ptr<TokenBook> book);

  const std::string lease_;
  wire::TokenKey key_;
  const std::unique_ptr<TokenBook> book_;
};

}  // namespace flyt::server
