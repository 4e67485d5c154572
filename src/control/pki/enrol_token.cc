#include "control/pki/enrol_token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "base/random.h"

namespace flyt::pki {
namespace {

constexpr std::string_view kFront = "flyt1.";

std::string digits_of(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

template <std::size_t Digits>
std::string by_chance() {
  std::array<std::uint8_t, Digits / 2> bytes{};
  random_bytes(bytes.data(), bytes.size());
  return digits_of(bytes);
}

bool is_digits(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

EnrolTokenText new_enrol_token(std::string pin) {
  return {by_chance<kEnrolIdDigits>(), by_chance<kEnrolSecretDigits>(), std::move(pin)};
}

std::string to_string(const EnrolTokenText& token) {
  return std::string(kFront) + token.id + "." + token.secret + "." + token.pin;
}

Result<EnrolTokenText> parse_enrol_token(std::string_view text) {
  const Error none{ErrorCode::kInvalid, "this is no token of `flytctl enrol-token create`"};
  if (text.size() != kEnrolTokenBytes || !text.starts_with(kFront)) return none;
  EnrolTokenText token;
  text.remove_prefix(kFront.size());
  for (const auto& [part, digits] :
       {std::pair(&token.id, kEnrolIdDigits), std::pair(&token.secret, kEnrolSecretDigits),
        std::pair(&token.pin, kFingerprintDigits)}) {
    *part = text.substr(0, digits);
    text.remove_prefix(digits);
    if (!is_digits(*part) || (!text.empty() && text.front() != '.')) return none;
    if (!text.empty()) text.remove_prefix(1);
  }
  return token;
}

std::string digest_of(std::string_view secret) {
  std::array<std::uint8_t, 32> digest{};
  unsigned size = 0;
  if (EVP_Digest(secret.data(), secret.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
    return {};
  }
  return digits_of(digest);
}

bool same_digests(std::string_view a, std::string_view b) {
  return a.size() == b.size() && !a.empty() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace flyt::pki
