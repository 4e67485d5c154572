#include "base/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/clock.h"

namespace flyt {
namespace {

constexpr mode_t kFolderMode = 0700;
constexpr mode_t kEntryMode = 0600;
constexpr char kLockName[] = ".lock";
constexpr std::string_view kNewPrefix = ".new-";
// Whoever holds the lock works at a folder; nobody waits long for it.
constexpr int kLockTries = 100;
constexpr Duration kLockPause = std::chrono::milliseconds(2);

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

std::uint64_t counted(std::uint64_t bytes) { return std::max(bytes, CacheFolder::kEntryBytesMin); }

}  // namespace

bool older(const FolderEntry& a, const FolderEntry& b) {
  if (a.used.tv_sec != b.used.tv_sec) return a.used.tv_sec < b.used.tv_sec;
  return a.used.tv_nsec < b.used.tv_nsec;
}

std::vector<FolderEntry> entries_of(int folder) {
  std::vector<FolderEntry> entries;
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

Result<Fd> open_own_folder(int at, const std::string& path) {
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

Fd CacheFolder::open(const std::string& name, std::uint64_t* bytes) const {
  // A pipe that somebody put there keeps nobody waiting.
  Fd file(::openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  *bytes = static_cast<std::uint64_t>(status.st_size);
  ::futimens(file.get(), nullptr);
  return file;
}

Status CacheFolder::keep(const std::string& name, Bytes bytes) const {
  if (counted(bytes.size()) > bytes_max_) return Error{ErrorCode::kLimit, name + " is too large"};
  const Fd held = lock();
  if (!held.valid()) return Error{ErrorCode::kTimeout, "others are at the folder"};
  if (const int failure = make_room(bytes_max_ - counted(bytes.size())); failure != 0) {
    return system_error("making room", failure);
  }
  int failure = write(name, bytes);
  if (failure == ENOSPC || failure == EDQUOT) {
    // The disk has less room than the folder may have: what is here already makes room on it.
    const std::uint64_t there = bytes_there();
    struct statvfs disk {};
    const bool helps = ::fstatvfs(folder_.get(), &disk) == 0 &&
                       disk.f_bavail * disk.f_frsize + there >= counted(bytes.size());
    if (helps && make_room(there - std::min(there, counted(bytes.size()))) == 0) {
      failure = write(name, bytes);
    }
  }
  return failure == 0 ? Status() : system_error("writing " + name, failure);
}

void CacheFolder::remove(const std::string& name) const {
  ::unlinkat(folder_.get(), name.c_str(), 0);
}

// An open file that is the lock as long as it is open; none if others hold it too long.
Fd CacheFolder::lock() const {
  Fd file(
      ::openat(folder_.get(), kLockName, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kEntryMode));
  for (int i = 0; file.valid() && i < kLockTries; ++i) {
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
    system_clock().sleep_for(kLockPause);
  }
  return {};
}

std::uint64_t CacheFolder::bytes_there() const {
  std::uint64_t total = 0;
  for (const FolderEntry& entry : entries_of(folder_.get())) {
    if (!entry.name.starts_with('.')) total += counted(entry.bytes);
  }
  return total;
}

// Removes what was used longest ago until no more than `bytes` are left and one entry more may be
// there, and what a crash left over. 0, or an errno.
int CacheFolder::make_room(std::uint64_t bytes) const {
  std::vector<FolderEntry> entries = entries_of(folder_.get());
  std::sort(entries.begin(), entries.end(), older);
  std::uint64_t total = 0;
  std::size_t count = 1;
  for (const FolderEntry& entry : entries) {
    if (entry.name.starts_with('.')) continue;
    total += counted(entry.bytes);
    ++count;
  }
  int failure = 0;
  for (const FolderEntry& entry : entries) {
    const bool left_over = entry.name.starts_with(kNewPrefix);
    const bool too_many = total > bytes || count > kEntriesMax;
    if (!left_over && (entry.name.starts_with('.') || !too_many)) continue;
    // What cannot be removed, such as a folder that somebody made here, keeps its place.
    if (::unlinkat(folder_.get(), entry.name.c_str(), 0) != 0 && errno != ENOENT) {
      failure = errno;
      continue;
    }
    if (left_over) continue;
    total -= counted(entry.bytes);
    --count;
  }
  if (total <= bytes && count <= kEntriesMax) return 0;
  return failure == 0 ? ENOSPC : failure;
}

// 0, or an errno.
int CacheFolder::write(const std::string& name, Bytes bytes) const {
  const std::string fresh = std::string(kNewPrefix) + std::to_string(::getpid());
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  const Fd file(::openat(folder_.get(), fresh.c_str(), flags, kEntryMode));
  if (!file.valid()) return errno;
  if (write_all(file.get(), bytes) &&
      ::renameat(folder_.get(), fresh.c_str(), folder_.get(), name.c_str()) == 0) {
    return 0;
  }
  const int failure = errno;
  ::unlinkat(folder_.get(), fresh.c_str(), 0);
  return failure;
}

}  // namespace flyt
