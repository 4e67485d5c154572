// Pages: zeroed memory of the system's, whole pages, given back at its end.
#include "base/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace flyt {
namespace {

std::uint64_t page_of(std::uint64_t address) {
  return address / Pages::kPageBytes * Pages::kPageBytes;
}

// Where the system does not, for it has no more maps, what is there stays.
void block(std::uint64_t begin, std::uint64_t end) {
  static_cast<void>(::mmap(pointer_at(begin), end - begin, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0));
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
  // What a peer names may be nothing, or reach beyond all addresses: none of it would be mapped,
  // and what lies there let go of later.
  std::uint64_t behind = 0;
  if (bytes == 0 || __builtin_add_overflow(address, bytes, &behind) ||
      behind > ~std::uint64_t{0} - Pages::kPageBytes) {
    return false;
  }
  const std::uint64_t first = page_of(address);
  const std::uint64_t last = page_of(address + bytes - 1);
  const std::uint64_t begin = edges_.contains(first) ? first + Pages::kPageBytes : first;
  const std::uint64_t end = edges_.contains(last) ? last : last + Pages::kPageBytes;
  if (begin < end && !put_around_kept(begin, end, {file, offset, first})) return false;
  ++edges_[first].ranges;
  if (last != first) ++edges_[last].ranges;
  return true;
}

bool FixedPages::put(std::uint64_t begin, std::uint64_t end, const Source& source, bool into_kept) {
  void* wanted = pointer_at(begin);
  const int kind = source.file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* got = ::mmap(wanted, end - begin, PROT_READ | PROT_WRITE,
                     kind | (into_kept ? MAP_FIXED : MAP_FIXED_NOREPLACE), source.file,
                     static_cast<off_t>(source.offset + (begin - source.address)));
  if (got == MAP_FAILED) return false;
  if (got == wanted) return true;
  ::munmap(got, end - begin);
  return false;
}

// First where nothing is kept, so that what cannot be leaves all as it was.
bool FixedPages::put_around_kept(std::uint64_t begin, std::uint64_t end, const Source& source) {
  struct Part {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  std::vector<Part> kept;
  auto at = kept_.upper_bound(begin);
  if (at != kept_.begin()) --at;
  for (; at != kept_.end() && at->first < end; ++at) {
    if (at->second > begin) kept.push_back({std::max(at->first, begin), std::min(at->second, end)});
  }
  std::vector<Part> gaps;
  std::uint64_t behind = begin;
  for (const Part& part : kept) {
    if (behind < part.begin) gaps.push_back({behind, part.begin});
    behind = part.end;
  }
  if (behind < end) gaps.push_back({behind, end});
  std::size_t done = 0;
  while (done < gaps.size() && put(gaps[done].begin, gaps[done].end, source, false)) ++done;
  bool all = done == gaps.size();
  for (const Part& part : kept) all = all && put(part.begin, part.end, source, true);
  if (all) {
    forget_kept(begin, end);
    return true;
  }
  for (std::size_t i = 0; i < done; ++i) {
    ::munmap(pointer_at(gaps[i].begin), gaps[i].end - gaps[i].begin);
  }
  for (const Part& part : kept) block(part.begin, part.end);
  return false;
}

void FixedPages::note_kept(std::uint64_t begin, std::uint64_t end) {
  auto next = kept_.lower_bound(begin);
  if (next != kept_.end() && next->first == end) {
    end = next->second;
    next = kept_.erase(next);
  }
  if (next != kept_.begin() && std::prev(next)->second == begin) {
    std::prev(next)->second = end;
  } else {
    kept_.emplace(begin, end);
  }
}

void FixedPages::forget_kept(std::uint64_t begin, std::uint64_t end) {
  auto at = kept_.upper_bound(begin);
  if (at != kept_.begin()) --at;
  while (at != kept_.end() && at->first < end) {
    const auto [from, until] = *at;
    if (until <= begin) {
      ++at;
      continue;
    }
    at = kept_.erase(at);
    if (from < begin) kept_.emplace(from, begin);
    if (until > end) at = kept_.emplace(end, until).first;
  }
}

bool FixedPages::keeps(std::uint64_t address, std::uint64_t bytes) const {
  const std::uint64_t first = page_of(address);
  const std::uint64_t last = page_of(address + bytes - 1);
  for (const std::uint64_t page : {first, last}) {
    const auto edge = edges_.find(page);
    if (edge != edges_.end() && edge->second.kept) return true;
  }
  auto at = kept_.upper_bound(last);
  return at != kept_.begin() && std::prev(at)->second > first;
}

void FixedPages::unmap(std::uint64_t address, std::uint64_t bytes, bool keep) {
  const std::uint64_t first = page_of(address);
  const std::uint64_t last = page_of(address + bytes - 1);
  const LetGo at_first = let_go(first, keep);
  const LetGo at_last = last == first ? LetGo::kStays : let_go(last, keep);
  if (at_first != LetGo::kStays) {
    let_go_of(first, first + Pages::kPageBytes, at_first == LetGo::kIsKept);
  }
  if (first + Pages::kPageBytes < last) let_go_of(first + Pages::kPageBytes, last, keep);
  if (at_last != LetGo::kStays) {
    let_go_of(last, last + Pages::kPageBytes, at_last == LetGo::kIsKept);
  }
}

void FixedPages::let_go_of(std::uint64_t begin, std::uint64_t end, bool keep) {
  if (!keep) {
    ::munmap(pointer_at(begin), end - begin);
    return;
  }
  block(begin, end);
  note_kept(begin, end);
}

// What one of the ranges on a page wants to be kept is so when the last one goes.
FixedPages::LetGo FixedPages::let_go(std::uint64_t page, bool keep) {
  const auto edge = edges_.find(page);
  keep = keep || edge->second.kept;
  edge->second.kept = keep;
  if (--edge->second.ranges != 0) return LetGo::kStays;
  edges_.erase(edge);
  return keep ? LetGo::kIsKept : LetGo::kGoes;
}

}  // namespace flyt
