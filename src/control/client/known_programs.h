// KnownPrograms: which processes have the virtual GPU, on disk, so that the next client manager
// does not give it back while programs of this one run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace flyt::vm {

inline constexpr std::size_t kKnownProgramsMax = 65536;

struct KnownProgram {
  std::int32_t process = 0;
  std::uint64_t start = 0;  // Clock ticks after the machine's start: tells it from a later one.
  std::uint32_t user = 0;
  std::string name;
  friend bool operator==(const KnownProgram&, const KnownProgram&) = default;
};

// When a process of that number started; none if there is none.
std::optional<std::uint64_t> start_of_process(std::int32_t process);
bool runs(const KnownProgram& program);

std::string text_of(const std::vector<KnownProgram>& programs);

struct KnownPrograms {
  std::vector<KnownProgram> programs;
  std::size_t senseless = 0;  // Lines that name no program, and are left out.
};
KnownPrograms programs_of(std::string_view text);

// Replaces the file as a whole.
Status write_programs(const std::string& path, const std::vector<KnownProgram>& programs);
// Those that still run. No file: none. kSystem: it cannot be read.
Result<KnownPrograms> read_programs(const std::string& path);

}  // namespace flyt::vm
