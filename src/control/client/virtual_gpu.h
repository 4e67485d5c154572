// VirtualGpu: what the cluster says about this machine's virtual GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flyt::vm {

// As of api/control/cluster.proto.
enum class Phase : std::uint8_t { kNone, kWaiting, kStarting, kReady, kEnding };
std::string_view to_string(Phase phase);

struct VirtualGpu {
  std::string vm;
  Phase phase = Phase::kNone;
  std::string reason;
  std::uint32_t ahead = 0;
  std::string node;
  std::string host;
  std::string gpu_name;
  std::uint32_t sms = 0;
  std::uint64_t memory_bytes = 0;
  std::vector<std::string> urls;
  std::string token;  // Only in the answer to a request for one.
  std::int64_t token_expires_at = 0;
  std::uint64_t generation = 0;
};

}  // namespace flyt::vm
