#include "softgpu/kernel_run.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "cuda/error_text.h"
#include "softgpu/context.h"
#include "softgpu/device_launches.h"
#include "softgpu/interpreter/grid.h"

namespace flyt::softgpu {
namespace {

CUresult error_of(ptx::FaultKind kind) {
  switch (kind) {
    case ptx::FaultKind::kIllegalAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case ptx::FaultKind::kMisalignedAddress:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case ptx::FaultKind::kIllegalInstruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case ptx::FaultKind::kInvalidPc:
      return CUDA_ERROR_INVALID_PC;
    case ptx::FaultKind::kStackOverflow:
      return CUDA_ERROR_HARDWARE_STACK_ERROR;
    case ptx::FaultKind::kTrap:
      return CUDA_ERROR_LAUNCH_FAILED;
    case ptx::FaultKind::kAssert:
      return CUDA_ERROR_ASSERT;
    case ptx::FaultKind::kTimeout:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case ptx::FaultKind::kStopped:
      return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    case ptx::FaultKind::kResources:
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

// What a kernel asks of the context it runs in.
class KernelEnvironment final : public ptx::Environment {
 public:
  KernelEnvironment(Driver& driver, Context& context, const ImageBindings& bindings,
                    const SetConditional& set_conditional, ptx::DeviceRuntime& runtime)
      : driver_(driver),
        context_(context),
        output_(driver.output()),
        bindings_(bindings),
        set_conditional_(set_conditional),
        runtime_(runtime) {}
  void print(std::string_view text) override { output_.print(text); }
  void assertion(std::string_view text) override { output_.complain(text); }
  std::uint64_t allocate(std::uint64_t bytes) override { return context_.heap().allocate(bytes); }
  void release(std::uint64_t address) override { context_.heap().release(address); }
  bool set_conditional(std::uint64_t handle, std::uint32_t value) override {
    return set_conditional_ != nullptr && set_conditional_(handle, value);
  }
  ptx::DeviceRuntime* runtime() override { return &runtime_; }
  const ptx::Texture* texture(std::uint64_t handle) override {
    if (const auto bound = bindings_.textures.find(handle); bound != bindings_.textures.end()) {
      return bound->second.get();
    }
    return keep(textures_, handle, [&]() -> std::shared_ptr<const ptx::Texture> {
      const auto object = driver_.textures().find_for_kernel(handle);
      return object == nullptr ? nullptr : object->texture;
    });
  }
  const ptx::Surface* surface(std::uint64_t handle) override {
    if (const auto bound = bindings_.surfaces.find(handle); bound != bindings_.surfaces.end()) {
      return bound->second.get();
    }
    return keep(surfaces_, handle, [&]() -> std::shared_ptr<const ptx::Surface> {
      const auto object = driver_.surfaces().find_for_kernel(handle);
      return object == nullptr ? nullptr : object->surface;
    });
  }

 private:
  // Looks an image up once, and keeps it until the kernel has ended.
  template <class Image, class Find>
  const Image* keep(std::map<std::uint64_t, std::shared_ptr<const Image>>& kept,
                    std::uint64_t handle, Find find) {
    const Lock lock(mutex_);
    auto known = kept.find(handle);
    if (known == kept.end()) known = kept.emplace(handle, find()).first;
    return known->second.get();
  }

  Driver& driver_;
  Context& context_;
  Output& output_;
  const ImageBindings& bindings_;
  const SetConditional& set_conditional_;
  ptx::DeviceRuntime& runtime_;
  Mutex mutex_;  // Guards the rest.
  std::map<std::uint64_t, std::shared_ptr<const ptx::Texture>> textures_;
  std::map<std::uint64_t, std::shared_ptr<const ptx::Surface>> surfaces_;
};

// Other threads that help with one grid: none begins once it is closed, and close() waits for
// those that have begun.
class Helpers {
 public:
  explicit Helpers(ptx::Grid& grid) : grid_(grid) {}
  void help() {
    {
      const Lock lock(mutex_);
      if (closed_) return;
      ++working_;
    }
    grid_.work();
    const Lock lock(mutex_);
    --working_;
    changed_.notify_all();
  }
  void close() {
    const Lock lock(mutex_);
    closed_ = true;
    while (working_ != 0) changed_.wait(mutex_);
  }

 private:
  ptx::Grid& grid_;
  Mutex mutex_;
  Condition changed_;
  bool closed_ GUARDED_BY(mutex_) = false;
  unsigned working_ GUARDED_BY(mutex_) = 0;
};

// A part of the device has the same part of the processors, and at least one.
void work_together(Driver& driver, ptx::Grid& grid, std::uint64_t blocks, std::uint64_t sms,
                   std::uint64_t sms_of_device) {
  const std::uint64_t threads = std::uint64_t{driver.settings().threads} * sms;
  const std::uint64_t share = std::max<std::uint64_t>(threads / sms_of_device, 1);
  const std::uint64_t helpers = std::min(share, blocks) - 1;
  const auto shared = std::make_shared<Helpers>(grid);
  for (std::uint64_t i = 0; i < helpers; ++i) {
    driver.workers().run([shared] { shared->help(); });
  }
  grid.work();
  shared->close();
}

// What cooperative_groups finds by %envreg1 and %envreg2: a size and a barrier.
class Workspace {
 public:
  Workspace(Device& device, bool wanted) : device_(device) {
    if (!wanted) return;
    const auto address = device_.memory().allocate(kBytes);
    if (!address) return;
    address_ = *address;
    std::memset(pointer_at(address_), 0, kBytes);
    std::memcpy(pointer_at(address_), &kBytes, sizeof kBytes);
    device_.map().add(address_, kBytes);
  }
  ~Workspace() {
    if (address_ == 0) return;
    device_.map().remove(address_, kBytes);
    device_.memory().release(address_, kBytes);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  std::uint64_t address() const { return address_; }

 private:
  static constexpr std::uint32_t kBytes = 512;
  Device& device_;
  std::uint64_t address_ = 0;
};

// A kernel that the host launched, with all its descendants.
class KernelRun {
 public:
  KernelRun(Driver& driver, Context& context, const SetConditional& set_conditional,
            std::uint64_t time_max_ns)
      : driver_(driver), context_(context), set_conditional_(set_conditional) {
    if (time_max_ns != 0) family_.deadline_ns = now_ns() + static_cast<std::int64_t>(time_max_ns);
  }

  void run(const Function& function, ptx::Launch launch, const ImageBindings& bindings) {
    std::vector<DeviceLaunches::Task> tails;
    if (run_grid(function, std::move(launch), bindings, 0, tails)) {
      run_in_order(std::move(tails), 0);
    }
  }

 private:
  static std::int64_t now_ns() { return system_clock().now().ns; }

  // Each with its children; its tails come before what is behind it.
  bool run_in_order(std::vector<DeviceLaunches::Task> tasks, unsigned depth) {
    std::reverse(tasks.begin(), tasks.end());  // The next one is the last.
    while (!tasks.empty()) {
      const DeviceLaunches::Task task = std::move(tasks.back());
      tasks.pop_back();
      std::vector<DeviceLaunches::Task> tails;
      if (!run_task(task, depth, tails)) return false;
      std::move(tails.rbegin(), tails.rend(), std::back_inserter(tasks));
    }
    return true;
  }

  bool run_task(const DeviceLaunches::Task& task, unsigned depth,
                std::vector<DeviceLaunches::Task>& tails) {
    if (context_.fate()->ended() || context_.fate()->error() != CUDA_SUCCESS) return false;
    if (task.kernel == nullptr) return copy(task.copy);
    ptx::Launch launch = make_launch(driver_, context_, task.request);
    if (family_.deadline_ns != 0) {
      const std::int64_t left = family_.deadline_ns - now_ns();
      if (left <= 0) return fail(CUDA_ERROR_LAUNCH_TIMEOUT, task.kernel->code().name);
      launch.time_max_ns = static_cast<std::uint64_t>(left);
    }
    return run_grid(*task.kernel, std::move(launch), *bindings_for(driver_, *task.kernel), depth,
                    tails);
  }

  // The grid and its children. False: a fault, which is the context's from now on.
  bool run_grid(const Function& function, ptx::Launch launch, const ImageBindings& bindings,
                unsigned depth, std::vector<DeviceLaunches::Task>& tails) {
    std::vector<DeviceLaunches::Task> children;
    {
      DeviceLaunches work(driver_, context_, function.module(), family_, depth);
      if (!run_threads(function, std::move(launch), bindings, work)) return false;
      children = work.take_children();
      tails = work.take_tails();
    }
    return run_in_order(std::move(children), depth + 1);
  }

  bool run_threads(const Function& function, ptx::Launch launch, const ImageBindings& bindings,
                   DeviceLaunches& work) {
    const Module& module = *function.module();
    const Workspace workspace(module.device(), launch.cooperative);
    launch.workspace = workspace.address();
    const std::uint64_t blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    const std::uint64_t sms = multiprocessors_for(module.device(), launch.sms.get());
    KernelEnvironment environment(driver_, context_, bindings, set_conditional_, work);
    auto grid = ptx::Grid::make(module.image(), function.kernel(), std::move(launch),
                                module.device().map(), environment);
    if (!grid) {
      context_.fate()->fail(CUDA_ERROR_LAUNCH_FAILED);
      return false;
    }
    context_.add_grid(grid->get());
    work_together(driver_, **grid, blocks, sms, module.device().limits().multiprocessors);
    context_.remove_grid(grid->get());
    const auto& fault = (*grid)->fault();
    return !fault || fail(error_of(fault->kind), fault->kernel);
  }

  bool copy(const ptx::ChildCopy& copy) {
    const ptx::MemoryMap& map = context_.device().map();
    for (std::uint64_t row = 0; row < copy.rows && copy.width != 0; ++row) {
      const std::uint64_t to = copy.to + row * copy.to_pitch;
      const std::uint64_t from = copy.from + row * copy.from_pitch;
      if (!map.valid_range(to, copy.width, true) ||
          (!copy.fill && !map.valid_range(from, copy.width, false))) {
        return fail(CUDA_ERROR_ILLEGAL_ADDRESS, "a copy by a kernel");
      }
      if (copy.fill) {
        std::memset(pointer_at(to), copy.value, copy.width);
      } else {
        std::memmove(pointer_at(to), pointer_at(from), copy.width);
      }
    }
    return true;
  }

  // Always false.
  bool fail(CUresult error, const std::string& kernel) {
    // No call is sure to come that would show it: from now on they fail before they do anything.
    driver_.output().flush();
    context_.fate()->fail(error);
    driver_.driver_log().write(CU_LOG_LEVEL_ERROR,
                               "kernel " + kernel + ": " + cuda::error_name(error));
    return false;
  }

  Driver& driver_;
  Context& context_;
  const SetConditional& set_conditional_;
  KernelFamily family_;
};

}  // namespace

void run_kernel(Driver& driver, Context& context, const Function& function, ptx::Launch launch,
                const ImageBindings& bindings, const SetConditional& set_conditional) {
  KernelRun run(driver, context, set_conditional, launch.time_max_ns);
  run.run(function, std::move(launch), bindings);
}

}  // namespace flyt::softgpu
