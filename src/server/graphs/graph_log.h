// GraphLog: what a session's graphs are, where it can be read when its process was killed.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/result.h"

namespace flyt::server {

// Two halves of a file. Entries are added to one until much of it is out of date; then those that
// are not go to the other one. A word says how far it goes: until that is told, what was there
// before stands. Belongs to one thread at a time.
class GraphLog {
 public:
  static constexpr std::uint64_t kLiveBytesMax = 64 * kMiB;  // Of all graphs together.
  static constexpr std::uint64_t kHalfBytes = 2 * kLiveBytesMax;
  static constexpr std::uint64_t kBytes = 2 * kHalfBytes;

  enum class Kind : std::uint32_t { kGraph = 1, kExec = 2 };
  using Key = std::pair<Kind, std::uint64_t>;  // And the client's name.

  // `file`, from `offset` on; it stays the caller's, and takes memory only where it is written.
  GraphLog(const Fd& file, std::uint64_t offset) : file_(file), offset_(offset) {}
  ~GraphLog();
  GraphLog(const GraphLog&) = delete;
  GraphLog& operator=(const GraphLog&) = delete;

  // Before the first change that is to be told together with those that follow.
  Status begin();
  // In place of what was there under that name. kLimit: more than fits, and nothing is there.
  Status put(Key key, Bytes content);
  void drop(Key key);
  bool holds(const Key& key) const { return live_.contains(key); }
  // The word; once it has been told, finish().
  std::uint64_t standing() const;
  void finish();

  // What is there, in no order; until the next change.
  std::vector<Bytes> contents() const;

  struct Entry {
    Key key;
    std::vector<std::byte> content;
  };
  // None of the bytes is trusted.
  static Result<std::vector<Entry>> read(const Fd& file, std::uint64_t offset,
                                         std::uint64_t standing);

 private:
  struct Place {
    std::uint64_t offset = 0;  // Of the content, in the half.
    std::uint64_t bytes = 0;
  };

  MutableBytes half() const { return {mapped_ + half_ * kHalfBytes, kHalfBytes}; }
  void write(Key key, std::uint32_t gone, Bytes content);
  void compact();

  const Fd& file_;
  const std::uint64_t offset_;
  std::byte* mapped_ = nullptr;
  std::uint64_t half_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t live_bytes_ = 0;
  bool other_is_left_ = false;  // The other half was in use before.
  std::map<Key, Place> live_;
};

}  // namespace flyt::server
