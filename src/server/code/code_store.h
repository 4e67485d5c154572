// CodeStore: code that clients have sent, kept on disk by its hash, so that it need not be sent
// again. Each tenant has a folder of its own and meets nothing of another's.
//
//   FOLDER/TENANT/HASH          the bytes as they were sent
//   FOLDER/TENANT/HASH.facts    what was seen in them, and a hash of both
//   FOLDER/TENANT/HASH.next     the name of what was loaded after them, and a hash of both
//
// A tenant's folder is a CacheFolder. Every entry is hashed again when it is read, and one that
// does not agree is removed; one of another size than the client says stays until its code is sent
// again. So a crash costs at most what is then sent again.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cache_folder.h"
#include "base/log.h"
#include "base/result.h"
#include "base/sha256.h"
#include "cuda/code_facts.h"

namespace flyt::server {

// What code is called: its hash, and how many bytes it has.
struct CodeName {
  Digest digest{};
  std::uint64_t bytes = 0;
  bool operator==(const CodeName&) const = default;
};

struct CodeStoreOptions {
  std::string folder;                  // Empty: no store.
  std::uint64_t bytes_max = 4 * kGiB;  // Of each tenant.
};

// Safe from any thread, and from any number of processes.
class CodeStore {
 public:
  // When there are that many tenants, the one that came longest ago makes room for a new one.
  static constexpr std::size_t kTenantsMax = 64;
  static constexpr std::size_t kEntriesMax = CacheFolder::kEntriesMax;  // Of each tenant.

  // `tenant`: lower-case letters, digits, '-', '_' and '.', not in front. Makes what is missing,
  // with mode 0700; refuses folders that belong to somebody else or that others may write to.
  static Result<std::unique_ptr<CodeStore>> open(const CodeStoreOptions& options,
                                                 std::string_view tenant, const Log& log);

  // Whether its folder can be used; no folder can.
  static Status check(const CodeStoreOptions& options);

  // The code of that hash and size with a zero byte behind it, if it is there and undamaged. The
  // entry counts as used.
  std::optional<std::vector<std::byte>> find(const Digest& digest, std::uint64_t size);

  // Keeps code, in place of what was used longest ago; `digest` is its hash. What cannot be kept is
  // not: the log says so once.
  void keep(const Digest& digest, Bytes code);

  // The same for what was seen in code when it was looked into, whether the code is kept or not.
  std::optional<cuda::CodeFacts> find_facts(const Digest& digest);
  void keep_facts(const Digest& digest, const cuda::CodeFacts& facts);

  // The same for the code that a program loaded after it, the last time that one did.
  std::optional<CodeName> find_next(const Digest& digest);
  void keep_next(const Digest& digest, const CodeName& next);

 private:
  CodeStore(Fd folder, std::uint64_t bytes_max, const Log& log)
      : folder_(std::move(folder), bytes_max), log_(log) {}

  void keep_as(const std::string& name, Bytes bytes);
  bool find_note(const Digest& digest, std::string_view kind, MutableBytes note);
  void keep_note(const Digest& digest, std::string_view kind, Bytes note);
  void complain(std::string_view what, std::string_view why);

  const CacheFolder folder_;
  const Log& log_;
  std::atomic<bool> complained_{false};
};

// Where a store is if nobody says: below /var/cache for root, else in the user's cache folder.
// Empty if there is no such place.
std::string default_store_folder();

}  // namespace flyt::server
