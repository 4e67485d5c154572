// Staging: large copies between the program's ordinary memory and the GPU, by way of shared memory.
//
// Several threads copy between the program's pages and slots that the GPU reaches, while the GPU
// works on the slots before. Small copies and those that find nothing shared go as bytes of the
// connection instead (Transfers).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "client/transfers/copy_crew.h"
#include "client/transfers/shared_slots.h"
#include "cuda/types.h"

namespace flyt::client {

// Safe from any thread; each call is one of the calling thread's current context.
class Staging {
 public:
  // Smaller copies are not worth it.
  static constexpr std::uint64_t kBytesMin = 16 * kKiB;

  // `patience`: how long to look for a slot, or at one that the GPU is at work on, before the
  // server is asked.
  Staging(Session& session, Duration patience);

  // Sends as much of the front of a copy to the GPU as can be staged now, and returns its size. The
  // memory may be used again when this returns.
  std::uint64_t to_device(std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                          CUstream stream, CUresult& result);

  // The same to the program's memory; what it returns is there.
  std::uint64_t to_host(std::uint64_t to, std::uint64_t from, std::uint64_t bytes, CUstream stream,
                        CUresult& result);

  std::vector<SharedSlots::Shared> shared_areas() { return slots_.shared(); }
  void on_context_destroyed(std::uint64_t context) { slots_.on_context_destroyed(context); }

 private:
  using Slot = SharedSlots::Slot;

  // A piece of a copy to the host that the GPU is at work on.
  struct Part {
    Slot slot;
    std::uint64_t at = 0;
    std::uint64_t bytes = 0;
  };

  std::optional<Slot> take_soon(ContextState& context);
  CUresult begin(Part& part, std::uint64_t from, CUstream stream);
  CUresult await(const Slot& slot, CUstream stream);

  Session& session_;
  const Duration patience_;
  SharedSlots slots_;
  CopyCrew crew_;
};

}  // namespace flyt::client
