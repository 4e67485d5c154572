#include "wire/token.h"

#include <charconv>

#include "base/hmac.h"

namespace flyt::wire {
namespace {

constexpr std::string_view kKind = "flyt1";
// What is signed is no message of another purpose.
constexpr std::string_view kPurpose = "flyt session token\n";
constexpr std::string_view kDigits = "0123456789abcdef";

std::string hex(Bytes bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

bool unhex(std::string_view text, MutableBytes out) {
  if (text.size() != 2 * out.size()) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t high = kDigits.find(text[2 * i]);
    const std::size_t low = kDigits.find(text[2 * i + 1]);
    if (high == kDigits.npos || low == kDigits.npos) return false;
    out[i] = static_cast<std::byte>(high << 4U | low);
  }
  return true;
}

Digest mac_of(std::string_view text, const TokenKey& key) {
  std::string message(kPurpose);
  message += text;
  return hmac_sha256(key, bytes_of(message));
}

// What stands before the next colon, which goes too.
std::string_view next(std::string_view& text) {
  const std::size_t colon = text.find(':');
  const std::string_view field = text.substr(0, colon);
  text.remove_prefix(colon == text.npos ? text.size() : colon + 1);
  return field;
}

// As sign() writes numbers: no sign, no zero in front.
template <class Number>
bool number(std::string_view text, Number& out) {
  if (text.empty() || text[0] < '1' || text[0] > '9') return false;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

}  // namespace

std::string sign(const Token& token, const TokenKey& key) {
  std::string text(kKind);
  text += ":" + token.lease + ":" + std::to_string(token.expiry) + ":" +
          std::to_string(token.sessions) + ":" + hex(token.nonce);
  return text + ":" + hex(mac_of(text, key));
}

Result<Token> verify(std::string_view text, const TokenKey& key) {
  const Error malformed{ErrorCode::kInvalid, "the credential is no token"};
  if (text.size() > kTokenTextBytesMax) return malformed;
  const std::size_t last = text.rfind(':');
  Digest mac{};
  if (last == text.npos || !unhex(text.substr(last + 1), mac)) return malformed;
  const std::string_view told = text.substr(0, last);
  std::string_view rest = told;
  Token token;
  const bool kind = next(rest) == kKind;
  token.lease = next(rest);
  const bool formed = kind && !token.lease.empty() && token.lease.size() <= kTokenLeaseBytesMax &&
                      number(next(rest), token.expiry) && number(next(rest), token.sessions) &&
                      token.sessions <= kTokenSessionsMax && unhex(rest, token.nonce);
  if (!formed) return malformed;
  if (!equal_in_constant_time(mac_of(told, key), mac)) {
    return Error{ErrorCode::kDenied, "the token is not of this server"};
  }
  return token;
}

}  // namespace flyt::wire
