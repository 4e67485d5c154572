// SystemMemory: how much memory this machine has, and what of it can still be taken.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace flyt {

struct SystemMemory {
  std::uint64_t total = 0;
  std::uint64_t available = 0;  // Without anybody else having to give up what he has.
};

// As /proc/meminfo has it; nothing where it does not tell.
std::optional<SystemMemory> parse_system_memory(std::string_view meminfo);
std::optional<SystemMemory> system_memory();

}  // namespace flyt
