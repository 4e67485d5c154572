// Grid: one kernel launch, executed by any number of threads.
//
//   auto module = ptx::parse(text, &log);                    // cuModuleLoad, cuLinkAddData
//   auto program = ptx::translate(*module, &log);            // refuses what cannot be executed
//   for (variable : module.variables()) allocate, copy Image's initial bytes
//   auto image = ptx::Image::load(*program, addresses);      // one per context
//   auto grid = ptx::Grid::make(image, kernel, launch, environment);
//   each worker thread: grid->work();                        // until grid->done()
//   grid->fault()                                            // none: it ran to its end
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "softgpu/interpreter/memory_map.h"
#include "softgpu/ptx/jit_log.h"
#include "softgpu/ptx/module.h"

namespace flyt::ptx {

class DeviceRuntime;
struct Surface;
struct Texture;
class Program;  // Executable form of a Module; not bound to addresses yet. Immutable.

// As GPUs have; nothing is kept in them.
inline constexpr std::uint32_t kRegistersPerBlock = 65536;
inline constexpr std::uint32_t kRegisterUnit = 256;  // Warps get multiples of it.

// What the launch and occupancy calls need to know of a kernel.
struct KernelInfo {
  std::uint32_t function = 0;      // In Module::functions().
  std::uint32_t shared_bytes = 0;  // Static.
  std::uint32_t local_bytes = 0;   // Per thread, of the deepest known call chain.
  std::uint32_t const_bytes = 0;   // Of the module's user .const variables.
  std::uint32_t registers = 0;     // An estimate of what ptxas would allot, 16..128.
  bool recursive = false;          // The call depth is not known: local memory is a guess.
  bool uses_printf = false;
};

// Fails with kUnsupported, and tells `log` the instruction and its line, where a function uses
// what the interpreter lacks; with kNotFound where that is a function of CUDA's device runtime.
// `module` must be complete: parsed alone, or linked.
Result<std::shared_ptr<const Program>> translate(std::shared_ptr<const Module> module, JitLog* log);
const Module& module_of(const Program& program);
// For the kernel at Module::kernels()[index].
const KernelInfo& kernel_info(const Program& program, std::uint32_t index);

// A Program with the addresses of its variables: what a loaded CUmodule is. Immutable.
class Image {
 public:
  // `addresses[i]` belongs to Module::variables()[i]; 0 for .shared ones and others that take no
  // device memory (takes_memory() says which do).
  static std::shared_ptr<const Image> load(std::shared_ptr<const Program> program,
                                           std::vector<std::uint64_t> addresses);
  static bool takes_memory(const Variable& variable) {
    return variable.space == Space::kGlobal || variable.space == Space::kConst;
  }
  // The variable's initial bytes, relocated; shorter than its size where the rest is zero.
  std::vector<std::byte> initial_bytes(std::uint32_t variable) const;

  const Program& program() const { return *program_; }
  const std::vector<std::uint64_t>& addresses() const { return addresses_; }
  std::span<const std::byte> constants() const { return constants_; }

 private:
  std::shared_ptr<const Program> program_;
  std::vector<std::uint64_t> addresses_;
  std::vector<std::byte> storage_;
  std::span<const std::byte> constants_;  // Rows of 32 equal values, 64-byte aligned.
};

struct Launch {
  std::array<std::uint32_t, 3> grid = {1, 1, 1};
  std::array<std::uint32_t, 3> block = {1, 1, 1};
  std::array<std::uint32_t, 3> cluster = {1, 1, 1};
  bool in_clusters = false;  // The launch or the kernel names their size, be it one block.
  std::uint32_t dynamic_shared_bytes = 0;
  std::uint32_t stack_bytes = 0;  // cuCtxSetLimit(CU_LIMIT_STACK_SIZE); 0: the default.
  bool cooperative = false;       // All blocks are resident at once.
  std::uint64_t grid_id = 0;
  std::uint64_t workspace = 0;  // Of a cooperative grid: %envreg1 (high) and %envreg2.
  std::uint32_t sm_count = 1;   // %nsmid; %smid is below it.
  // The multiprocessors that blocks run on, as %smid tells them; null: all.
  std::shared_ptr<const std::vector<std::uint16_t>> sms;
  std::uint64_t instructions_max = 0;  // Warp instructions of the whole grid; 0: no limit.
  std::uint64_t time_max_ns = 0;       // Of the whole grid; 0: no limit.
  std::vector<std::byte> parameters;   // Laid out by Parameter::offset; shorter ones read 0.
};

enum class FaultKind : std::uint8_t {
  kIllegalAddress,      // CUDA_ERROR_ILLEGAL_ADDRESS
  kMisalignedAddress,   // CUDA_ERROR_MISALIGNED_ADDRESS
  kIllegalInstruction,  // CUDA_ERROR_ILLEGAL_INSTRUCTION: brkpt, impossible operands
  kInvalidPc,           // CUDA_ERROR_INVALID_PC: a call to what is no function
  kStackOverflow,       // CUDA_ERROR_HARDWARE_STACK_ERROR
  kTrap,                // CUDA_ERROR_LAUNCH_FAILED
  kAssert,              // CUDA_ERROR_ASSERT
  kTimeout,             // CUDA_ERROR_LAUNCH_TIMEOUT: a limit, or threads that wait for ever
  kStopped,             // Grid::stop() was called
  kResources,           // CUDA_ERROR_OUT_OF_MEMORY: the host has no memory for its registers
};

struct Fault {
  FaultKind kind = FaultKind::kTrap;
  std::string kernel;
  std::uint32_t line = 0;  // Of the PTX text.
  std::array<std::uint32_t, 3> block = {0, 0, 0};
  std::array<std::uint32_t, 3> thread = {0, 0, 0};
  std::uint64_t address = 0;  // What it touched, where that is the fault.
};

// "illegal address 0x10 in kernel 'f', PTX line 12, block (0,0,0), thread (3,0,0)"
std::string to_string(const Fault& fault);

// What a running kernel asks of its device. Called from all worker threads at once.
class Environment {
 public:
  virtual ~Environment() = default;
  // The text of one printf call of one thread.
  virtual void print(std::string_view text) = 0;
  // The line of a failed assert(); the fault follows.
  virtual void assertion(std::string_view text) = 0;
  // The device heap: malloc() and free() in kernels. 0: no memory. Addresses are 16-aligned.
  virtual std::uint64_t allocate(std::uint64_t bytes) = 0;
  virtual void release(std::uint64_t address) = 0;
  // What a handle in a kernel, or the address of a .texref or .surfref, stands for; null: nothing.
  // Lives as long as the grid.
  virtual const Texture* texture(std::uint64_t) { return nullptr; }
  virtual const Surface* surface(std::uint64_t) { return nullptr; }
  // cudaGraphSetConditional; false where the graph that runs, if any, has no such handle.
  virtual bool set_conditional(std::uint64_t handle, std::uint32_t value) {
    static_cast<void>(handle);
    static_cast<void>(value);
    return false;
  }
  // For kernels that launch kernels; null: they are faults.
  virtual DeviceRuntime* runtime() { return nullptr; }
};

class Grid {
 public:
  // Refuses what no device could run (more than 1024 threads a block, sizes of zero, ...); the
  // caller has checked the limits of its device. All references must outlive the grid.
  static Result<std::unique_ptr<Grid>> make(std::shared_ptr<const Image> image,
                                            std::uint32_t kernel_index, Launch launch,
                                            const MemoryMap& memory, Environment& environment);
  virtual ~Grid() = default;

  // Executes blocks until no more are to be begun. Any number of threads may call it, at any
  // time, once each; returns at once where nothing is left.
  virtual void work() = 0;
  // No block is left, running or to be begun: fault() is final.
  virtual bool done() const = 0;
  // Makes every worker return soon, with FaultKind::kStopped. Safe from any thread.
  virtual void stop() = 0;
  // The first fault. Only once done().
  virtual const std::optional<Fault>& fault() const = 0;
};

// All of it on the calling thread.
std::optional<Fault> run(std::shared_ptr<const Image> image, std::uint32_t kernel_index,
                         Launch launch, const MemoryMap& memory, Environment& environment);

}  // namespace flyt::ptx
