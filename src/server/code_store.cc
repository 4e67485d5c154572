#include "server/code_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
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

constexpr mode_t kFolderMode = 0700;
constexpr std::size_t kTenantNameBytesMax = 100;
constexpr char kLockName[] = ".lock";
constexpr std::string_view kNewPrefix = ".new-";
// Whoever holds the lock works at a folder; nobody waits long for it.
constexpr int kLockTries = 100;
constexpr Duration kLockPause = std::chrono::milliseconds(2);

struct Entry {
  std::string name;
  std::uint64_t bytes = 0;
  timespec used{};
};

bool older(const Entry& a, const Entry& b) {
  if (a.used.tv_sec != b.used.tv_sec) return a.used.tv_sec < b.used.tv_sec;
  return a.used.tv_nsec < b.used.tv_nsec;
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// What is in a folder, without "." and "..".
std::vector<Entry> entries_of(int folder) {
  std::vector<Entry> entries;
  Fd copy(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, CloseFolder> listing(copy.valid() ? ::fdopendir(copy.get()) : nullptr);
  if (listing == nullptr) return entries;
  copy.release();  // The listing closes it.
  while (const dirent* found = ::readdir(listing.get())) {
    const std::string_view name = found->d_name;
    struct stat status {};
    if (name == "." || name == ".." ||
        ::fstatat(folder, found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    entries.push_back(
        {std::string(name), static_cast<std::uint64_t>(status.st_size), status.st_mtim});
  }
  return entries;
}

bool good_name(std::string_view tenant) {
  if (tenant.empty() || tenant.size() > kTenantNameBytesMax || tenant.front() == '.') return false;
  return std::all_of(tenant.begin(), tenant.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

// A folder that is ours alone to write to.
Result<Fd> open_folder(int at, const std::string& path) {
  if (::mkdirat(at, path.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    return system_error("making " + path, errno);
  }
  Fd folder(::openat(at, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!folder.valid() || ::fstat(folder.get(), &status) != 0) {
    return system_error("opening " + path, errno);
  }
  if (status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Error{ErrorCode::kDenied, path + " belongs to somebody else, or others may write to it"};
  }
  return folder;
}

void remove_tenant(int folder, const std::string& name) {
  const Fd tenant(::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!tenant.valid()) return;
  for (const Entry& entry : entries_of(tenant.get())) {
    ::unlinkat(tenant.get(), entry.name.c_str(), 0);
  }
  ::unlinkat(folder, name.c_str(), AT_REMOVEDIR);
}

void make_room_for_tenant(int folder, const std::string& tenant) {
  std::vector<Entry> tenants = entries_of(folder);
  const auto known = [&](const Entry& entry) { return entry.name == tenant; };
  if (std::any_of(tenants.begin(), tenants.end(), known)) return;
  std::sort(tenants.begin(), tenants.end(), older);
  for (std::size_t i = 0; tenants.size() - i >= CodeStore::kTenantsMax; ++i) {
    remove_tenant(folder, tenants[i].name);
  }
}

bool read_all(int file, MutableBytes into) {
  while (!into.empty()) {
    const ssize_t got = ::read(file, into.data(), into.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    into = into.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

bool write_all(int file, Bytes from) {
  while (!from.empty()) {
    const ssize_t put = ::write(file, from.data(), from.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    from = from.subspan(static_cast<std::size_t>(put));
  }
  return true;
}

// An entry of facts: they, and a hash of the code's hash and them.
constexpr std::size_t kLoadedBytesAt = 0;
constexpr std::size_t kFlagsAt = 8;
constexpr std::byte kMayPrint{1};
constexpr std::byte kMayRemember{2};
constexpr std::byte kWithFlags{4};  // Entries without it tell less, and are made anew.
constexpr std::size_t kFactsHashAt = 9;
using FactsEntry = std::array<std::byte, kFactsHashAt + sizeof(Digest)>;

FactsEntry facts_entry(const Digest& digest, const cuda::CodeFacts& facts) {
  FactsEntry entry{};
  std::memcpy(entry.data() + kLoadedBytesAt, &facts.loaded_bytes, sizeof facts.loaded_bytes);
  entry[kFlagsAt] = kWithFlags | (facts.may_print ? kMayPrint : std::byte{0}) |
                    (facts.may_remember ? kMayRemember : std::byte{0});
  std::array<std::byte, sizeof(Digest) + kFactsHashAt> hashed{};
  std::memcpy(hashed.data(), digest.data(), sizeof digest);
  std::memcpy(hashed.data() + sizeof digest, entry.data(), kFactsHashAt);
  const Digest hash = sha256(hashed);
  std::memcpy(entry.data() + kFactsHashAt, hash.data(), sizeof hash);
  return entry;
}

std::string facts_name(const Digest& digest) { return to_hex(digest) + ".facts"; }

std::uint64_t counted(std::uint64_t bytes) { return std::max(bytes, CodeStore::kEntryBytesMin); }

}  // namespace

Result<std::unique_ptr<CodeStore>> CodeStore::open(const CodeStoreOptions& options,
                                                   std::string_view tenant, const Log& log) {
  const std::string name(tenant);
  if (!good_name(name)) return Error{ErrorCode::kInvalid, "the peer has no name"};
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(options.folder).parent_path(), ignored);
  auto folder = open_folder(AT_FDCWD, options.folder);
  if (!folder) return std::move(folder).error();
  make_room_for_tenant(folder->get(), name);
  auto own = open_folder(folder->get(), name);
  if (!own) return std::move(own).error();
  // The time of the folder is when its tenant last came.
  ::futimens(own->get(), nullptr);
  return std::unique_ptr<CodeStore>(new CodeStore(std::move(*own), options.bytes_max, log));
}

std::optional<std::vector<std::byte>> CodeStore::find(const Digest& digest, std::uint64_t size) {
  const std::string name = to_hex(digest);
  const Fd file(::openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return std::nullopt;
  // Perhaps it is cut off, perhaps the client is wrong: whoever sends the code puts it right.
  if (!S_ISREG(status.st_mode) || static_cast<std::uint64_t>(status.st_size) != size) {
    return std::nullopt;
  }
  std::vector<std::byte> code(static_cast<std::size_t>(size) + 1);
  const MutableBytes bytes = MutableBytes(code).first(code.size() - 1);
  if (!read_all(file.get(), bytes) || sha256(bytes) != digest) {
    ::unlinkat(folder_.get(), name.c_str(), 0);
    complain("stored code is damaged, and dropped", name);
    return std::nullopt;
  }
  ::futimens(file.get(), nullptr);
  return code;
}

void CodeStore::keep(const Digest& digest, Bytes code) { keep_as(to_hex(digest), code); }

std::optional<cuda::CodeFacts> CodeStore::find_facts(const Digest& digest) {
  const std::string name = facts_name(digest);
  const Fd file(::openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  FactsEntry found;
  if (!file.valid() || !read_all(file.get(), MutableBytes(found))) return std::nullopt;
  std::uint64_t loaded_bytes = 0;
  std::memcpy(&loaded_bytes, found.data() + kLoadedBytesAt, sizeof loaded_bytes);
  const cuda::CodeFacts facts{loaded_bytes, (found[kFlagsAt] & kMayPrint) != std::byte{0},
                              (found[kFlagsAt] & kMayRemember) != std::byte{0}};
  if (facts_entry(digest, facts) != found) {
    ::unlinkat(folder_.get(), name.c_str(), 0);
    complain("what was seen in code is damaged, and dropped", name);
    return std::nullopt;
  }
  ::futimens(file.get(), nullptr);
  return facts;
}

void CodeStore::keep_facts(const Digest& digest, const cuda::CodeFacts& facts) {
  keep_as(facts_name(digest), facts_entry(digest, facts));
}

void CodeStore::keep_as(const std::string& name, Bytes bytes) {
  if (counted(bytes.size()) > bytes_max_) return;
  const Fd held = lock();
  if (!held.valid() || !make_room(counted(bytes.size()))) return;
  if (!write(name, bytes)) complain("code is not stored", std::strerror(errno));
}

// An open file that is the lock as long as it is open; none if others hold it too long.
Fd CodeStore::lock() const {
  Fd file(::openat(folder_.get(), kLockName, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  for (int i = 0; file.valid() && i < kLockTries; ++i) {
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
    system_clock().sleep_for(kLockPause);
  }
  return {};
}

// Removes what was used longest ago until so many bytes more fit, and what a crash left over.
bool CodeStore::make_room(std::uint64_t bytes) const {
  std::vector<Entry> entries = entries_of(folder_.get());
  std::sort(entries.begin(), entries.end(), older);
  std::uint64_t total = bytes;
  std::size_t count = 1;
  for (const Entry& entry : entries) {
    if (entry.name.starts_with('.')) continue;
    total += counted(entry.bytes);
    ++count;
  }
  for (const Entry& entry : entries) {
    const bool left_over = entry.name.starts_with(kNewPrefix);
    const bool too_many = total > bytes_max_ || count > kEntriesMax;
    if (!left_over && (entry.name.starts_with('.') || !too_many)) continue;
    if (::unlinkat(folder_.get(), entry.name.c_str(), 0) != 0 && errno != ENOENT) return false;
    if (left_over) continue;
    total -= counted(entry.bytes);
    --count;
  }
  return total <= bytes_max_;
}

bool CodeStore::write(const std::string& name, Bytes code) {
  const std::string fresh = std::string(kNewPrefix) + std::to_string(::getpid());
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  Fd file(::openat(folder_.get(), fresh.c_str(), flags, 0600));
  if (!file.valid()) return false;
  if (write_all(file.get(), code) &&
      ::renameat(folder_.get(), fresh.c_str(), folder_.get(), name.c_str()) == 0) {
    return true;
  }
  const int failure = errno;
  ::unlinkat(folder_.get(), fresh.c_str(), 0);
  errno = failure;
  return false;
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
