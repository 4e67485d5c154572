#include "server/parent/admission.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "base/random.h"

namespace flyt::server {

namespace {

Error denied(std::string_view why) { return {ErrorCode::kDenied, std::string(why)}; }

}  // namespace

Result<wire::TokenKey> Admission::read_key(const std::string& path) {
  const auto bad = [&](std::string_view why) {
    return Error{ErrorCode::kInvalid, "token key " + path + ": " + std::string(why)};
  };
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return system_error("token key " + path, errno);
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) return system_error("token key " + path, errno);
  if (!S_ISREG(about.st_mode)) return bad("it is no file");
  if (about.st_uid != ::geteuid() && about.st_uid != 0) return bad("it belongs to another user");
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return bad("others than its owner may use it; chmod 600");
  }
  std::array<std::byte, wire::kTokenKeyBytes + 1> bytes;
  const ssize_t got = ::read(file.get(), bytes.data(), bytes.size());
  if (got != static_cast<ssize_t>(wire::kTokenKeyBytes)) return bad("a key has exactly 32 bytes");
  // Where the caller has it: no other copy is left anywhere.
  Result<wire::TokenKey> key{wire::TokenKey{}};
  std::copy_n(bytes.begin(), key->size(), key->begin());
  ::explicit_bzero(bytes.data(), bytes.size());
  return key;
}

Admission::Admission(std::string lease, const wire::TokenKey& key, std::unique_ptr<TokenBook> book)
    : lease_(std::move(lease)), key_(key), book_(std::move(book)) {}

Admission::~Admission() { forget_key(); }

Result<std::unique_ptr<Admission>> Admission::create(std::string lease, const wire::TokenKey& key,
                                                     const std::string& book) {
  auto opened = TokenBook::open(book);
  if (!opened) return std::move(opened).error();
  return std::unique_ptr<Admission>(new Admission(std::move(lease), key, std::move(*opened)));
}

Status Admission::admit(std::string_view credential, std::string_view peer, For what,
                        std::int64_t now, std::optional<wire::TokenNonce>* charged) {
  if (credential.empty()) return denied("a token is needed");
  const auto token = wire::verify(credential, key_);
  if (!token) return denied(token.error().message);
  if (token->lease != lease_) return denied("the token is of another lease");
  if (token->expiry <= now) return denied("the token has expired");
  if (token->expiry - now > kTokenSecondsMax) return denied("the token is valid for too long");
  const Digest who = sha256(bytes_of(peer));
  const bool counts = what == For::kSession;
  const auto done = [&] {
    if (counts && charged != nullptr) *charged = token->nonce;
    return Status();
  };
  const TokenBook::Lock lock(*book_);
  TokenBook::Entry* place = nullptr;
  for (TokenBook::Entry& entry : book_->entries()) {
    if (entry.expiry != 0 && entry.expiry <= now) entry.expiry = 0;
    if (entry.expiry == 0) {
      if (place == nullptr) place = &entry;
      continue;
    }
    if (entry.nonce != token->nonce) continue;
    if (entry.peer != who) return denied("the token is used from elsewhere");
    if (what == For::kMonitor) return {};
    if (entry.used >= token->sessions) return denied("the token is used up");
    if (counts) ++entry.used;
    return done();
  }
  if (place == nullptr) return denied("too many tokens are in use");
  place->nonce = token->nonce;
  place->peer = who;
  place->used = counts ? 1 : 0;
  place->expiry = token->expiry;
  return done();
}

void Admission::give_back(const wire::TokenNonce& charged) {
  const TokenBook::Lock lock(*book_);
  for (TokenBook::Entry& entry : book_->entries()) {
    if (entry.expiry != 0 && entry.nonce == charged && entry.used != 0) --entry.used;
  }
}

Result<std::string> Admission::new_token(std::uint32_t seconds, std::uint32_t sessions,
                                         std::int64_t now) const {
  if (seconds == 0 || seconds > kTokenSecondsMax || sessions == 0 ||
      sessions > wire::kTokenSessionsMax) {
    return Error{ErrorCode::kInvalid, "a token is for 1 to 86400 seconds and 1 to 65535 sessions"};
  }
  wire::Token token{.lease = lease_, .expiry = now + seconds, .sessions = sessions};
  random_bytes(token.nonce.data(), token.nonce.size());
  return wire::sign(token, key_);
}

void Admission::forget_key() { ::explicit_bzero(key_.data(), key_.size()); }

}  // namespace flyt::server
