// Token book: which tokens are in use, by whom, and for how many sessions so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/annotations.h"
#include "base/result.h"
#include "base/roll.h"
#include "base/sha256.h"
#include "server/shared_mutex.h"
#include "wire/token.h"

namespace flyt::server {

// Shared by all processes that are forked after it was made. In a file it outlives them, whatever
// they die of: the next server's is the same.
class TokenBook {
 public:
  // Tokens that are remembered at once, each until it expires.
  static constexpr std::size_t kTokensMax = 4096;

  // Free if its expiry is 0, which is stored last: the rest is whole by then.
  struct Entry {
    wire::TokenNonce nonce;
    Digest peer;
    std::uint32_t used;
    std::uint32_t zero;
    std::int64_t expiry;
  };
  static_assert(sizeof(Entry) == 64);

  // `path`: the file, which is made if there is none; empty: it ends with this server. kInvalid:
  // the file has what no book can have; kUnsupported: it is another version's.
  static Result<std::unique_ptr<TokenBook>> open(const std::string& path);
  ~TokenBook();
  TokenBook(const TokenBook&) = delete;
  TokenBook& operator=(const TokenBook&) = delete;

  // For who holds a Lock.
  std::span<Entry> entries() const;

  // One at a time, of all threads and processes.
  class Lock {
   public:
    explicit Lock(const TokenBook& book) : own_(*book.mutex_) {
      if (book.file_) door_.emplace(*book.file_);
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    const SharedLock own_;            // Those of this server;
    std::optional<Roll::Door> door_;  // other servers.
  };

 private:
  struct Page;
  TokenBook(std::optional<Roll> file, Page* page, SharedMutex* mutex);
  Status check(const std::string& path) const;

  std::optional<Roll> file_;
  Page* const page_;
  SharedMutex* const mutex_;
};

}  // namespace flyt::server
