// Token: the credential with which a client asks for a session of a lease. Text, so that it goes
// through environments and files:
//
//   flyt1:LEASE:EXPIRY:SESSIONS:NONCE:MAC
//
// EXPIRY in seconds since 1970, SESSIONS as decimals, NONCE 32 and MAC 64 lower-case hexadecimal
// digits: HMAC-SHA256 of a prefix and of all before the last colon, under the server's key.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace flyt::wire {

inline constexpr std::size_t kTokenKeyBytes = 32;
inline constexpr std::size_t kTokenNonceBytes = 16;
inline constexpr std::size_t kTokenTextBytesMax = 256;
inline constexpr std::size_t kTokenLeaseBytesMax = 64;
inline constexpr std::uint32_t kTokenSessionsMax = 65535;

using TokenKey = std::array<std::byte, kTokenKeyBytes>;
using TokenNonce = std::array<std::byte, kTokenNonceBytes>;

struct Token {
  std::string lease;
  std::int64_t expiry = 0;     // Seconds since 1970; not valid from then on.
  std::uint32_t sessions = 1;  // How many it admits, 1 to kTokenSessionsMax.
  TokenNonce nonce{};          // What tells it from others.
  friend bool operator==(const Token&, const Token&) = default;
};

// The lease must be one that a server may be started with (letters, digits, '.', '_', '-').
std::string sign(const Token& token, const TokenKey& key);

// kInvalid: it is no token; kDenied: it was not signed with this key. Nothing else is judged.
Result<Token> verify(std::string_view text, const TokenKey& key);

}  // namespace flyt::wire
