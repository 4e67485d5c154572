#include "server/code/code_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
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

// What identity_of_peer() calls peers. Whatever else is in the folder is somebody else's, who may
// have had it before it was named to us.
bool is_tenants(const FolderEntry& entry) {
  return entry.name.starts_with("unix-") || entry.name.starts_with("tcp-");
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
  std::erase_if(tenants, [](const FolderEntry& entry) { return !is_tenants(entry); });
  const auto known = [&](const FolderEntry& entry) { return entry.name == tenant; };
  if (std::any_of(tenants.begin(), tenants.end(), known)) return;
  std::sort(tenants.begin(), tenants.end(), older);
  for (std::size_t i = 0; tenants.size() - i >= CodeStore::kTenantsMax; ++i) {
    remove_tenant(folder, tenants[i].name);
  }
}

// Of code's facts.
constexpr std::size_t kLoadedBytesAt = 0;
constexpr std::size_t kFlagsAt = 8;
constexpr std::byte kMayPrint{1};
constexpr std::byte kMayRemember{2};
constexpr std::byte kHasVariables{8};
constexpr std::byte kWithFlags{16};  // Notes without it tell less, and are made anew.
using FactsNote = std::array<std::byte, 9>;

FactsNote facts_note(const cuda::CodeFacts& facts) {
  FactsNote note{};
  std::memcpy(note.data() + kLoadedBytesAt, &facts.loaded_bytes, sizeof facts.loaded_bytes);
  note[kFlagsAt] = kWithFlags | (facts.may_print ? kMayPrint : std::byte{0}) |
                   (facts.may_remember ? kMayRemember : std::byte{0}) |
                   (facts.has_variables ? kHasVariables : std::byte{0});
  return note;
}

// A note about code is kept with a hash of the code's hash and the note.
Digest seal_of(const Digest& digest, Bytes note) {
  std::vector<std::byte> hashed(digest.begin(), digest.end());
  hashed.insert(hashed.end(), note.begin(), note.end());
  return sha256(hashed);
}

Result<Fd> open_store_folder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  return open_own_folder(AT_FDCWD, path);
}

constexpr std::string_view kFacts = ".facts";
constexpr std::string_view kNext = ".next";

}  // namespace

Result<std::unique_ptr<CodeStore>> CodeStore::open(const CodeStoreOptions& options,
                                                   std::string_view tenant, const Log& log) {
  const std::string name(tenant);
  if (!good_name(name)) return Error{ErrorCode::kInvalid, "the peer has no name"};
  auto folder = open_store_folder(options.folder);
  if (!folder) return std::move(folder).error();
  make_room_for_tenant(folder->get(), name);
  auto own = open_own_folder(folder->get(), name);
  if (!own) return std::move(own).error();
  // The time of the folder is when its tenant last came.
  ::futimens(own->get(), nullptr);
  return std::unique_ptr<CodeStore>(new CodeStore(std::move(*own), options.bytes_max, log));
}

Status CodeStore::check(const CodeStoreOptions& options) {
  if (options.folder.empty()) return {};
  const auto folder = open_store_folder(options.folder);
  if (!folder) return folder.error();
  if (::faccessat(folder->get(), ".", W_OK | X_OK, AT_EACCESS) == 0) return {};
  return system_error("writing to " + options.folder, errno);
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
  FactsNote note;
  if (!find_note(digest, kFacts, note)) return std::nullopt;
  std::uint64_t loaded_bytes = 0;
  std::memcpy(&loaded_bytes, note.data() + kLoadedBytesAt, sizeof loaded_bytes);
  const cuda::CodeFacts facts{loaded_bytes, (note[kFlagsAt] & kMayPrint) != std::byte{0},
                              (note[kFlagsAt] & kMayRemember) != std::byte{0},
                              (note[kFlagsAt] & kHasVariables) != std::byte{0}};
  if (facts_note(facts) != note) return std::nullopt;
  return facts;
}

void CodeStore::keep_facts(const Digest& digest, const cuda::CodeFacts& facts) {
  keep_note(digest, kFacts, facts_note(facts));
}

std::optional<CodeName> CodeStore::find_next(const Digest& digest) {
  std::array<std::byte, sizeof(Digest) + sizeof(std::uint64_t)> note;
  if (!find_note(digest, kNext, note)) return std::nullopt;
  CodeName next;
  std::memcpy(next.digest.data(), note.data(), sizeof next.digest);
  std::memcpy(&next.bytes, note.data() + sizeof next.digest, sizeof next.bytes);
  return next;
}

void CodeStore::keep_next(const Digest& digest, const CodeName& next) {
  std::array<std::byte, sizeof(Digest) + sizeof(std::uint64_t)> note;
  std::memcpy(note.data(), next.digest.data(), sizeof next.digest);
  std::memcpy(note.data() + sizeof next.digest, &next.bytes, sizeof next.bytes);
  keep_note(digest, kNext, note);
}

bool CodeStore::find_note(const Digest& digest, std::string_view kind, MutableBytes note) {
  const std::string name = to_hex(digest) + std::string(kind);
  std::uint64_t stored = 0;
  const Fd file = folder_.open(name, &stored);
  Digest seal;
  if (!file.valid() || !read_all(file.get(), note)) return false;
  if (stored == note.size() + sizeof seal && read_all(file.get(), MutableBytes(seal)) &&
      seal == seal_of(digest, note)) {
    return true;
  }
  folder_.remove(name);
  complain("a note about stored code is damaged, and dropped", name);
  return false;
}

void CodeStore::keep_note(const Digest& digest, std::string_view kind, Bytes note) {
  std::vector<std::byte> entry(note.begin(), note.end());
  const Digest seal = seal_of(digest, note);
  entry.insert(entry.end(), seal.begin(), seal.end());
  keep_as(to_hex(digest) + std::string(kind), entry);
}

void CodeStore::keep_as(const std::string& name, Bytes bytes) {
  const Status kept = folder_.keep(name, bytes);
  // Where others are at the folder the next client has it kept.
  if (kept || kept.error().code == ErrorCode::kTimeout) return;
  const bool large = kept.error().code == ErrorCode::kLimit;
  complain("code is not stored",
           large ? std::to_string(bytes.size()) + " bytes are more than --module-cache-bytes allows"
                 : kept.error().message);
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
