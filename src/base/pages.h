// Pages: zeroed memory of the system's, whole pages, given back at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "base/bytes.h"

namespace flyt {

// Costs address space only until it is written. Belongs to one owner.
class Pages {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;
  // What the pages have that `bytes` need: less than `bytes` where that is beyond 64 bits.
  static constexpr std::uint64_t whole(std::uint64_t bytes) {
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }

  // Empty where the system refuses.
  static Pages make(std::uint64_t bytes);
  Pages() = default;
  Pages(Pages&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Pages();

  explicit operator bool() const { return !bytes_.empty(); }
  std::byte* data() const { return bytes_.data(); }

 private:
  explicit Pages(MutableBytes bytes) : bytes_(bytes) {}

  MutableBytes bytes_;
};

// Whole pages where the caller wants them, under ranges of bytes that may share their first and
// last pages. Belongs to one owner, whose lock guards it; what is mapped stays when it ends.
class FixedPages {
 public:
  // Zeroed memory under [address, address + bytes), or what `file` holds from `offset` on; false if
  // something else lies there, or there is no such range.
  bool map(std::uint64_t address, std::uint64_t bytes, int file = -1, std::uint64_t offset = 0);
  // What map() was given. `keep`: nothing else comes to lie there but what map() puts there again,
  // and who reads or writes there meanwhile faults.
  void unmap(std::uint64_t address, std::uint64_t bytes, bool keep = false);
  // Whether something there was let go to be kept, whatever map() has put there since.
  bool keeps(std::uint64_t address, std::uint64_t bytes) const;
  // How many ranges are kept, with nothing on them; those that touch are one.
  std::size_t kept() const { return kept_.size(); }

 private:
  struct Edge {
    std::uint32_t ranges = 0;  // That have it.
    bool kept = false;         // One that had it was to be kept.
  };
  enum class LetGo : std::uint8_t { kStays, kGoes, kIsKept };

  struct Source {
    int file = -1;
    std::uint64_t offset = 0;  // Of `address`.
    std::uint64_t address = 0;
  };

  LetGo let_go(std::uint64_t page, bool keep);
  void let_go_of(std::uint64_t begin, std::uint64_t end, bool keep);
  // Whole pages; into what is kept, or where nothing is.
  static bool put(std::uint64_t begin, std::uint64_t end, const Source& source, bool into_kept);
  bool put_around_kept(std::uint64_t begin, std::uint64_t end, const Source& source);
  void note_kept(std::uint64_t begin, std::uint64_t end);
  void forget_kept(std::uint64_t begin, std::uint64_t end);

  std::map<std::uint64_t, Edge> edges_;          // First and last pages.
  std::map<std::uint64_t, std::uint64_t> kept_;  // Begins and ends of pages; no two touch.
};

}  // namespace flyt
