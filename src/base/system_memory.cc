#include "base/system_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstddef>

#include "base/bytes.h"
#include "base/fd.h"

namespace flyt {
namespace {

// "MemTotal:       24034564 kB"
std::optional<std::uint64_t> bytes_of_line(std::string_view meminfo, std::string_view name) {
  const std::size_t at = meminfo.find(name);
  if (at == std::string_view::npos || (at != 0 && meminfo[at - 1] != '\n')) return std::nullopt;
  std::string_view rest = meminfo.substr(at + name.size());
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  std::uint64_t kib = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), kib);
  if (error != std::errc() || kib > ~std::uint64_t{0} / kKiB) return std::nullopt;
  return kib * kKiB;
}

}  // namespace

std::optional<SystemMemory> parse_system_memory(std::string_view meminfo) {
  const auto total = bytes_of_line(meminfo, "MemTotal:");
  const auto available = bytes_of_line(meminfo, "MemAvailable:");
  if (!total || !available) return std::nullopt;
  return SystemMemory{*total, *available};
}

std::optional<SystemMemory> system_memory() {
  const Fd file(::open("/proc/meminfo", O_RDONLY | O_CLOEXEC));
  // What is looked for stands at the beginning.
  std::array<char, 4096> text;
  const ssize_t got = file.valid() ? ::read(file.get(), text.data(), text.size()) : -1;
  if (got <= 0) return std::nullopt;
  return parse_system_memory({text.data(), static_cast<std::size_t>(got)});
}

}  // namespace flyt
