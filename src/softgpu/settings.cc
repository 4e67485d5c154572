#include "softgpu/settings.h"

#include <sched.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace flyt::softgpu {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// A number and what stands behind it.
std::optional<std::uint64_t> number(std::string_view& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::optional<std::uint64_t> whole_number(const char* name, std::uint64_t least,
                                          std::uint64_t most) {
  std::string_view text = variable(name);
  const auto value = number(text);
  if (!value || !text.empty() || *value < least || *value > most) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> size(const char* name) {
  std::string_view text = variable(name);
  auto value = number(text);
  if (!value || *value > kMemoryBytesMax) return std::nullopt;
  if (text == "K" || text == "k") *value *= kKiB;
  if (text == "M" || text == "m") *value *= kMiB;
  if (text == "G" || text == "g") *value *= kGiB;
  if (*value < kMemoryBytesMin || *value > kMemoryBytesMax) return std::nullopt;
  return value;
}

std::optional<cuda::ComputeCapability> version(const char* name) {
  std::string_view text = variable(name);
  const auto major = number(text);
  if (!major || !text.starts_with('.')) return std::nullopt;
  text.remove_prefix(1);
  const auto minor = number(text);
  if (!minor || !text.empty() || *major < 3 || *major > 20 || *minor > 9) return std::nullopt;
  return cuda::ComputeCapability{static_cast<std::uint32_t>(*major),
                                 static_cast<std::uint32_t>(*minor)};
}

unsigned processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count < 1 ? 1 : static_cast<unsigned>(count);
}

}  // namespace

Settings Settings::from_environment() {
  constexpr std::uint64_t kTimeoutMsMax = 24ull * 3600 * 1000;
  Settings settings;
  settings.threads = processors();
  if (const auto value = whole_number("FLYT_SOFTGPU_DEVICES", 0, kDevicesMax)) {
    settings.devices = static_cast<unsigned>(*value);
  }
  if (std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) {
    settings.visible = variable("CUDA_VISIBLE_DEVICES");
  }
  if (const auto value = whole_number("FLYT_SOFTGPU_SMS", 1, kMultiprocessorsMax)) {
    settings.multiprocessors = static_cast<unsigned>(*value);
  }
  if (const auto value = size("FLYT_SOFTGPU_MEMORY")) settings.memory_bytes = *value;
  if (const auto value = version("FLYT_SOFTGPU_COMPUTE_CAPABILITY")) {
    settings.capability = *value;
  }
  if (const auto value = whole_number("FLYT_SOFTGPU_KERNEL_TIMEOUT_MS", 0, kTimeoutMsMax)) {
    settings.kernel_timeout_ns = *value * 1'000'000;
  }
  settings.shared_faults = variable("FLYT_SOFTGPU_SHARED_FAULTS");
  if (const auto value = whole_number("FLYT_SOFTGPU_SHARED_CONTEXTS", 0, kSharedContextsMax)) {
    settings.shared_contexts = static_cast<unsigned>(*value);
  }
  settings.lost = variable("FLYT_SOFTGPU_LOST");
  if (const auto value = whole_number("FLYT_SOFTGPU_GRAPH_UPDATE_WAITS", 0, 1)) {
    settings.graph_update_waits = *value != 0;
  }
  if (const auto value = whole_number("FLYT_SOFTGPU_EVENT_WAITS_LATE", 0, 1)) {
    settings.event_waits_late = *value != 0;
  }
  if (const auto value = whole_number("FLYT_SOFTGPU_HOST_MEMORY_WAITS", 0, 1)) {
    settings.host_memory_waits = *value != 0;
  }
  if (const auto value = whole_number("FLYT_SOFTGPU_LOADS_WAIT", 0, 1)) {
    settings.loads_wait = *value != 0;
  }
  if (const auto value = whole_number("FLYT_SOFTGPU_MEMORY_MOVES", 0, 1)) {
    settings.memory_moves = *value != 0;
  }
  if (const auto value = whole_number("FLYT_SOFTGPU_STREAMS_RETURN", 0, 1)) {
    settings.streams_return = *value != 0;
  }
  if (const auto value = whole_number("FLYT_SOFTGPU_VARIABLES_MOVE", 0, kVariablePlacesMax)) {
    settings.variables_move = *value == 1;
    settings.variable_places = *value > 1 ? static_cast<unsigned>(*value) : 0;
  }
  return settings;
}

}  // namespace flyt::softgpu
