// CacheFolder: named entries on disk of which those that were used longest ago make room for new
// ones.
//
//   FOLDER/NAME       an entry
//   FOLDER/.lock      held by whoever adds or removes
//   FOLDER/.new-*     on its way; left over ones are removed under the lock
//
// Nothing is synced, and a crash may leave an entry cut off: whoever reads one checks what it is.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/result.h"

namespace flyt {

struct FolderEntry {
  std::string name;
  std::uint64_t bytes = 0;
  timespec used{};
};
// Whether `a` was used before `b`.
bool older(const FolderEntry& a, const FolderEntry& b);
// What is in a folder, without "." and "..".
std::vector<FolderEntry> entries_of(int folder);

// A folder that is ours alone to write to: made with mode 0700 if it is missing, refused if it
// belongs to somebody else or if others may write to it. `at`: as for openat.
Result<Fd> open_own_folder(int at, const std::string& path);

bool read_all(int file, MutableBytes into);
bool write_all(int file, Bytes from);

// Safe from any thread, and from any number of processes.
class CacheFolder {
 public:
  static constexpr std::size_t kEntriesMax = 16384;
  // What an entry counts at least.
  static constexpr std::uint64_t kEntryBytesMin = 4096;

  // `folder`: of open_own_folder.
  CacheFolder(Fd folder, std::uint64_t bytes_max)
      : folder_(std::move(folder)), bytes_max_(bytes_max) {}

  // An entry to read from, with its size; invalid if there is none. It counts as used now.
  Fd open(const std::string& name, std::uint64_t* bytes) const;
  // Puts an entry in place of what was used longest ago, also where the disk is full. Names begin
  // with no dot. kLimit: it does not fit at all; kTimeout: others are at the folder; kSystem.
  Status keep(const std::string& name, Bytes bytes) const;
  void remove(const std::string& name) const;

 private:
  Fd lock() const;
  std::uint64_t bytes_there() const;
  int make_room(std::uint64_t bytes) const;
  int write(const std::string& name, Bytes bytes) const;

  const Fd folder_;
  const std::uint64_t bytes_max_;
};

}  // namespace flyt
