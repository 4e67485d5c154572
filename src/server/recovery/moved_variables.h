// MovedVariables: variables of code that are elsewhere in the process in which a session goes on,
// and what still holds the addresses that they had.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "server/memory/memory_search.h"

namespace flyt::server {

struct MovedVariable {
  std::uint64_t was = 0;
  std::uint64_t is = 0;
  std::uint64_t bytes = 0;
  std::string name;
};

// Belongs to one thread.
class MovedVariables {
 public:
  void add(MovedVariable variable);
  bool any() const { return !by_address_.empty(); }

  // One that had an address, or ended just before it; null: none.
  const MovedVariable* at(std::uint64_t address) const;
  // Where they were: sorted, apart from each other.
  std::vector<AddressRange> ranges() const;

  // Whether a word of memory that was at `address` is an address in one of them.
  bool any_in(std::uint64_t address, Bytes memory) const;
  // What a variable that was at `address` held, of which `loaded` is what it holds now that its
  // code is loaded. Where the loader has put the address that a variable has now in place of the
  // one that it had, that takes its place. Returns one whose old address is left; null: none is.
  const MovedVariable* renew(std::uint64_t address, MutableBytes held, Bytes loaded) const;

 private:
  template <class Visit>
  void for_each_at(std::uint64_t address, Visit&& visit) const;

  std::multimap<std::uint64_t, MovedVariable> by_address_;  // By that which they had.
  std::uint64_t bytes_max_ = 0;
  std::uint64_t last_ = 0;
};

}  // namespace flyt::server
