// Settings: what the environment says about the GPUs that this process gets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "cuda/fatbin.h"

namespace flyt::softgpu {

inline constexpr unsigned kDevicesMax = 64;
inline constexpr unsigned kMultiprocessorsMax = 4096;
inline constexpr unsigned kVariablePlacesMax = 4096;
inline constexpr unsigned kSharedContextsMax = 1024;
inline constexpr std::uint64_t kMemoryBytesMin = 16 * kMiB;
inline constexpr std::uint64_t kMemoryBytesMax = 256 * kGiB;

struct Settings {
  unsigned devices = 1;                              // FLYT_SOFTGPU_DEVICES
  std::optional<std::string> visible;                // CUDA_VISIBLE_DEVICES, if it is set
  unsigned multiprocessors = 16;                     // FLYT_SOFTGPU_SMS
  std::uint64_t memory_bytes = 2 * kGiB;             // FLYT_SOFTGPU_MEMORY: 512M, 2G or bytes
  cuda::ComputeCapability capability = {9, 0};       // FLYT_SOFTGPU_COMPUTE_CAPABILITY: 9.0
  std::uint64_t kernel_timeout_ns = 10'000'000'000;  // FLYT_SOFTGPU_KERNEL_TIMEOUT_MS; 0: none
  bool graph_update_waits = false;                   // FLYT_SOFTGPU_GRAPH_UPDATE_WAITS: 0 or 1
  bool event_waits_late = false;                     // FLYT_SOFTGPU_EVENT_WAITS_LATE: 0 or 1
  bool host_memory_waits = false;                    // FLYT_SOFTGPU_HOST_MEMORY_WAITS: 0 or 1
  bool loads_wait = false;                           // FLYT_SOFTGPU_LOADS_WAIT: 0 or 1
  bool memory_moves = false;                         // FLYT_SOFTGPU_MEMORY_MOVES: 0 or 1
  bool streams_return = false;                       // FLYT_SOFTGPU_STREAMS_RETURN: 0 or 1
  bool variables_move = false;                       // FLYT_SOFTGPU_VARIABLES_MOVE: 0 or 1
  unsigned variable_places = 0;                      // The same: 2 or more; 0: no chunks
  std::string shared_faults;                         // FLYT_SOFTGPU_SHARED_FAULTS: a folder
  unsigned shared_contexts = 0;                      // FLYT_SOFTGPU_SHARED_CONTEXTS; 0: any number
  std::string lost;                                  // FLYT_SOFTGPU_LOST: a folder
  unsigned threads = 1;                              // Of the processors that run kernels.

  // Values that make no sense leave the default.
  static Settings from_environment();
};

}  // namespace flyt::softgpu
