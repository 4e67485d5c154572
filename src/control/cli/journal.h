// Journal: what files were before they are changed, so that they can be put back exactly.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace flyt::cli {

// Replaces the file as a whole, durably.
Status write_whole_file(const std::string& path, std::string_view contents, unsigned mode);

// A folder below the root, which only root can write to: an index, and a copy of each file that
// there was. Written before anything is changed. Paths other than those that it is made for are
// never touched, whatever the index says. One process at a time.
class Journal {
 public:
  // `paths` below the root, folders before what is in them.
  Journal(std::string root, const std::vector<std::string>& paths);

  const std::string& path() const { return folder_; }
  bool exists() const;

  // Remembers how these are: absent, a folder, or a file with its bytes, owner, mode and time.
  Status begin();
  // Remembers how they are by now, so that what others change can be told from what we did.
  Status finish();
  // Puts everything back that is as finish() saw it; folders that are new go if they are empty.
  // What is different by now is left alone and returned. After an end before finish() everything
  // is put back.
  Result<std::vector<std::string>> undo();
  // Removes the journal, and the folders that were made for it.
  Status forget();

 private:
  struct Entry {
    enum class Kind : char { kAbsent = '-', kFolder = 'd', kFile = 'f' };
    std::string path;
    Kind kind = Kind::kAbsent;
    unsigned mode = 0;
    std::uint32_t owner = 0;
    std::uint32_t group = 0;
    std::int64_t seconds = 0;
    std::int64_t nanoseconds = 0;
    std::string digest;  // Of a file's bytes.
  };

  Result<Entry> look_at(const std::string& path) const;
  std::string copy_of(std::size_t number) const {
    return folder_ + "/before-" + std::to_string(number);
  }
  Status write_index(const std::string& name, const std::vector<Entry>& entries) const;
  Result<std::vector<Entry>> read_index(const std::string& name) const;
  Status put_back(const Entry& entry, std::size_t number) const;

  const std::string root_;
  const std::string folder_;
  std::vector<std::string> paths_;
};

}  // namespace flyt::cli
