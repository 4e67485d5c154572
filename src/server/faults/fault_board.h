// FaultBoard: what the processes with contexts on one GPU tell each other of faults, where a fault
// of one is every process's (NVIDIA's MPS): a file that all servers of that GPU are given.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/roll.h"
#include "cuda/types.h"

namespace flyt::server {

// How a process ends that had a context when a kernel faulted.
inline constexpr int kExitGpuFault = 3;

// Whether an answer of the driver means that the contexts of this process are of no use any more,
// and perhaps those of others: sticky errors of the device, and MPS's word that its server is gone.
bool is_gpu_fault(CUresult result);

// What a session was to a fault.
enum class FaultPart : std::uint32_t {
  kNone = 0,
  kInnocent = 1,  // It had no work under way.
  kSuspect = 2,
};

// One process's. Safe from any thread once it sits.
class FaultBoard {
 public:
  // Processes with contexts on one GPU, of all servers.
  static constexpr std::size_t kSeatsMax = 1024;

  // kUnsupported: servers of another build use it.
  static Result<std::unique_ptr<FaultBoard>> open(const std::string& path);
  ~FaultBoard();
  FaultBoard(const FaultBoard&) = delete;
  FaultBoard& operator=(const FaultBoard&) = delete;

  // Rises with each fault.
  std::uint32_t incident() const;

  // Before the driver is started: waits until all processes that a fault concerned have ended, or
  // so long, as the GPU takes no new ones before. From then on faults concern this process, until
  // it ends. `waits` is called once if it comes to that. False: somebody has not ended in time, or
  // all seats are taken.
  bool sit(Instant deadline, const std::function<void()>& waits);

  // A fault that concerns this process. Cheap.
  bool told() const;
  // Until there is one, until rouse(), or so long; now and then for nothing.
  void wait(Duration at_most) const;
  void rouse();
  // This process has seen one; others hear of it.
  void tell();
  // It has turned out that this process is not concerned.
  void stay();

  // What this process was to the fault that it was told of.
  void give(FaultPart part);
  // How many suspects there are, once everybody has said what he was, has ended, or at the
  // deadline.
  std::uint32_t suspects(Instant deadline) const;

 private:
  struct Page;

  explicit FaultBoard(Roll roll);
  bool clear(std::uint32_t incident) const;
  bool all_have_told(std::uint32_t incident) const;

  const Roll roll_;
  Page* const page_;
  std::optional<std::size_t> seat_;
  std::atomic<std::uint32_t> joined_{0};
};

}  // namespace flyt::server
