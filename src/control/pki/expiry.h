// Expiry: tells in time that a daemon's own certificates end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace flyt::pki {

class Expiry {
 public:
  // As they are read now, since that is what a daemon uses until its end. Empty paths, and files
  // that cannot be read, are left out: whoever needs them says so.
  explicit Expiry(const std::vector<std::string>& paths);

  // Of those that end within two weeks of `now`, seconds since 1970, what to say.
  std::vector<std::string> problems(std::int64_t now) const;

 private:
  struct End {
    std::string path;
    std::int64_t at = 0;
  };
  std::vector<End> ends_;
};

}  // namespace flyt::pki
