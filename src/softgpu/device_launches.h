// DeviceLaunches: what the threads of a kernel launch themselves (CUDA's dynamic parallelism).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "softgpu/interpreter/device_runtime.h"
#include "softgpu/launch.h"
#include "softgpu/memory/range_allocator.h"

namespace flyt::softgpu {

// What a kernel that was launched by the host and all its descendants have together.
struct KernelFamily {
  // Launches and copies that wait: a device's own limit is what it has room for, and it begins
  // children while their parent runs.
  static constexpr std::uint64_t kPendingMax = 1u << 18;
  // Of launches within launches, but for tails.
  static constexpr unsigned kDepthMax = 24;

  std::atomic<std::uint64_t> pending{0};
  std::int64_t deadline_ns = 0;  // Of the system's clock; 0: none.
};

// Belongs to one grid. Its children wait here until it has run: nobody may rely on them to begin
// earlier, and a grid has ended when its children have. They are in the order of their launches,
// so that streams and events have nothing left to do.
class DeviceLaunches final : public ptx::DeviceRuntime {
 public:
  struct Task {
    std::shared_ptr<Function> kernel;  // Null: it is a copy.
    LaunchRequest request;
    ptx::ChildCopy copy;
  };

  // `depth`: of the grid; 0 for what the host launched.
  DeviceLaunches(Driver& driver, Context& context, std::shared_ptr<Module> module,
                 KernelFamily& family, unsigned depth)
      : driver_(driver),
        context_(context),
        module_(std::move(module)),
        family_(family),
        depth_(depth) {}
  ~DeviceLaunches() override;
  DeviceLaunches(const DeviceLaunches&) = delete;
  DeviceLaunches& operator=(const DeviceLaunches&) = delete;

  // Once the grid has run. Tails are those that wait for all its children, too.
  std::vector<Task> take_children() EXCLUDES(mutex_);
  std::vector<Task> take_tails() EXCLUDES(mutex_);

  std::uint64_t parameter_buffer(std::uint64_t thread, const ptx::ChildConfig& config) override
      EXCLUDES(mutex_);
  ptx::DeviceError launch(std::uint64_t buffer, std::uint64_t stream) override EXCLUDES(mutex_);
  ptx::DeviceError copy(const ptx::ChildCopy& copy, std::uint64_t stream) override EXCLUDES(mutex_);
  std::uint64_t make_handle() override { return kHandleFirst + handles_.fetch_add(1); }
  bool is_handle(std::uint64_t handle) const override {
    return handle >= kHandleFirst && handle - kHandleFirst < handles_.load();
  }
  void note_error(std::uint64_t thread, ptx::DeviceError error) override EXCLUDES(mutex_);
  ptx::DeviceError last_error(std::uint64_t thread, bool taken) override EXCLUDES(mutex_);
  std::uint64_t text_of(ptx::DeviceError error, bool name) override EXCLUDES(mutex_);
  std::int32_t device() const override;
  std::int32_t device_count() const override;
  ptx::DeviceError attribute(std::int32_t attribute, std::int32_t device,
                             std::int32_t& value) const override;
  ptx::DeviceError limit(std::int32_t limit, std::uint64_t& value) const override;
  ptx::DeviceError function_attributes(
      std::uint32_t function, std::span<std::uint32_t, kFunctionWords> words) const override;
  ptx::DeviceError occupancy(std::uint32_t function, std::int32_t threads,
                             std::uint64_t shared_bytes, std::int32_t& blocks) const override;

 private:
  // Below are the streams that are always there: the default ones and those for tails and for
  // what nobody waits for.
  static constexpr std::uint64_t kHandleFirst = 0x100;
  static constexpr std::uint64_t kTailStream = 3;
  static constexpr std::uint64_t kStreamsBuiltIn = 5;

  struct Buffer {
    std::shared_ptr<Function> kernel;
    LaunchRequest request;
    std::uint64_t bytes = 0;
  };

  // Null: it is no kernel of the module.
  std::shared_ptr<Function> kernel_of(std::uint32_t function) const;
  std::optional<std::uint64_t> room_for(std::uint64_t bytes) REQUIRES(mutex_);
  ptx::DeviceError add(Task task, std::uint64_t stream) REQUIRES(mutex_);

  Driver& driver_;
  Context& context_;
  const std::shared_ptr<Module> module_;
  KernelFamily& family_;
  const unsigned depth_;
  std::atomic<std::uint64_t> handles_{0};
  Mutex mutex_;
  std::uint64_t base_ GUARDED_BY(mutex_) = 0;  // Of device memory for parameters and texts.
  std::optional<RangeAllocator> ranges_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, Buffer> buffers_ GUARDED_BY(mutex_);  // By address.
  std::map<std::pair<ptx::DeviceError, bool>, std::uint64_t> texts_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, ptx::DeviceError> errors_ GUARDED_BY(mutex_);  // By thread.
  std::vector<Task> children_ GUARDED_BY(mutex_);
  std::vector<Task> tails_ GUARDED_BY(mutex_);
};

}  // namespace flyt::softgpu
