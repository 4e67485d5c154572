// Snapshot: what the variables of a session's code held when all its work was done, where it can be
// read when the session's process was killed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/sha256.h"

namespace flyt::server {

// A variable in one context.
struct SavedVariable {
  std::uint64_t owner = 0;  // Handle of its module, or of its library.
  bool of_library = false;
  bool told = false;          // The program knows the address.
  std::uint32_t context = 0;  // Handle index.
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::string name;
  // Of what it held when its code was loaded; zeroes: nobody has looked.
  Digest loaded{};
};

// Two halves of a file, of which one is whole at any time and the other one is for the next
// snapshot. Belongs to one thread at a time.
class Snapshot {
 public:
  static constexpr std::uint64_t kContentsBytesMax = 64 * kMiB;  // Of all variables together.
  static constexpr std::uint64_t kDirectoryBytesMax = 8 * kMiB;
  static constexpr std::size_t kNameBytesMax = 65536;
  static constexpr std::uint64_t kHalfBytes = kDirectoryBytesMax + kContentsBytesMax;
  static constexpr std::uint64_t kBytes = 2 * kHalfBytes;

  // `file`, from `offset` on; it stays the caller's.
  Snapshot(const Fd& file, std::uint64_t offset) : file_(file), offset_(offset) {}
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Names the variables in a half (0 or 1); returns where what they hold belongs, one after the
  // other. kLimit: there are more than fit.
  Result<MutableBytes> begin(std::uint32_t half, const std::vector<SavedVariable>& variables);

  struct Read {
    std::vector<SavedVariable> variables;
    std::vector<std::byte> contents;  // One after the other.
  };
  // None of the bytes is trusted.
  static Result<Read> read(const Fd& file, std::uint64_t offset, std::uint32_t half);

 private:
  const Fd& file_;
  const std::uint64_t offset_;
  std::byte* mapped_ = nullptr;
};

}  // namespace flyt::server
