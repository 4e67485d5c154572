#include "server/code_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace flyt::server {
namespace {

constexpr std::size_t kTenantNameBytesMax = 100;

bool good_name(std::string_view tenant) {
  if (tenant.empty() || tenant.size() > kTenantNameBytesMax || tenant.front() == '.') return false;
  return std::all_of(tenant.begin(), tenant.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

void remove_tenant(int folder, const std::string& name) {
  const Fd tenant(::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!tenant.valid()) return;
  for (const FolderEntry& entry : entries_of(tenant.get())) {
    ::unlinkat(tenant.get(), entry.name.c_str(), 0);
  }
  ::unlinkat(folder, name.c_str(), AT_REMOVEDIR);
}

void make_room_for_tenant(int folder, const std::string& tenant) {
  std::vector<FolderEntry> tenants = entries_of(folder);
  const auto known = [&](const FolderEntry& entry) { return entry.name == tenant; };
  if (std::any_of(tenants.begin(), tenants.end(), known)) return;
  std::sort(tenants.begin(), tenants.end(), older);
  for (std::size_t i = 0; tenants.size() - i >= CodeStore::kTenantsMax; ++i) {
    remove_tenant(folder, tenants[i].name);
  }
}

// An entry of facts: they, and a hash of the code's hash and them.
constexpr std::size_t kLoadedBytesAt = 0;
constexpr std::size_t kFlagsAt = 8;
constexpr std::byte kMayPrint{1};
constexpr std::byte kMayRemember{2};
constexpr std::byte kHasVariables{8};
constexpr std::byte kWithFlags{16};  // Entries without it tell less, and are made anew.
constexpr std::size_t kFactsHashAt = 9;
using FactsEntry = std::array<std::byte, kFactsHashAt + sizeof(Digest)>;

FactsEntry facts_entry(const Digest& digest, const cuda::CodeFacts& facts) {
  FactsEntry entry{};
  std::memcpy(entry.data() + kLoadedBytesAt, &facts.loaded_bytes, sizeof facts.loaded_bytes);
  entry[kFlagsAt] = kWithFlags | (facts.may_print ? kMayPrint : std::byte{0}) |
                    (facts.may_remember ? kMayRemember : std::byte{0}) |
                    (facts.has_variables ? kHasVariables : std::byte{0});
  std::array<std::byte, sizeof(Digest) + kFactsHashAt> hashed{};
  std::memcpy(hashed.data(), digest.data(), sizeof digest);
  std::memcpy(hashed.data() + sizeof digest, entry.data(), kFactsHashAt);
  const Digest hash = sha256(hashed);
  std::memcpy(entry.data() + kFactsHashAt, hash.data(), sizeof hash);
  return entry;
}

std::string facts_name(const Digest& digest) { return to_hex(digest) + ".facts"; }

}  // namespace

Result<std::unique_ptr<CodeStore>> CodeStore::open(const CodeStoreOptions& options,
                                                   std::string_view tenant, const Log& log) {
  const std::string name(tenant);
  if (!good_name(name)) return Error{ErrorCode::kInvalid, "the peer has no name"};
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(options.folder).parent_path(), ignored);
  auto folder = open_own_folder(AT_FDCWD, options.folder);
  if (!folder) return std::move(folder).error();
  make_room_for_tenant(folder->get(), name);
  auto own = open_own_folder(folder->get(), name);
  if (!own) return std::move(own).error();
  // The time of the folder is when its tenant last came.
  ::futimens(own->get(), nullptr);
  return std::unique_ptr<CodeStore>(new CodeStore(std::move(*own), options.bytes_max, log));
}

std::optional<std::vector<std::byte>> CodeStore::find(const Digest& digest, std::uint64_t size) {
  const std::string name = to_hex(digest);
  std::uint64_t stored = 0;
  const Fd file = folder_.open(name, &stored);
  // Perhaps it is cut off, perhaps the client is wrong: whoever sends the code puts it right.
  if (!file.valid() || stored != size) return std::nullopt;
  std::vector<std::byte> code(static_cast<std::size_t>(size) + 1);
  const MutableBytes bytes = MutableBytes(code).first(code.size() - 1);
  if (!read_all(file.get(), bytes) || sha256(bytes) != digest) {
    folder_.remove(name);
    complain("stored code is damaged, and dropped", name);
    return std::nullopt;
  }
  return code;
}

void CodeStore::keep(const Digest& digest, Bytes code) { keep_as(to_hex(digest), code); }

std::optional<cuda::CodeFacts> CodeStore::find_facts(const Digest& digest) {
  const std::string name = facts_name(digest);
  std::uint64_t stored = 0;
  const Fd file = folder_.open(name, &stored);
  FactsEntry found;
  if (!file.valid() || !read_all(file.get(), MutableBytes(found))) return std::nullopt;
  std::uint64_t loaded_bytes = 0;
  std::memcpy(&loaded_bytes, found.data() + kLoadedBytesAt, sizeof loaded_bytes);
  const cuda::CodeFacts facts{loaded_bytes, (found[kFlagsAt] & kMayPrint) != std::byte{0},
                              (found[kFlagsAt] & kMayRemember) != std::byte{0},
                              (found[kFlagsAt] & kHasVariables) != std::byte{0}};
  if (facts_entry(digest, facts) != found) {
    folder_.remove(name);
    complain("what was seen in code is damaged, and dropped", name);
    return std::nullopt;
  }
  return facts;
}

void CodeStore::keep_facts(const Digest& digest, const cuda::CodeFacts& facts) {
  keep_as(facts_name(digest), facts_entry(digest, facts));
}

void CodeStore::keep_as(const std::string& name, Bytes bytes) {
  const Status kept = folder_.keep(name, bytes);
  if (!kept && kept.error().code == ErrorCode::kSystem) {
    complain("code is not stored", kept.error().message);
  }
}

void CodeStore::complain(std::string_view what, std::string_view why) {
  if (!complained_.exchange(true)) log_.warn(what, {{"why", why}});
}

std::string default_store_folder() {
  if (::geteuid() == 0) return "/var/cache/flyt-modules";
  const auto variable = [](const char* name) {
    const char* value = ::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string cache = variable("XDG_CACHE_HOME");
  if (cache.starts_with('/')) return cache + "/flyt-modules";
  const std::string home = variable("HOME");
  return home.starts_with('/') ? home + "/.cache/flyt-modules" : std::string();
}

}  // namespace flyt::server
