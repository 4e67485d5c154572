// MemorySearch: whether device memory holds addresses that must not be there, found by a kernel of
// our own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "driver/table.h"

namespace flyt::server {

// Both ends belong to it: an address just behind a variable is one of the variable's.
struct AddressRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  bool operator==(const AddressRange&) const = default;
};

// Where in one context is looked, while nothing else runs there. What it has made goes with it;
// the context must be current at any time. Belongs to one thread.
class MemorySearch {
 public:
  // A launch looks through so many bytes: no driver takes it for one that never ends.
  static constexpr std::uint64_t kLaunchBytes = 32 * kMiB;

  explicit MemorySearch(const driver::Table& driver) : driver_(driver) {}
  ~MemorySearch();
  MemorySearch(const MemorySearch&) = delete;
  MemorySearch& operator=(const MemorySearch&) = delete;

  // `ranges`: at least one, sorted, apart from each other. Once.
  Status begin(std::span<const AddressRange> ranges);
  // Looks at the words of memory that begin at multiples of 8. Does not wait.
  Status look(std::uint64_t address, std::uint64_t bytes);
  // Waits. Some word that was seen and lies in one of the ranges; 0: there is none.
  Result<std::uint64_t> end();

 private:
  CUresult prepare(std::span<const AddressRange> ranges);

  const driver::Table& driver_;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;
  void* host_ = nullptr;  // What was found, and the ranges.
  std::uint64_t at_ = 0;  // The same, for kernels.
  std::uint32_t count_ = 0;
};

}  // namespace flyt::server
