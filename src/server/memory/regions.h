// Regions: the addresses that a client may name in a command.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "server/gate.h"

namespace flyt::server {

// An address outside every region is refused before the driver sees it: the driver would take it
// for the server's own host memory. Safe from any thread.
class Regions {
 public:
  enum class Kind : std::uint8_t { kWindow, kDevice, kPinned, kGlobal };
  struct Region {
    std::uint64_t base = 0;
    std::uint64_t size = 0;
    Kind kind = Kind::kDevice;
  };

  void add(Region region);
  void remove(std::uint64_t base);
  // Whether every byte of [address, address + size) lies in some region.
  bool allowed(std::uint64_t address, std::uint64_t size) const;
  // The region around an address.
  std::optional<Region> around(std::uint64_t address) const;
  std::vector<Region> all(Kind kind) const;

 private:
  const Region* locate(std::uint64_t address) const;

  mutable Gate gate_;  // Guards by_base_: who changes it is alone.
  std::map<std::uint64_t, Region> by_base_;
};

}  // namespace flyt::server
