#include "tests/recovery/survivor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/random.h"
#include "tests/recovery/belongings.h"
#include "tests/recovery/held_calls.h"
#include "tests/recovery/host_step.h"
#include "tests/recovery/kept_graphs.h"
#include "tests/recovery/placed_code.h"
#include "tests/recovery/quick_waits.h"
#include "tests/recovery/spares.h"
#include "tests/recovery/survivor_code.h"
#include "tests/support/cuda_table.h"

namespace flyt::tests {
namespace {

constexpr std::uint32_t kWordsOfKernel = 256;

// Small ones share a block, large ones have their own.
constexpr std::array<std::size_t, 8> kSizes = {4096,       1000,        512 * kKiB,  3 * kMiB,
                                               300 * kKiB, 1024 * kKiB, 2560 * kKiB, 12'345};

class Survivor {
 public:
  explicit Survivor(std::uint64_t seed) : cu_(client_table()), random_(seed) {}

  static std::string text(CUresult result) { return std::to_string(static_cast<int>(result)); }

  std::string set_up() {
    std::string wrong;
    const auto must = [&](CUresult result, const char* what) {
      if (result != CUDA_SUCCESS && wrong.empty()) wrong = std::string(what) + " " + text(result);
    };
    must(cu_.cuInit(0), "cuInit");
    if (!wrong.empty()) return wrong;
    must(cu_.cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
    must(cu_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    must(cu_.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048), "cuCtxSetLimit");
    must(cu_.cuModuleLoadData(&module_, kPtx), "cuModuleLoadData");
    must(cu_.cuModuleGetFunction(&add_, module_, "add_one"), "cuModuleGetFunction");
    must(cu_.cuFuncSetAttribute(add_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096),
         "cuFuncSetAttribute");
    must(cu_.cuLibraryLoadData(&library_, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0),
         "cuLibraryLoadData");
    must(cu_.cuLibraryGetKernel(&kernel_, library_, "add_one"), "cuLibraryGetKernel");
    must(cu_.cuKernelGetFunction(&kernel_function_, kernel_), "cuKernelGetFunction");
    for (CUstream& stream : streams_) {
      must(cu_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
    for (CUevent& event : events_) must(cu_.cuEventCreate(&event, 0), "cuEventCreate");
    must(cu_.cuMemHostAlloc(&pinned_, kWordsOfKernel * 4, CU_MEMHOSTALLOC_DEVICEMAP * 0),
         "cuMemHostAlloc");
    must(cu_.cuMemAlloc_v2(&word_, 4), "cuMemAlloc");
    must(cu_.cuMemsetD32_v2(word_, 0, 1), "cuMemsetD32");
    counting_ = pointing_ = nullptr;
    // It is no context's.
    for (const Pooled& pooled : pool_memory_) cu_.cuMemFree_v2(pooled.address);
    if (pool_ != nullptr) cu_.cuMemPoolDestroy(pool_);
    pool_ = nullptr;
    pool_memory_.clear();
    for (const Mapped& mapped : mapped_) {
      cu_.cuMemUnmap(mapped.address, kMappedBytes);
      if (mapped.allocation != 0) cu_.cuMemRelease(mapped.allocation);
    }
    mapped_.clear();
    graphs_.forget();
    memory_.clear();
    for (const std::size_t size : kSizes) {
      CUdeviceptr address = 0;
      must(cu_.cuMemAlloc_v2(&address, size), "cuMemAlloc");
      if (!wrong.empty()) return wrong;
      fill(address, size);
    }
    must(cu_.cuCtxSynchronize(), "cuCtxSynchronize");
    return wrong.empty() ? "ok" : wrong;
  }

  // All memory is as it was left.
  std::string verify() {
    for (const auto& [address, expected] : memory_) {
      const CUresult result = read(address, expected.size());
      if (result != CUDA_SUCCESS) return "cuMemcpyDtoH " + text(result);
      if (found_ != expected) return "memory of " + std::to_string(found_.size()) + " changed";
    }
    return "ok";
  }

  // Uses everything that there is.
  std::string use() {
    if (std::string wrong = verify(); wrong != "ok") return wrong;
    for (const CUfunction function : {add_, kernel_function_}) {
      for (std::size_t i = 0; i < streams_.size(); ++i) {
        if (std::string wrong = launch(function, streams_[i], events_[i]); wrong != "ok") {
          return wrong;
        }
      }
    }
    int shared = 0;
    std::size_t stack = 0;
    CUresult result =
        cu_.cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, add_);
    if (result == CUDA_SUCCESS) result = cu_.cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE);
    if (result != CUDA_SUCCESS || shared != 4096 || stack != 2048) return "attributes changed";
    if (std::string wrong = count(); wrong != "ok") return wrong;
    if (std::string wrong = bump(); wrong != "ok") return wrong;
    if (std::string wrong = use_pools(); wrong != "ok") return wrong;
    if (std::string wrong = use_mapped(); wrong != "ok") return wrong;
    if (std::string wrong = graphs_.use(); wrong != "ok") return wrong;
    return churn();
  }

  // Has a module and a library with variables, which use() counts in from then on.
  std::string load_variables() {
    CUresult result = cu_.cuModuleLoadData(&counting_, kPtxWithVariables);
    if (result == CUDA_SUCCESS) {
      result = cu_.cuLibraryLoadData(&counting_library_, kPtxWithVariables, nullptr, nullptr, 0,
                                     nullptr, nullptr, 0);
    }
    if (result != CUDA_SUCCESS) return text(result);
    step_ = 0;
    notes_ = counter_ = library_counter_ = 0;
    count_ = library_count_ = 5;
    return count();
  }
  // The program knows where they are, and has written one that kernels only read.
  std::string learn_addresses() {
    CUdeviceptr step = 0;
    CUresult result = cu_.cuModuleGetGlobal_v2(&counter_, nullptr, counting_, "counter");
    if (result == CUDA_SUCCESS)
      result = cu_.cuModuleGetGlobal_v2(&step, nullptr, counting_, "step");
    step_ = 3;
    if (result == CUDA_SUCCESS) result = cu_.cuMemcpyHtoD_v2(step, &step_, sizeof step_);
    return result == CUDA_SUCCESS ? "ok" : text(result);
  }
  // Nothing was done since they were asked for.
  std::string learn_more() {
    const CUresult result =
        cu_.cuLibraryGetGlobal(&library_counter_, nullptr, counting_library_, "counter");
    return result == CUDA_SUCCESS ? "ok" : text(result);
  }
  // The library's are there before the module's.
  std::string load_library_first() {
    CUresult result = cu_.cuLibraryLoadData(&counting_library_, kPtxWithVariables, nullptr, nullptr,
                                            0, nullptr, nullptr, 0);
    CUkernel kernel = nullptr;
    if (result == CUDA_SUCCESS) {
      result = cu_.cuLibraryGetKernel(&kernel, counting_library_, "count");
    }
    if (result == CUDA_SUCCESS) result = cu_.cuModuleLoadData(&counting_, kPtxWithVariables);
    counter_ = library_counter_ = 0;
    notes_ = step_ = 0;
    count_ = library_count_ = 5;
    return result == CUDA_SUCCESS ? count() : text(result);
  }
  // The program asks for no address, but kernels use those of the table.
  std::string load_pointers() {
    const CUresult result = cu_.cuModuleLoadData(&pointing_, kPtxWithPointers);
    bumps_ = 0;
    return result == CUDA_SUCCESS ? bump() : text(result);
  }
  std::string bump() {
    if (pointing_ == nullptr) return "ok";
    std::array<std::uint64_t, 2> found{};
    CUfunction function = nullptr;
    CUresult result = cu_.cuModuleGetFunction(&function, pointing_, "bump");
    if (result == CUDA_SUCCESS) result = run(function, found);
    if (result != CUDA_SUCCESS) return "bump " + text(result);
    ++bumps_;
    return found == std::array{5 + bumps_, 70 + bumps_ + 1000 * bumps_} ? "ok" : "bumps changed";
  }
  // A kernel stores where a variable is: in new memory of some kind, or in another variable.
  std::string store_address(const std::string& where) {
    CUdeviceptr place = 0;
    CUresult result = CUDA_SUCCESS;
    CUfunction function = nullptr;
    Mapped mapped;
    if (where == "pinned") {
      place = address_of(pinned_);
    } else if (where == "mapping" || where == "hidden" || where == "closed") {
      result = cu_.cuMemAddressReserve(&mapped.address, kMappedBytes, 0, 0, 0);
      if (result == CUDA_SUCCESS) result = map(mapped);
      place = mapped.address + kMappedBytes - 16;
    } else if (where == "pool") {
      result = cu_.cuMemAllocAsync(&place, kMiB, nullptr);
    } else {
      result = cu_.cuMemAlloc_v2(&place, kMiB);
      place += kMiB - 16;
    }
    if (result == CUDA_SUCCESS) {
      result = cu_.cuModuleGetFunction(&function, pointing_, where == "variable" ? "keep" : "tell");
    }
    void* parameters[] = {&place};
    if (result == CUDA_SUCCESS) {
      result = cu_.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
    }
    if (result == CUDA_SUCCESS) result = cu_.cuCtxSynchronize();
    if (result == CUDA_SUCCESS && where == "hidden") {
      result = cu_.cuMemUnmap(mapped.address, kMappedBytes);
    }
    if (result == CUDA_SUCCESS && where == "closed") {
      result = open(mapped, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
    return text(result);
  }
  // Has memory that is mapped nowhere, and some that is closed; both hold something.
  std::string hide_memory() {
    CUresult result = cu_.cuMemAddressReserve(&hidden_.address, kMappedBytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) result = map(hidden_);
    if (result == CUDA_SUCCESS) result = cu_.cuMemUnmap(hidden_.address, kMappedBytes);
    if (result == CUDA_SUCCESS) {
      result = cu_.cuMemAddressReserve(&closed_.address, kMappedBytes, 0, 0, 0);
    }
    if (result == CUDA_SUCCESS) result = map(closed_);
    if (result == CUDA_SUCCESS) result = open(closed_, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    return text(result);
  }
  // It holds that again.
  std::string show_memory() {
    CUresult result = cu_.cuMemMap(hidden_.address, kMappedBytes, 0, hidden_.allocation, 0);
    for (const Mapped* memory : {&hidden_, &closed_}) {
      if (result == CUDA_SUCCESS) result = open(*memory);
      if (result == CUDA_SUCCESS) result = read(memory->address, kMappedBytes);
      if (result == CUDA_SUCCESS && found_ != memory->bytes) return "hidden memory changed";
    }
    return text(result);
  }
  // The same code in another place: what was loaded before it goes.
  std::string move_variables() {
    CUmodule filler = nullptr;
    CUresult result = cu_.cuModuleLoadData(&filler, kPtxWithVariables);
    if (result == CUDA_SUCCESS && load_variables() != "ok") return "load_variables";
    if (result == CUDA_SUCCESS) result = cu_.cuModuleUnload(filler);
    return result == CUDA_SUCCESS ? count() : text(result);
  }
  // Has memory of pools, of which one has been destroyed, and which use() uses from then on.
  std::string make_pools() {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.maxSize = 256 * kMiB;
    CUmemoryPool dying = nullptr;
    CUmemoryPool usual = nullptr;
    CUresult result = cu_.cuMemPoolCreate(&pool_, &properties);
    if (result == CUDA_SUCCESS) result = cu_.cuMemPoolCreate(&dying, &properties);
    if (result == CUDA_SUCCESS) result = cu_.cuDeviceGetDefaultMemPool(&usual, 0);
    std::uint64_t threshold = kThreshold;
    if (result == CUDA_SUCCESS) {
      result = cu_.cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    }
    int no = 0;
    if (result == CUDA_SUCCESS) {
      result = cu_.cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &no);
    }
    for (CUmemoryPool pool : {usual, pool_, dying}) {
      for (const std::size_t size : kPoolSizes) {
        CUdeviceptr address = 0;
        if (result == CUDA_SUCCESS) {
          result = cu_.cuMemAllocFromPoolAsync(&address, size, pool, streams_[0]);
        }
        if (result != CUDA_SUCCESS) return "pools " + text(result);
        pool_memory_.push_back({pool, address, {}});
        result = fill_pooled(pool_memory_.back(), size);
      }
    }
    // One hole, and one that is reserved and has nothing in it.
    if (result == CUDA_SUCCESS) result = cu_.cuMemFreeAsync(pool_memory_[1].address, streams_[1]);
    pool_memory_.erase(pool_memory_.begin() + 1);
    if (result == CUDA_SUCCESS) result = cu_.cuMemPoolDestroy(dying);
    return result == CUDA_SUCCESS ? waits_.answer("sync") : text(result);
  }
  std::string use_pools() {
    if (pool_ == nullptr) return "ok";
    std::uint64_t used = 0;
    for (const Pooled& pooled : pool_memory_) {
      const CUresult result = read(pooled.address, pooled.bytes.size());
      if (result != CUDA_SUCCESS) return "a pool's memory " + text(result);
      if (found_ != pooled.bytes) return "a pool's memory changed";
      if (pooled.pool == pool_) used += found_.size();
    }
    std::uint64_t threshold = 0;
    std::uint64_t used_now = 0;
    int opportunistic = 1;
    CUresult result =
        cu_.cuMemPoolGetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    if (result == CUDA_SUCCESS) {
      result = cu_.cuMemPoolGetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used_now);
    }
    if (result == CUDA_SUCCESS) {
      result = cu_.cuMemPoolGetAttribute(pool_, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                                         &opportunistic);
    }
    if (result != CUDA_SUCCESS) return "pools " + text(result);
    if (threshold != kThreshold || used_now != used || opportunistic != 0) return "a pool changed";
    // One goes, another one comes.
    Pooled& victim = pool_memory_[random_.below(2)];
    const std::size_t size = victim.bytes.size();
    CUstream stream = streams_[random_.below(streams_.size())];
    result = cu_.cuMemFreeAsync(victim.address, stream);
    if (result == CUDA_SUCCESS) {
      result = cu_.cuMemAllocFromPoolAsync(&victim.address, size, victim.pool, stream);
    }
    if (result == CUDA_SUCCESS) result = cu_.cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS) result = fill_pooled(victim, size);
    return result == CUDA_SUCCESS ? "ok" : "pools " + text(result);
  }

  // Has memory of its own mapping, as allocators that grow have, which use() uses from then on.
  std::string make_mapped() {
    CUresult result = cu_.cuMemAddressReserve(&reserved_, kMappedBytes * 8, 0, 0, 0);
    for (std::size_t i = 0; i < 4 && result == CUDA_SUCCESS; ++i) {
      mapped_.push_back({reserved_ + i * kMappedBytes, 0, {}});
      result = map(mapped_.back());
    }
    // Of one only the mapping is left; of another one only the memory.
    if (result == CUDA_SUCCESS) result = cu_.cuMemRelease(mapped_[1].allocation);
    mapped_[1].allocation = 0;
    if (result == CUDA_SUCCESS) result = cu_.cuMemUnmap(mapped_[3].address, kMappedBytes);
    return text(result);
  }
  std::string use_mapped() {
    if (mapped_.empty()) return "ok";
    // That which is not mapped.
    CUresult result = cu_.cuMemMap(mapped_[3].address, kMappedBytes, 0, mapped_[3].allocation, 0);
    if (result == CUDA_SUCCESS) result = open(mapped_[3]);
    for (const Mapped& mapped : mapped_) {
      if (result == CUDA_SUCCESS) result = read(mapped.address, mapped.bytes.size());
      if (result == CUDA_SUCCESS && found_ != mapped.bytes) return "mapped memory changed";
    }
    if (result == CUDA_SUCCESS) result = cu_.cuMemUnmap(mapped_[3].address, kMappedBytes);
    // One goes, another one comes.
    Mapped& victim = mapped_[random_.below(3)];
    const bool mapping_only = victim.allocation == 0;
    if (result == CUDA_SUCCESS) result = cu_.cuMemUnmap(victim.address, kMappedBytes);
    if (result == CUDA_SUCCESS && !mapping_only) result = cu_.cuMemRelease(victim.allocation);
    if (result == CUDA_SUCCESS) result = map(victim);
    if (result == CUDA_SUCCESS && mapping_only) {
      result = cu_.cuMemRelease(std::exchange(victim.allocation, 0));
    }
    return result == CUDA_SUCCESS ? "ok" : "mapped " + text(result);
  }

  // Kernels count, and find what they have counted before.
  std::string count() {
    if (counting_ == nullptr) return "ok";
    std::array<std::uint64_t, 2> found{};
    CUfunction count = nullptr;
    CUkernel kernel = nullptr;
    CUresult result = cu_.cuModuleGetFunction(&count, counting_, "peek");
    if (result == CUDA_SUCCESS) result = run(count, found);
    if (result == CUDA_SUCCESS && found != std::array{count_, notes_}) return "variables changed";
    if (result == CUDA_SUCCESS) result = cu_.cuModuleGetFunction(&count, counting_, "count");
    if (result == CUDA_SUCCESS) result = run(count, found);
    notes_ = count_ += 1 + step_;
    if (result == CUDA_SUCCESS && found[0] != count_) return "a counter changed";
    if (result == CUDA_SUCCESS) {
      result = cu_.cuLibraryGetKernel(&kernel, counting_library_, "count");
    }
    // Launches take kernels as they are.
    count = static_cast<CUfunction>(static_cast<void*>(kernel));
    if (result == CUDA_SUCCESS) result = run(count, found);
    if (result == CUDA_SUCCESS && found[0] != ++library_count_)
      return "a library's counter changed";
    for (const auto& [address, value] :
         {std::pair(counter_, count_), std::pair(library_counter_, library_count_)}) {
      std::uint32_t word = 0;
      if (result != CUDA_SUCCESS || address == 0) continue;
      result = cu_.cuMemcpyDtoH_v2(&word, address, sizeof word);
      if (result == CUDA_SUCCESS && word != value) return "a counter is not where it was";
    }
    return result == CUDA_SUCCESS ? "ok" : "count " + text(result);
  }

  // A function that was never launched, and its first launch, whose verdict is waited for.
  std::string load_fresh() {
    CUmodule module = nullptr;
    CUresult result = cu_.cuModuleLoadData(&module, kPtx);
    if (result == CUDA_SUCCESS) result = cu_.cuModuleGetFunction(&fresh_, module, "add_one");
    return text(result);
  }
  std::string launch_fresh() {
    CUdeviceptr address = memory_.begin()->first;
    void* parameters[] = {&address};
    return text(cu_.cuLaunchKernel(fresh_, 1, 1, 1, 32, 1, 1, 0, streams_[0], parameters, nullptr));
  }

  // What is posted and no work.
  std::string tidy() {
    const auto at = std::next(memory_.begin());
    CUresult result = cu_.cuMemFree_v2(at->first);
    memory_.erase(at);
    if (result == CUDA_SUCCESS) result = cu_.cuEventDestroy_v2(events_[0]);
    if (result == CUDA_SUCCESS) result = cu_.cuEventCreate(&events_[0], CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = cu_.cuStreamDestroy_v2(streams_[0]);
    if (result == CUDA_SUCCESS) result = cu_.cuStreamCreate(&streams_[0], 0);
    return text(result);
  }
  // A launch that is posted, because one like it was accepted, and that the server refuses: what it
  // names is mapped no more.
  std::string launch_in_vain() {
    Mapped mapped;
    CUresult result = cu_.cuMemAddressReserve(&mapped.address, kMappedBytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) result = map(mapped);
    CUlaunchAttribute window{};
    window.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
    window.value.accessPolicyWindow.base_ptr = pointer_at(mapped.address);
    window.value.accessPolicyWindow.num_bytes = 4096;
    CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, streams_[0], &window, 1};
    CUdeviceptr address = word_;
    void* parameters[] = {&address};
    if (result == CUDA_SUCCESS) result = cu_.cuLaunchKernelEx(&config, add_, parameters, nullptr);
    if (result == CUDA_SUCCESS) result = cu_.cuCtxSynchronize();
    if (result == CUDA_SUCCESS) result = cu_.cuMemUnmap(mapped.address, kMappedBytes);
    if (result != CUDA_SUCCESS) return "refused at once " + text(result);
    return text(cu_.cuLaunchKernelEx(&config, add_, parameters, nullptr));
  }
  // The same and a bit of work.
  std::string touch() {
    const auto& [address, bytes] = *memory_.rbegin();
    return text(cu_.cuMemsetD8Async(address, bytes[0], 1, streams_[0]));
  }

  std::string info() {
    std::size_t available = 0;
    std::size_t total = 0;
    const CUresult result = cu_.cuMemGetInfo_v2(&available, &total);
    return result == CUDA_SUCCESS ? std::to_string(total - available) : "failed " + text(result);
  }

  // A value that nobody writes.
  std::string hang() {
    const CUresult result =
        cu_.cuStreamWaitValue32_v2(streams_[0], word_, 1, CU_STREAM_WAIT_VALUE_EQ);
    return text(result);
  }
  // The same in a stream that is destroyed.
  std::string abandon() {
    CUstream stream = nullptr;
    CUresult result = cu_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) {
      result = cu_.cuStreamWaitValue32_v2(stream, word_, 1, CU_STREAM_WAIT_VALUE_EQ);
    }
    if (result == CUDA_SUCCESS) result = cu_.cuStreamDestroy_v2(stream);
    return text(result);
  }
  // Behind that, memory gets other contents.
  std::string paint() {
    auto& [address, expected] = *memory_.rbegin();
    std::fill(expected.begin(), expected.end(), std::uint8_t{7});
    return text(cu_.cuMemsetD8Async(address, 7, expected.size(), streams_[0]));
  }
  std::string add() {
    expect_one_more();
    return text(post_launch(add_, streams_[0]));
  }
  std::string release() {
    const CUresult result = cu_.cuMemsetD32Async(word_, 1, 1, streams_[1]);
    return result == CUDA_SUCCESS ? waits_.answer("sync") : text(result);
  }
  // A kernel that writes where nothing is.
  std::string fault() {
    CUdeviceptr nowhere = 64;
    void* parameters[] = {&nowhere};
    return text(cu_.cuLaunchKernel(add_, 1, 1, 1, 32, 1, 1, 0, streams_[0], parameters, nullptr));
  }
  std::string die_aloud() {
    CUmodule module = nullptr;
    CUfunction die = nullptr;
    cu_.cuModuleLoadData(&module, kPtxThatTells);
    cu_.cuModuleGetFunction(&die, module, "tell_and_die");
    cu_.cuLaunchKernel(die, 1, 1, 1, 1, 1, 1, 0, streams_[0], nullptr, nullptr);
    return waits_.answer("sync");
  }
  // Memory of the context that has an error, by way of another one.
  std::string rescue() {
    CUcontext other = nullptr;
    CUresult result = cu_.cuCtxCreate_v2(&other, 0, 0);
    if (result != CUDA_SUCCESS) return "cuCtxCreate " + text(result);
    std::string found = verify();
    result = cu_.cuCtxDestroy_v2(other);
    cu_.cuCtxSetCurrent(context_);
    return result == CUDA_SUCCESS ? found : "cuCtxDestroy " + text(result);
  }
  std::string reset() {
    const CUresult result = cu_.cuDevicePrimaryCtxReset_v2(0);
    return result == CUDA_SUCCESS ? set_up() : "cuDevicePrimaryCtxReset " + text(result);
  }

  Spares& spares() { return spares_; }
  HeldCalls& held() { return held_; }
  PlacedCode& placed() { return placed_; }
  Belongings& belongings() { return belongings_; }
  KeptGraphs& graphs() { return graphs_; }
  QuickWaits& waits() { return waits_; }
  std::string run_on_host() { return host_.begin(streams_[0]); }
  std::string end_on_host() { return host_.end(streams_[0]); }

  // Code of so many bytes.
  std::string load_long(std::size_t bytes) {
    return load((std::string(kPtx) + "//" + std::string(bytes, 'x') + "\n").c_str());
  }

  // Things that cannot be made again.
  std::string load(const char* ptx) {
    CUmodule module = nullptr;
    return text(cu_.cuModuleLoadData(&module, ptx));
  }
  // A variable of so many bytes.
  std::string load_large(std::size_t bytes) {
    const std::string ptx =
        ".version 7.0\n.target sm_75\n.address_size 64\n"
        ".visible .global .align 16 .b8 large[" +
        std::to_string(bytes) + "];\n";
    return load(ptx.c_str());
  }
  std::string allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    const CUresult result = cu_.cuMemAlloc_v2(&address, bytes);
    if (result != CUDA_SUCCESS) return text(result);
    std::vector<std::uint8_t> edge(kMiB, 0x5a);
    cu_.cuMemcpyHtoD_v2(address, edge.data(), edge.size());
    cu_.cuMemcpyHtoD_v2(address + bytes - edge.size(), edge.data(), edge.size());
    edges_.push_back({address, bytes});
    return waits_.answer("sync");
  }
  // How long the next call takes, in microseconds, and whether the edges of what allocate() made
  // are there.
  std::string time_next() {
    const Instant start = system_clock().now();
    std::size_t available = 0;
    std::size_t total = 0;
    const CUresult result = cu_.cuMemGetInfo_v2(&available, &total);
    const Duration took = system_clock().now() - start;
    if (result != CUDA_SUCCESS) return "failed " + text(result);
    for (const auto& [address, bytes] : edges_) {
      std::vector<std::uint8_t> edge(kMiB);
      for (const std::uint64_t offset : {std::uint64_t{0}, bytes - edge.size()}) {
        cu_.cuMemcpyDtoH_v2(edge.data(), address + offset, edge.size());
        const bool same =
            std::all_of(edge.begin(), edge.end(), [](std::uint8_t byte) { return byte == 0x5a; });
        if (!same) return "memory changed";
      }
    }
    return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(took).count());
  }

 private:
  static constexpr std::size_t kMappedBytes = 4 * kMiB;
  struct Mapped {
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle allocation = 0;
    std::vector<std::uint8_t> bytes;
  };
  CUresult open(const Mapped& mapped,
                CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access.flags = flags;
    return cu_.cuMemSetAccess(mapped.address, kMappedBytes, &access, 1);
  }
  CUresult map(Mapped& mapped) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUresult result = cu_.cuMemCreate(&mapped.allocation, kMappedBytes, &properties, 0);
    if (result == CUDA_SUCCESS) {
      result = cu_.cuMemMap(mapped.address, kMappedBytes, 0, mapped.allocation, 0);
    }
    if (result == CUDA_SUCCESS) result = open(mapped);
    mapped.bytes.assign(kMappedBytes, static_cast<std::uint8_t>(random_.next()));
    if (result != CUDA_SUCCESS) return result;
    result = cu_.cuMemcpyHtoD_v2(mapped.address, mapped.bytes.data(), kMappedBytes);
    // No stream orders what is unmapped next.
    return result == CUDA_SUCCESS ? cu_.cuCtxSynchronize() : result;
  }

  static constexpr std::uint64_t kThreshold = 64 * kMiB;
  static constexpr std::array<std::size_t, 3> kPoolSizes = {1000, 300 * kKiB, 2 * kMiB};
  struct Pooled {
    CUmemoryPool pool = nullptr;
    CUdeviceptr address = 0;
    std::vector<std::uint8_t> bytes;
  };
  CUresult fill_pooled(Pooled& pooled, std::size_t size) {
    pooled.bytes.assign(size, static_cast<std::uint8_t>(random_.next()));
    return cu_.cuMemcpyHtoD_v2(pooled.address, pooled.bytes.data(), size);
  }

  // With memory for two words, which it tells.
  CUresult run(CUfunction function, std::array<std::uint64_t, 2>& words) {
    CUdeviceptr place = 0;
    CUresult result = cu_.cuMemAlloc_v2(&place, sizeof words);
    if (result == CUDA_SUCCESS) result = cu_.cuMemsetD8_v2(place, 0, sizeof words);
    void* parameters[] = {&place};
    if (result == CUDA_SUCCESS) {
      result = cu_.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
    }
    if (result == CUDA_SUCCESS) {
      result = cu_.cuMemcpyDtoH_v2(words.data(), place, sizeof words);
    }
    cu_.cuMemFree_v2(place);
    return result;
  }

  // Into found_: memory that is new each time costs more than the copies.
  CUresult read(CUdeviceptr address, std::size_t size) {
    found_.resize(size);
    return cu_.cuMemcpyDtoH_v2(found_.data(), address, size);
  }

  void fill(CUdeviceptr address, std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
      const std::uint64_t word = random_.next();
      std::memcpy(bytes.data() + at, &word, std::min(sizeof word, size - at));
    }
    cu_.cuMemcpyHtoD_v2(address, bytes.data(), size);
    memory_[address] = std::move(bytes);
  }

  std::string launch(CUfunction function, CUstream stream, CUevent event) {
    const auto& [address, expected] = *memory_.begin();
    CUresult result = post_launch(function, stream);
    if (result == CUDA_SUCCESS) result = cu_.cuEventRecord(event, stream);
    if (result == CUDA_SUCCESS) {
      result = cu_.cuMemcpyDtoHAsync_v2(pinned_, address, 4096 / 4, stream);
    }
    if (result == CUDA_SUCCESS) result = cu_.cuEventSynchronize(event);
    if (result == CUDA_SUCCESS) result = cu_.cuStreamSynchronize(stream);
    if (result != CUDA_SUCCESS) return "launch " + text(result);
    expect_one_more();
    if (std::memcmp(pinned_, expected.data(), 4096 / 4) != 0) {
      return "a kernel's result was wrong, of which its memory says " + verify_first();
    }
    return verify_first();
  }
  CUresult post_launch(CUfunction function, CUstream stream) {
    CUdeviceptr address = memory_.begin()->first;
    void* parameters[] = {&address};
    return cu_.cuLaunchKernel(function, kWordsOfKernel / 32, 1, 1, 32, 1, 1, 0, stream, parameters,
                              nullptr);
  }
  void expect_one_more() {
    std::vector<std::uint8_t>& expected = memory_.begin()->second;
    for (std::size_t i = 0; i < kWordsOfKernel && i * 4 + 4 <= expected.size(); ++i) {
      std::uint32_t word = 0;
      std::memcpy(&word, expected.data() + i * 4, 4);
      ++word;
      std::memcpy(expected.data() + i * 4, &word, 4);
    }
  }
  std::string verify_first() {
    const auto& [address, expected] = *memory_.begin();
    const CUresult result = read(address, expected.size());
    if (result != CUDA_SUCCESS) return "cuMemcpyDtoH " + text(result);
    return found_ == expected ? "ok" : "a kernel's memory was wrong";
  }

  // What there is can go and come.
  std::string churn() {
    const std::size_t victim = 1 + random_.below(memory_.size() - 1);
    const auto at = std::next(memory_.begin(), static_cast<std::ptrdiff_t>(victim));
    const std::size_t size = at->second.size();
    CUresult result = cu_.cuMemFree_v2(at->first);
    memory_.erase(at);
    CUdeviceptr address = 0;
    if (result == CUDA_SUCCESS) result = cu_.cuMemAlloc_v2(&address, size);
    if (result != CUDA_SUCCESS) return "memory " + text(result);
    fill(address, size);
    const std::size_t which = random_.below(streams_.size());
    result = cu_.cuStreamDestroy_v2(streams_[which]);
    if (result == CUDA_SUCCESS) result = cu_.cuStreamCreate(&streams_[which], 0);
    if (result == CUDA_SUCCESS) result = cu_.cuEventDestroy_v2(events_[which]);
    if (result == CUDA_SUCCESS) {
      result = cu_.cuEventCreate(&events_[which], CU_EVENT_DISABLE_TIMING);
    }
    if (result == CUDA_SUCCESS) result = cu_.cuCtxSynchronize();
    return result == CUDA_SUCCESS ? "ok" : "churn " + text(result);
  }

  const driver::Table cu_;
  Random random_;
  std::vector<std::uint8_t> found_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction add_ = nullptr;
  CUfunction fresh_ = nullptr;
  Spares spares_{cu_};
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
  CUfunction kernel_function_ = nullptr;
  std::array<CUstream, 3> streams_{};
  std::array<CUevent, 3> events_{};
  void* pinned_ = nullptr;
  CUdeviceptr word_ = 0;
  CUmemoryPool pool_ = nullptr;
  std::vector<Pooled> pool_memory_;
  CUdeviceptr reserved_ = 0;
  Mapped hidden_;
  Mapped closed_;
  std::vector<Mapped> mapped_;
  CUmodule counting_ = nullptr;
  CUlibrary counting_library_ = nullptr;
  CUmodule pointing_ = nullptr;
  std::uint64_t bumps_ = 0;
  std::uint32_t step_ = 0;
  std::uint64_t count_ = 0;  // What the variables hold.
  std::uint64_t notes_ = 0;
  std::uint64_t library_count_ = 0;
  CUdeviceptr counter_ = 0;  // Where they are; 0: the program has not asked.
  CUdeviceptr library_counter_ = 0;
  std::map<CUdeviceptr, std::vector<std::uint8_t>> memory_;
  std::vector<std::pair<CUdeviceptr, std::uint64_t>> edges_;
  HeldCalls held_{cu_};
  PlacedCode placed_{cu_};
  Belongings belongings_{cu_};
  KeptGraphs graphs_{cu_};
  HostStep host_{cu_};
  QuickWaits waits_{cu_};
};

std::string answer(Survivor& survivor, const std::string& line) {
  std::istringstream words(line);
  std::string what;
  std::size_t bytes = 0;
  words >> what >> bytes;
  if (what == "verify") return survivor.verify();
  if (what == "use") return survivor.use();
  if (what == "info") return survivor.info();
  if (what == "hang") return survivor.hang();
  if (what == "abandon") return survivor.abandon();
  if (what == "paint") return survivor.paint();
  if (what == "add") return survivor.add();
  if (what == "release") return survivor.release();
  if (what == "fault") return survivor.fault();
  if (what == "die-aloud") return survivor.die_aloud();
  if (what == "sync") return survivor.waits().answer("sync");
  if (what.starts_with("waits-")) return survivor.waits().answer(what.substr(6));
  if (what == "rescue") return survivor.rescue();
  if (what == "reset") return survivor.reset();
  if (what == "mapped") return survivor.make_mapped();
  if (what == "pools") return survivor.make_pools();
  if (what == "share") return survivor.spares().share();
  if (what == "variables") return survivor.load_variables();
  if (what == "learn") return survivor.learn_addresses();
  if (what == "learn-more") return survivor.learn_more();
  if (what == "library-first") return survivor.load_library_first();
  if (what == "move") return survivor.move_variables();
  if (what == "host") return survivor.run_on_host();
  if (what == "host-end") return survivor.end_on_host();
  if (what == "long") return survivor.load_long(bytes);
  if (what == "fresh") return survivor.load_fresh();
  if (what == "first") return survivor.launch_fresh();
  if (what == "spares") return survivor.spares().make();
  if (what.starts_with("end-")) return survivor.spares().end(what.substr(4));
  if (what == "held-copy") return survivor.held().copy();
  if (what == "held-load") return survivor.held().load();
  if (what == "held-end") return survivor.held().end();
  if (what == "tidy") return survivor.tidy();
  if (what == "in-vain") return survivor.launch_in_vain();
  if (what == "touch") return survivor.touch();
  if (what == "pointers") return survivor.load_pointers();
  if (what.starts_with("store-in-")) return survivor.store_address(what.substr(9));
  if (what.starts_with("placed-")) return survivor.placed().answer(what.substr(7), bytes);
  if (what.starts_with("graphs-")) return survivor.graphs().answer(what.substr(7));
  if (what == "hide") return survivor.hide_memory();
  if (what == "show") return survivor.show_memory();
  if (what == "large") return survivor.load_large(bytes);
  if (what == "managed") return survivor.load(kPtxWithManaged);
  if (what == "heap") return survivor.load(kPtxWithHeap);
  if (Belongings::knows(what)) return survivor.belongings().answer(what, bytes);
  if (what == "allocate") return survivor.allocate(bytes);
  if (what == "next") return survivor.time_next();
  return "unknown";
}

}  // namespace

int run_survivor(const std::string&, std::uint64_t seed) {
  Survivor survivor(seed);
  const std::string ready = survivor.set_up();
  std::cout << (ready == "ok" ? "ready" : ready) << std::endl;
  if (ready != "ok") return 1;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(survivor, line) << std::endl;
  }
  return 0;
}

}  // namespace flyt::tests
