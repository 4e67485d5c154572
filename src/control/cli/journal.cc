#include "control/cli/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/sha256.h"

namespace flyt::cli {
namespace {

constexpr std::size_t kFileBytesMax = 256 * kMiB;
// Those of the journal itself: noted first.
constexpr std::array kOwnFolders = {"/var", "/var/lib", "/var/lib/flyt-install"};

Result<std::string> contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.str().size() > kFileBytesMax) {
    return system_error("cannot read " + path, file ? EFBIG : errno);
  }
  return text.str();
}

std::string digest_of(std::string_view text) { return to_hex(sha256(bytes_of(text))); }

void sync_folder_of(const std::string& path) {
  const Fd folder(::open(path.substr(0, path.rfind('/') + 1).c_str(), O_RDONLY | O_CLOEXEC));
  if (folder.valid()) ::fsync(folder.get());
}

}  // namespace

Status write_whole_file(const std::string& path, std::string_view text, unsigned mode) {
  const std::string next = path + ".flyt-next";
  const Fd file(::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return system_error("cannot write " + next, errno);
  while (!text.empty()) {
    const ssize_t wrote = ::write(file.get(), text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      const int error = errno;
      ::unlink(next.c_str());
      return system_error("cannot write " + next, error);
    }
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  if (::fchmod(file.get(), mode) != 0 || ::fsync(file.get()) != 0 ||
      std::rename(next.c_str(), path.c_str()) != 0) {
    return system_error("cannot write " + path, errno);
  }
  sync_folder_of(path);
  return {};
}

Journal::Journal(std::string root, const std::vector<std::string>& paths)
    : root_(std::move(root)),
      folder_(root_ + kOwnFolders.back()),
      paths_(kOwnFolders.begin(), kOwnFolders.end()) {
  paths_.insert(paths_.end(), paths.begin(), paths.end());
}

bool Journal::exists() const { return ::access((folder_ + "/before").c_str(), F_OK) == 0; }

Result<Journal::Entry> Journal::look_at(const std::string& path) const {
  Entry entry{.path = path};
  struct stat file {};
  const std::string where = root_ + path;
  if (::lstat(where.c_str(), &file) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return entry;
    return system_error("cannot look at " + where, errno);
  }
  entry.mode = file.st_mode & 07777;
  entry.owner = file.st_uid;
  entry.group = file.st_gid;
  entry.seconds = file.st_mtim.tv_sec;
  entry.nanoseconds = file.st_mtim.tv_nsec;
  if (S_ISDIR(file.st_mode)) {
    entry.kind = Entry::Kind::kFolder;
    return entry;
  }
  if (!S_ISREG(file.st_mode)) {
    return Error{ErrorCode::kInvalid, where + " is neither a file nor a folder"};
  }
  entry.kind = Entry::Kind::kFile;
  const auto text = contents(where);
  if (!text) return text.error();
  entry.digest = digest_of(*text);
  return entry;
}

Status Journal::write_index(const std::string& name, const std::vector<Entry>& entries) const {
  std::ostringstream text;
  for (const Entry& one : entries) {
    text << static_cast<char>(one.kind) << ' ' << one.mode << ' ' << one.owner << ' ' << one.group
         << ' ' << one.seconds << ' ' << one.nanoseconds << ' '
         << (one.digest.empty() ? "-" : one.digest) << ' ' << one.path << '\n';
  }
  text << "end\n";
  return write_whole_file(folder_ + "/" + name, text.str(), 0600);
}

Result<std::vector<Journal::Entry>> Journal::read_index(const std::string& name) const {
  const auto text = contents(folder_ + "/" + name);
  if (!text) return text.error();
  std::istringstream lines(*text);
  std::vector<Entry> entries;
  std::string line;
  while (std::getline(lines, line)) {
    if (line == "end") return entries;
    std::istringstream fields(line);
    Entry one;
    char kind = 0;
    fields >> kind >> one.mode >> one.owner >> one.group >> one.seconds >> one.nanoseconds >>
        one.digest >> one.path;
    const bool ours = std::find(paths_.begin(), paths_.end(), one.path) != paths_.end();
    if (!fields || !ours || (kind != '-' && kind != 'd' && kind != 'f')) break;
    one.kind = static_cast<Entry::Kind>(kind);
    if (one.digest == "-") one.digest.clear();
    entries.push_back(std::move(one));
  }
  return Error{ErrorCode::kInvalid, folder_ + "/" + name + " is damaged; nothing was changed"};
}

Status Journal::begin() {
  std::vector<Entry> entries;
  for (const std::string& path : paths_) {
    auto entry = look_at(path);
    if (!entry) return entry.error();
    entries.push_back(std::move(*entry));
  }
  for (const char* folder : kOwnFolders) {
    const std::string where = root_ + folder;
    if (::mkdir(where.c_str(), 0755) != 0 && errno != EEXIST) {
      return system_error("cannot make " + where, errno);
    }
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].kind != Entry::Kind::kFile) continue;
    const auto text = contents(root_ + entries[i].path);
    if (!text) return text.error();
    entries[i].digest = digest_of(*text);
    if (Status status = write_whole_file(copy_of(i), *text, 0600); !status) return status;
  }
  return write_index("before", entries);
}

Status Journal::finish() {
  const auto before = read_index("before");
  if (!before) return before.error();
  std::vector<Entry> after;
  for (const Entry& one : *before) {
    auto entry = look_at(one.path);
    if (!entry) return entry.error();
    after.push_back(std::move(*entry));
  }
  return write_index("after", after);
}

Status Journal::put_back(const Entry& entry, std::size_t number) const {
  const std::string where = root_ + entry.path;
  if (entry.kind == Entry::Kind::kAbsent) {
    struct stat file {};
    if (::lstat(where.c_str(), &file) != 0) return {};
    if (S_ISDIR(file.st_mode)) {
      // Somebody may have put something into it.
      if (::rmdir(where.c_str()) != 0 && errno != ENOTEMPTY) {
        return system_error("cannot remove " + where, errno);
      }
      return {};
    }
    if (::unlink(where.c_str()) != 0) return system_error("cannot remove " + where, errno);
    return {};
  }
  if (entry.kind == Entry::Kind::kFile) {
    const auto now = look_at(entry.path);
    if (!now) return now.error();
    if (now->digest != entry.digest) {
      const auto text = contents(copy_of(number));
      if (!text) return text.error();
      if (digest_of(*text) != entry.digest) {
        return Error{ErrorCode::kInvalid, copy_of(number) + " is damaged"};
      }
      if (Status status = write_whole_file(where, *text, entry.mode); !status) return status;
    }
  }
  if (::lchown(where.c_str(), entry.owner, entry.group) != 0 ||
      ::chmod(where.c_str(), entry.mode) != 0) {
    return system_error("cannot put back " + where, errno);
  }
  const timespec times[2] = {{0, UTIME_OMIT}, {entry.seconds, entry.nanoseconds}};
  if (::utimensat(AT_FDCWD, where.c_str(), times, 0) != 0) {
    return system_error("cannot put back the time of " + where, errno);
  }
  return {};
}

Result<std::vector<std::string>> Journal::undo() {
  const auto before = read_index("before");
  if (!before) return before.error();
  std::vector<Entry> after;
  if (::access((folder_ + "/after").c_str(), F_OK) == 0) {
    auto read = read_index("after");
    if (!read) return read.error();
    after = std::move(*read);
  }
  std::vector<std::string> changed;
  // What is in a folder goes before the folder.
  for (std::size_t i = before->size(); i-- > 0;) {
    const Entry& was = (*before)[i];
    if (i < after.size() && was.kind != Entry::Kind::kFolder) {
      const auto now = look_at(was.path);
      if (!now) return now.error();
      const bool ours = now->kind == after[i].kind && now->digest == after[i].digest;
      const bool gone_already = now->kind == was.kind && now->digest == was.digest;
      if (!ours && !gone_already) {
        changed.push_back(was.path);
        continue;
      }
    }
    if (Status status = put_back(was, i); !status) return status.error();
  }
  return changed;
}

Status Journal::forget() {
  const auto before = read_index("before");
  if (!before) return before.error();
  for (std::size_t i = 0; i < before->size(); ++i) ::unlink(copy_of(i).c_str());
  ::unlink((folder_ + "/after").c_str());
  if (::unlink((folder_ + "/before").c_str()) != 0) {
    return system_error("cannot remove " + folder_ + "/before", errno);
  }
  for (std::size_t i = std::min(kOwnFolders.size(), before->size()); i-- > 0;) {
    if (Status status = put_back((*before)[i], i); !status) return status;
  }
  return {};
}

}  // namespace flyt::cli
