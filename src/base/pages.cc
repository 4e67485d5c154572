// Pages: zeroed memory of the system's, whole pages, given back at its end.
#include "base/pages.h"

#include <sys/mman.h>

namespace flyt {
namespace {

std::uint64_t page_of(std::uint64_t address) {
  return address / Pages::kPageBytes * Pages::kPageBytes;
}

}  // namespace

Pages Pages::make(std::uint64_t bytes) {
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return mapped == MAP_FAILED ? Pages() : Pages(mutable_bytes_at(mapped, bytes));
}

Pages::~Pages() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

bool FixedPages::map(std::uint64_t address, std::uint64_t bytes, int file, std::uint64_t offset) {
  const std::uint64_t first = page_of(address);
  const std::uint64_t last = page_of(address + bytes - 1);
  const std::uint64_t begin = edges_.contains(first) ? first + Pages::kPageBytes : first;
  const std::uint64_t end = edges_.contains(last) ? last : last + Pages::kPageBytes;
  if (begin < end) {
    void* wanted = pointer_at(begin);
    const int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    void* got = ::mmap(wanted, end - begin, PROT_READ | PROT_WRITE, kind | MAP_FIXED_NOREPLACE,
                       file, static_cast<off_t>(offset + (begin - first)));
    if (got == MAP_FAILED) return false;
    if (got != wanted) {
      ::munmap(got, end - begin);
      return false;
    }
  }
  ++edges_[first];
  if (last != first) ++edges_[last];
  return true;
}

void FixedPages::unmap(std::uint64_t address, std::uint64_t bytes) {
  const std::uint64_t first = page_of(address);
  const std::uint64_t last = page_of(address + bytes - 1);
  const bool first_goes = let_go(first);
  const bool last_goes = last == first ? first_goes : let_go(last);
  const std::uint64_t begin = first_goes ? first : first + Pages::kPageBytes;
  const std::uint64_t end = last_goes ? last + Pages::kPageBytes : last;
  if (begin < end) ::munmap(pointer_at(begin), end - begin);
}

// True if nobody has the page any more.
bool FixedPages::let_go(std::uint64_t page) {
  const auto edge = edges_.find(page);
  if (--edge->second != 0) return false;
  edges_.erase(edge);
  return true;
}

}  // namespace flyt
