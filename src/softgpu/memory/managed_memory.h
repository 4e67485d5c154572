// ManagedMemory: memory that the program and all devices use at the same addresses.
#pragma once

#include <cstdint>

#include "softgpu/memory/regions.h"

namespace flyt::softgpu {

// Whole zeroed pages far from where Linux puts things by itself, so that another process can have
// memory at the same addresses. 0 if there are none.
std::uint64_t map_managed(std::uint64_t bytes);
void unmap_managed(std::uint64_t address, std::uint64_t bytes);

// A managed variable of a module, or of a library and all its modules; known to the regions while
// it lives.
class ManagedVariable {
 public:
  ManagedVariable(Regions& regions, std::uint64_t bytes, int device);
  ~ManagedVariable();
  ManagedVariable(const ManagedVariable&) = delete;
  ManagedVariable& operator=(const ManagedVariable&) = delete;

  // 0 where there was no memory.
  std::uint64_t address() const { return address_; }

 private:
  Regions& regions_;
  const std::uint64_t address_;
  const std::uint64_t bytes_;
};

}  // namespace flyt::softgpu
