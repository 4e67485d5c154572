#include "server/recovery/moved_variables.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace flyt::server {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

// The first word of memory at an address that is as aligned as addresses in memory are.
std::size_t first_word(std::uint64_t address) {
  return (kWordBytes - address % kWordBytes) % kWordBytes;
}

std::uint64_t word_at(Bytes bytes, std::size_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

bool has_word(Bytes bytes, std::size_t at) {
  return at <= bytes.size() && bytes.size() - at >= kWordBytes;
}

std::uint64_t end_of(const MovedVariable& variable) {
  return variable.was + std::min(variable.bytes, ~variable.was);
}

}  // namespace

void MovedVariables::add(MovedVariable variable) {
  bytes_max_ = std::max(bytes_max_, variable.bytes);
  last_ = std::max(last_, end_of(variable));
  by_address_.emplace(variable.was, std::move(variable));
}

// Those around an address, the nearest first, until visit() says that it is enough.
template <class Visit>
void MovedVariables::for_each_at(std::uint64_t address, Visit&& visit) const {
  auto next = by_address_.upper_bound(address);
  while (next != by_address_.begin()) {
    --next;
    const std::uint64_t offset = address - next->first;
    if (offset > bytes_max_) return;
    if (offset <= next->second.bytes && visit(next->second)) return;
  }
}

const MovedVariable* MovedVariables::at(std::uint64_t address) const {
  // As a rule it is none of them.
  if (by_address_.empty() || address < by_address_.begin()->first || address > last_) {
    return nullptr;
  }
  const MovedVariable* found = nullptr;
  for_each_at(address, [&](const MovedVariable& variable) {
    found = &variable;
    return true;
  });
  return found;
}

std::vector<AddressRange> MovedVariables::ranges() const {
  std::vector<AddressRange> ranges;
  for (const auto& [was, variable] : by_address_) {
    const std::uint64_t last = end_of(variable);
    if (!ranges.empty() && was <= ranges.back().last) {
      ranges.back().last = std::max(ranges.back().last, last);
    } else {
      ranges.push_back({was, last});
    }
  }
  return ranges;
}

bool MovedVariables::any_in(std::uint64_t address, Bytes memory) const {
  for (std::size_t at = first_word(address); has_word(memory, at); at += kWordBytes) {
    if (this->at(word_at(memory, at)) != nullptr) return true;
  }
  return false;
}

const MovedVariable* MovedVariables::renew(std::uint64_t address, MutableBytes held,
                                           Bytes loaded) const {
  for (std::size_t at = first_word(address); has_word(held, at) && has_word(loaded, at);
       at += kWordBytes) {
    const std::uint64_t word = word_at(held, at);
    const MovedVariable* left = this->at(word);
    if (left == nullptr) continue;
    const std::uint64_t now = word_at(loaded, at);
    for_each_at(word, [&](const MovedVariable& variable) {
      if (now - variable.is != word - variable.was) return false;
      left = nullptr;
      return true;
    });
    if (left != nullptr) return left;
    std::memcpy(held.data() + at, &now, sizeof now);
  }
  return nullptr;
}

}  // namespace flyt::server
