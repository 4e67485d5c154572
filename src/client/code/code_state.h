// CodeState: modules, libraries, kernels, functions and links as the program sees them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "client/answer_cache.h"
#include "client/code/jit_options.h"
#include "client/handle_table.h"
#include "cuda/async_callbacks.h"
#include "cuda/core_dump.h"
#include "cuda/driver_log.h"
#include "cuda/types.h"

namespace flyt::client {

struct ContextState;
class Recovery;  // How the session goes on elsewhere: client/recovery/recovery.h.

// How code travels, as the URL has it.
struct CodeSending {
  bool named = false;   // By its hash first: the server may have it already.
  bool packed = false;  // Compressed wherever that makes it smaller; else on slow links only.
};

// Where one parameter lies in the packed parameters of a kernel.
struct Parameter {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
};

// What a kernel is, whatever device runs it. Constant.
struct KernelCode {
  // More than any kernel takes.
  static constexpr std::uint32_t kParameterBytesMax = 32768;

  std::string name;
  std::vector<Parameter> parameters;
  std::uint32_t parameter_bytes = 0;  // The end of the last one.
};

// Launch configurations that the driver has accepted before: those are posted, all others wait for
// its verdict. Safe from any thread; forgets now and then, which costs one wait.
class AcceptedLaunches {
 public:
  bool contains(std::uint64_t key) const {
    for (const auto& known : keys_) {
      if (known.load(std::memory_order_relaxed) == key) return true;
    }
    return false;
  }
  void add(std::uint64_t key) {
    const std::uint32_t turn = next_.fetch_add(1, std::memory_order_relaxed);
    keys_[turn % keys_.size()].store(key, std::memory_order_relaxed);
  }
  // Whether any configuration was accepted: the function is loaded and has run.
  bool any() const { return keys_[0].load(std::memory_order_relaxed) != 0; }
  void clear() {
    next_.store(0, std::memory_order_relaxed);
    for (auto& key : keys_) key.store(0, std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<std::uint64_t>, 8> keys_{};
  std::atomic<std::uint32_t> next_{0};
};

// A function, or a kernel, on one device. Safe from any thread.
struct FunctionFacts {
  std::atomic<bool> described{false};
  std::array<std::atomic<std::int32_t>, CU_FUNC_ATTRIBUTE_MAX> attributes{};
  std::atomic<std::uint32_t> known{0};  // Bit i: the driver knows attribute i.
  AcceptedLaunches accepted;
  // Counts changes of attributes, so that answers from before one are not used after it.
  std::atomic<std::uint64_t> version{0};

  // Whether setting an attribute to this value would change nothing. Libraries do that before each
  // launch. What can only be read is for the driver to refuse.
  bool has(std::uint32_t index, std::int32_t value) const {
    constexpr std::uint32_t kSettable =
        1U << CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES |
        1U << CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT |
        1U << CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED |
        1U << CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
    return (kSettable & known.load(std::memory_order_relaxed) & 1U << index) != 0 &&
           described.load(std::memory_order_acquire) &&
           attributes[index].load(std::memory_order_relaxed) == value;
  }
  // An attribute was set: verdicts and occupancy have to be asked for again.
  void set(std::uint32_t index, std::int32_t value) {
    attributes[index].store(value, std::memory_order_relaxed);
    version.fetch_add(1, std::memory_order_relaxed);
    accepted.clear();
  }

  template <class Reply>
  void fill(const Reply& reply) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < attributes.size() && i < reply.attributes.size(); ++i) {
      attributes[i].store(reply.attributes[i], std::memory_order_relaxed);
      if (i < reply.known.size() && reply.known[i] != 0) bits |= 1U << i;
    }
    known.store(bits, std::memory_order_relaxed);
    described.store(true, std::memory_order_release);
  }
  void reset() {
    described.store(false, std::memory_order_relaxed);
    known.store(0, std::memory_order_relaxed);
    accepted.clear();
  }
};

// What cuFuncSetBlockShape and cuParamSet* leave for cuLaunch*. Old programs only.
struct LegacyLaunch {
  std::array<std::uint32_t, 3> block{1, 1, 1};
  std::uint32_t shared_bytes = 0;
  std::vector<std::byte> values;    // Of parameters, those between them zero.
  std::size_t parameter_bytes = 0;  // So many of them count, as cuParamSetSize was told.
};

struct FunctionState {
  std::uint64_t handle = 0;
  ContextState* context = nullptr;
  std::uint64_t module = 0;  // 0 for a kernel's function until its module was asked for.
  std::uint64_t kernel = 0;  // 0 for a module's own function.
  std::shared_ptr<const KernelCode> code;
  FunctionFacts facts;
  std::unique_ptr<LegacyLaunch> legacy;

  void reset() {
    handle = module = kernel = 0;
    context = nullptr;
    code.reset();
    facts.reset();
    legacy.reset();
  }
};

struct ModuleState {
  std::uint64_t handle = 0;
  ContextState* context = nullptr;
  std::uint64_t library = 0;  // 0 unless it is the module of a library in one context.
  // Both guarded by CodeState::mutex.
  std::map<std::string, std::uint64_t, std::less<>> functions;
  std::map<std::string, std::pair<CUdeviceptr, std::size_t>, std::less<>> globals;

  void reset() {
    handle = library = 0;
    context = nullptr;
    functions.clear();
    globals.clear();
  }
};

struct KernelState {
  std::uint64_t handle = 0;
  std::uint64_t library = 0;
  std::shared_ptr<const KernelCode> code;
  std::unique_ptr<FunctionFacts[]> facts;  // One a device.
  // Whether attributes of a function of it were set alone: each of them has its own facts since.
  std::atomic<bool> apart{false};
  // Its function in each context. Guarded by CodeState::mutex.
  std::vector<std::pair<ContextState*, std::uint64_t>> functions;

  void reset() {
    handle = library = 0;
    code.reset();
    facts.reset();
    apart.store(false, std::memory_order_relaxed);
    functions.clear();
  }
};

struct LibraryState {
  std::uint64_t handle = 0;
  // All guarded by CodeState::mutex.
  std::map<std::string, std::uint64_t, std::less<>> kernels;
  std::vector<std::pair<ContextState*, std::uint64_t>> modules;

  void reset() {
    handle = 0;
    kernels.clear();
    modules.clear();
  }
};

// What was added to a link, for adding it again.
struct LinkInput {
  CUjitInputType type{};
  std::string name;
  std::vector<std::byte> data;
  std::vector<std::int32_t> options;
  std::vector<std::uint64_t> values;
};

struct LinkState {
  ContextState* context = nullptr;
  std::unique_ptr<JitOptions> options;  // With the program's log buffers; live until destroyed.
  std::vector<LinkInput> inputs;        // Until the cubin is here; none where nobody needs them.
  std::vector<std::byte> cubin;         // The finished one, which the program may read.
  bool complete = false;
  bool fetched = false;  // Nothing is left for the server to do.

  void reset() {
    options.reset();
    inputs.clear();
    cubin.clear();
    complete = fetched = false;
  }
};

// A tensor map's bytes: programs align theirs to 64 bytes only.
using TensorMapBytes = std::array<std::byte, sizeof(CUtensorMap)>;

// Threads that look for the same thing at once shall get the same handle: one asks, and the others
// wait for what it finds. Safe from any thread.
class Lookups {
 public:
  // `holder`: the handle of what the thing is in or of. Some other things have the same lock.
  std::mutex& of(std::uint64_t holder, std::string_view name = {}) {
    const std::size_t mixed = std::hash<std::uint64_t>{}(holder * 0x9e3779b97f4a7c15U >> 32) ^
                              std::hash<std::string_view>{}(name);
    return mutexes_[mixed % mutexes_.size()];
  }

 private:
  std::array<std::mutex, 16> mutexes_;
};

// Safe from any thread.
struct CodeState {
  CodeState();

  HandleTable<ModuleState> modules;
  HandleTable<LibraryState> libraries;
  HandleTable<FunctionState> functions;
  HandleTable<KernelState> kernels;
  HandleTable<LinkState> links;
  AnswerCache<std::uint64_t> occupancy;
  AnswerCache<TensorMapBytes> tensor_maps;
  // Handles of uploads are used once and never looked up.
  std::atomic<std::uint32_t> uploads{0};
  // How code travels: set when the session opens; names_code ends when the server keeps none.
  CodeSending sending;
  std::atomic<bool> names_code{false};
  // Keeps what was loaded; null where nobody does. Set when the session opens.
  Recovery* recovery = nullptr;
  // Held before `mutex`, and while the server answers.
  Lookups lookups;
  std::mutex mutex;
  // What programs ask about failures.
  cuda::CoreDumpSettings core_dumps;
  cuda::DriverLog driver_log;
  cuda::AsyncCallbacks async_callbacks;

  std::uint64_t next_upload() {
    const std::uint32_t number = uploads.fetch_add(1, std::memory_order_relaxed);
    return wire::Handle::make(wire::HandleKind::kUpload,
                              number / wire::kHandleIndexMax % wire::kHandleGenerationMax + 1,
                              number % wire::kHandleIndexMax + 1)
        .value;
  }

  // Drops what lives in a context: its modules and functions.
  void on_context_destroyed(const ContextState& context);
  // Code that is loaded no more.
  void forget_code(std::uint64_t handle) const;
  // Drops a module, its functions and what it noted of globals.
  void forget_module(std::uint64_t handle);
};

}  // namespace flyt::client
