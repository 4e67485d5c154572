// Launch: from a configuration to a kernel that runs in a stream.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/types.h"
#include "softgpu/driver.h"

namespace flyt::softgpu {

struct LaunchRequest {
  std::array<unsigned, 3> grid = {1, 1, 1};
  std::array<unsigned, 3> block = {1, 1, 1};
  std::array<unsigned, 3> cluster = {0, 0, 0};  // 0: as the kernel says.
  unsigned shared_bytes = 0;                    // Dynamic.
  bool cooperative = false;
  std::vector<std::byte> parameters;
};

// What the calls refuse at once. Completes the cluster size.
CUresult check_launch(const Function& function, LaunchRequest& request);

// Runs the kernel in the stream; `request` has been checked.
void submit_launch(Driver& driver, const std::shared_ptr<Context>& context,
                   const std::shared_ptr<Stream>& stream, const std::shared_ptr<Function>& function,
                   LaunchRequest request);

// How many blocks of `threads` threads one multiprocessor holds at a time.
unsigned blocks_per_multiprocessor(const Function& function, unsigned threads,
                                   std::uint64_t dynamic_shared_bytes);

}  // namespace flyt::softgpu
