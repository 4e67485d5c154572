#include "base/mappings.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/pages.h"

namespace flyt {
namespace {

struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool readable = false;
  bool writable = false;
};

// What Linux from 6.11 on answers on a file of mappings, one mapping at a time, however many there
// are: PROCMAP_QUERY in its Documentation/filesystems/proc.rst. The headers of older ones lack it.
struct MappingQuery {
  std::uint64_t size = sizeof(MappingQuery);
  std::uint64_t flags = 0;  // None: the mapping that holds the address.
  std::uint64_t address = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t protection = 0;
  // Of the file behind it, and the places for names: not asked for.
  std::array<std::uint64_t, 7> others{};
};
static_assert(sizeof(MappingQuery) == 104);
constexpr unsigned long kMappingQuery = _IOWR('f', 17, MappingQuery);
constexpr std::uint64_t kReadable = 1;
constexpr std::uint64_t kWritable = 2;

// The mapping that holds an address; one without bytes if there is none. Nothing if the system
// does not answer such questions.
std::optional<Mapping> ask(int file, std::uint64_t address) {
  MappingQuery query;
  query.address = address;
  if (::ioctl(file, kMappingQuery, &query) != 0) {
    return errno == ENOENT ? std::optional(Mapping{}) : std::nullopt;
  }
  return Mapping{.begin = query.begin,
                 .end = query.end,
                 .readable = (query.protection & kReadable) != 0,
                 .writable = (query.protection & kWritable) != 0};
}

// A line is "begin-end rwxp ...", with numbers in hexadecimal.
std::optional<Mapping> parse(std::string_view line) {
  Mapping mapping;
  const char* last = line.data() + line.size();
  const auto begin = std::from_chars(line.data(), last, mapping.begin, 16);
  if (begin.ec != std::errc() || begin.ptr == last) return std::nullopt;
  const auto end = std::from_chars(begin.ptr + 1, last, mapping.end, 16);
  if (end.ec != std::errc() || last - end.ptr < 3) return std::nullopt;
  mapping.readable = end.ptr[1] == 'r';
  mapping.writable = end.ptr[2] == 'w';
  return mapping;
}

// The lines of a file in order, those that are longer than the buffer cut.
class Lines {
 public:
  explicit Lines(int file) : file_(file) {}

  std::optional<std::string_view> next() {
    for (bool cut = false;;) {
      const std::size_t size = end_ - begin_;
      const char* at = buffer_.data() + begin_;
      if (const void* found = std::memchr(at, '\n', size)) {
        const auto length = static_cast<std::size_t>(static_cast<const char*>(found) - at);
        begin_ += length + 1;
        if (!std::exchange(cut, false)) return std::string_view(at, length);
        continue;
      }
      cut = cut || (begin_ == 0 && end_ == buffer_.size());
      if (cut) begin_ = end_;
      if (!fill()) return std::nullopt;
    }
  }

 private:
  bool fill() {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    ssize_t got = 0;
    do {
      got = ::read(file_, buffer_.data() + end_, buffer_.size() - end_);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) return false;
    end_ += static_cast<std::size_t>(got);
    return true;
  }

  int file_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::array<char, 16384> buffer_;
};

// Whether every page is there; tells nothing of their protection.
bool all_there(std::uint64_t first, std::uint64_t last) {
  std::array<unsigned char, 1024> residency;
  const std::uint64_t step = residency.size() * Pages::kPageBytes;
  for (std::uint64_t at = first; at <= last; at += step) {
    const std::uint64_t size = std::min(step, last - at + 1);
    if (::mincore(pointer_at(at), size, residency.data()) != 0) return false;
    if (at + step < at) break;
  }
  return true;
}

// The pages that hold the bytes, as first and last address; nothing if they are not all there.
std::optional<std::pair<std::uint64_t, std::uint64_t>> pages_there(std::uint64_t address,
                                                                   std::uint64_t bytes) {
  std::uint64_t last = 0;
  if (bytes == 0 || __builtin_add_overflow(address, bytes - 1, &last)) return std::nullopt;
  const std::uint64_t first = address / Pages::kPageBytes * Pages::kPageBytes;
  if (!all_there(first, last)) return std::nullopt;
  return std::pair(first, last);
}

bool allows(const Mapping& mapping, PageUse use) {
  return use == PageUse::kWrite ? mapping.writable : mapping.readable;
}

// Where nobody tells the protection, it is taken to be good.
Fd open_mappings() { return Fd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)); }

// By the list of all mappings.
bool list_allows(int file, std::uint64_t at, std::uint64_t last, PageUse use) {
  Lines lines(file);
  while (const auto line = lines.next()) {
    const auto mapping = parse(*line);
    if (!mapping || mapping->end <= at) continue;
    if (mapping->begin > at || !allows(*mapping, use)) return false;
    if (mapping->end > last) return true;
    at = mapping->end;
  }
  return false;
}

}  // namespace

bool pages_allow(std::uint64_t address, std::uint64_t bytes, PageUse use) {
  const auto pages = pages_there(address, bytes);
  if (!pages) return false;
  const Fd file = open_mappings();
  if (!file.valid()) return true;
  std::uint64_t at = pages->first;
  while (const auto mapping = ask(file.get(), at)) {
    if (mapping->end <= at || !allows(*mapping, use)) return false;
    if (mapping->end > pages->second) return true;
    at = mapping->end;
  }
  return list_allows(file.get(), at, pages->second, use);
}

bool listed_pages_allow(std::uint64_t address, std::uint64_t bytes, PageUse use) {
  const auto pages = pages_there(address, bytes);
  if (!pages) return false;
  const Fd file = open_mappings();
  return !file.valid() || list_allows(file.get(), pages->first, pages->second, use);
}

}  // namespace flyt
