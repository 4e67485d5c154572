// Launch: from a configuration to a kernel that runs in a stream.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cuda/types.h"
#include "softgpu/driver.h"

namespace flyt::softgpu {

struct LaunchRequest {
  std::array<unsigned, 3> grid = {1, 1, 1};
  std::array<unsigned, 3> block = {1, 1, 1};
  std::array<unsigned, 3> cluster = {0, 0, 0};  // 0: as the kernel says.
  bool in_clusters = false;                     // One of both says it.
  unsigned shared_bytes = 0;                    // Dynamic.
  bool cooperative = false;
  std::vector<std::byte> parameters;
  CUfunction handle = nullptr;                // As the caller names the kernel.
  std::vector<CUlaunchAttribute> attributes;  // As given, for those who ask a graph for them.
  std::shared_ptr<const SmSet> sms;           // Where it runs; null: anywhere.
  // May begin before what is before it has ended; an edge of a graph says so.
  bool programmatic = false;
};

// What a kernel's texture and surface references are bound to when it is launched.
std::shared_ptr<const ImageBindings> bindings_for(const Driver& driver, const Function& function);

// Whether the grid is whole clusters of a size that there is. Completes that size.
CUresult check_cluster(const Function& function, LaunchRequest& request);

// What the calls refuse at once. Completes the cluster size.
CUresult check_launch(const Function& function, LaunchRequest& request);

// Takes an attribute over: those that change what runs; the others are hints, or need what is
// refused elsewhere.
CUresult apply_attribute(const CUlaunchAttribute& attribute, LaunchRequest& request);

// Parameters from an array with a pointer to each, or from one buffer as `extra` tells it.
CUresult pack_parameters(const ptx::Function& code, void** pointers, void** extra,
                         std::vector<std::byte>& out);

// What the device is to run; `request` has been checked.
ptx::Launch make_launch(Driver& driver, const Context& context, LaunchRequest request);

// Runs the kernel in the stream; `request` has been checked. The stream may be capturing.
CUresult submit_launch(Driver& driver, const std::shared_ptr<Context>& context,
                       const std::shared_ptr<Stream>& stream,
                       const std::shared_ptr<Function>& function, LaunchRequest request);

// Gives a conditional handle of the graph that runs its value; false where it has no such handle.
using SetConditional = std::function<bool(std::uint64_t handle, std::uint32_t value)>;

// Runs the kernel now and returns when it has ended. A fault becomes the context's.
void run_launch(Driver& driver, Context& context, const Function& function,
                const LaunchRequest& request, SetConditional set_conditional);

// How many multiprocessors that is; null: all of them.
unsigned multiprocessors_for(const Device& device, const SmSet* sms);

// How many blocks of `threads` threads one multiprocessor holds at a time.
unsigned blocks_per_multiprocessor(const Function& function, unsigned threads,
                                   std::uint64_t dynamic_shared_bytes);

}  // namespace flyt::softgpu
