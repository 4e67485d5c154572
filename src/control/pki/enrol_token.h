// EnrolTokenText: what an operator hands to a machine, so that it gets its first certificate.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace flyt::pki {

// "flyt1.ID.SECRET.PIN", all in lower-case hexadecimal digits.
struct EnrolTokenText {
  std::string id;      // Names it in lists and logs; no secret.
  std::string secret;  // Whoever has it may enrol.
  std::string pin;     // fingerprint_of() the authority that has signed the cluster manager.
};

inline constexpr std::size_t kEnrolIdDigits = 16;
inline constexpr std::size_t kEnrolSecretDigits = 64;
inline constexpr std::size_t kFingerprintDigits = 64;
inline constexpr std::size_t kEnrolTokenBytes =
    6 + kEnrolIdDigits + 1 + kEnrolSecretDigits + 1 + kFingerprintDigits;

// Id and secret by chance.
EnrolTokenText new_enrol_token(std::string pin);
std::string to_string(const EnrolTokenText& token);
// kInvalid: it is none; what it says is not repeated in the error.
Result<EnrolTokenText> parse_enrol_token(std::string_view text);

// What of a secret is kept: whoever reads that cannot use it.
std::string digest_of(std::string_view secret);
// In a time that does not tell how much of them is the same.
bool same_digests(std::string_view a, std::string_view b);

}  // namespace flyt::pki
