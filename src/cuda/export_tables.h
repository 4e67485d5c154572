// ExportTables: the private function tables that CUDA's own libraries get by cuGetExportTable.
//
// None of this is a documented interface. Slots that nobody was seen to need are refused by name.
// In most tables the first slot is the table's size in bytes.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/compile_cache.h"
#include "cuda/context_storage.h"
#include "cuda/integrity.h"
#include "cuda/types.h"

namespace flyt::cuda {

// What the tables are about; names are ours where nobody knows theirs.
enum class PrivateTable : std::uint8_t {
  kCudartInterface,
  kToolsTls,
  kToolsHooks,
  kContextStorage,
  kContextChecks,
  kIntegrity,
  kUnknownF8cf,
  kIdentities,
  kChipLayout,
  kNvrtc,
  kModuleFunctions,
};
inline constexpr std::size_t kPrivateTables = 11;

const char* name_of(PrivateTable table);

using Uuid = std::array<std::uint8_t, 16>;
// Indexed by PrivateTable.
extern const std::array<Uuid, kPrivateTables> kPrivateTableUuids;

// Which part of a GPU each TPC belongs to; one byte per TPC of the whole chip.
struct ChipLayout {
  std::vector<std::uint8_t> gpc_of_tpc;
  std::vector<std::uint8_t> index_in_gpc;
};

// The tables of one driver. They are static, so that the addresses handed out are the ones that
// the integrity answer covers. `Driver` has static members:
//   CUresult load_module(CUmodule* module, const void* fatbin_wrapper_or_header);
//   CUresult retain_primary(CUcontext* context, CUdevice device);
//   CUresult storage_context(CUcontext* context);     0 and -1 become the current context
//   ContextStorage& storage();
//   unsigned long long context_id(CUcontext context);   as cuCtxGetId; 0 for what is none
//   CUresult stream_id(CUstream stream, unsigned long long* id);    as cuStreamGetId
//   CUresult chip_layout(ChipLayout* layout);
//   CUresult functions_of(CUmodule module, std::vector<CUfunction>* functions);
//   std::uint32_t driver_version();
//   std::vector<DeviceIdentity> device_identities();
//   CompileCache& compile_cache();
//   CUresult refused_slot(PrivateTable table, unsigned slot);
template <class Driver>
class ExportTables {
 public:
  // Null where the uuid is of no table that we serve.
  static const void* find(const CUuuid& id) {
    const std::array<const void*, kPrivateTables> tables = {
        &kCudart, &kTls,        &kHooks, &kStorage, &kChecks,         &kIntegrity,
        &kF8cf,   &kIdentities, &kChip,  &kNvrtc,   &kModuleFunctions};
    for (std::size_t i = 0; i < kPrivateTables; ++i) {
      if (std::memcmp(kPrivateTableUuids[i].data(), id.bytes, sizeof id.bytes) == 0) {
        return tables[i];
      }
    }
    return nullptr;
  }

 private:
  using Refused = CUresult (*)();

  template <PrivateTable table, unsigned slot>
  static CUresult refused() {
    return Driver::refused_slot(table, slot);
  }
  // Slots [first, first + sizeof...(offset)) of a table, all refused.
  template <PrivateTable table, unsigned first, unsigned... offset>
  static constexpr std::array<Refused, sizeof...(offset)> refuse(
      std::integer_sequence<unsigned, offset...>) {
    return {&refused<table, first + offset>...};
  }
  template <PrivateTable table, unsigned first, unsigned last>
  static constexpr std::array<Refused, last - first + 1> refuse() {
    return refuse<table, first>(std::make_integer_sequence<unsigned, last - first + 1>());
  }

  // cudart interface.
  static CUresult load(CUmodule* module, const void* image) {
    return Driver::load_module(module, image);
  }
  static CUresult load_ex(CUmodule* module, const void* image, void*, void*, unsigned) {
    return Driver::load_module(module, image);
  }
  static CUresult load_header(const void* image, CUmodule* module, void*, void*, unsigned) {
    return Driver::load_module(module, image);
  }
  static CUresult primary(CUcontext* context, CUdevice device) {
    return Driver::retain_primary(context, device);
  }
  static CUresult nothing(std::size_t) { return CUDA_SUCCESS; }
  static CUresult load_compilers() { return CUDA_SUCCESS; }
  struct Cudart {
    std::size_t bytes;
    CUresult (*load)(CUmodule*, const void*);
    CUresult (*primary)(CUcontext*, CUdevice);
    std::array<Refused, 3> slots_3_5;
    CUresult (*load_ex)(CUmodule*, const void*, void*, void*, unsigned);
    CUresult (*nothing)(std::size_t);
    CUresult (*load_header)(const void*, CUmodule*, void*, void*, unsigned);
    std::array<Refused, 3> slots_9_11;
    CUresult (*load_compilers)();
  };
  static_assert(sizeof(Cudart) == 104);
  static constexpr Cudart kCudart = {
      sizeof(Cudart), &load,    &primary,     refuse<PrivateTable::kCudartInterface, 3, 5>(),
      &load_ex,       &nothing, &load_header, refuse<PrivateTable::kCudartInterface, 9, 11>(),
      &load_compilers};

  // Tables of which nothing but the size was ever asked.
  template <PrivateTable table, unsigned slots>
  struct Closed {
    std::size_t bytes = sizeof(Closed);
    std::array<Refused, slots> refused = refuse<table, 1, slots>();
  };
  static constexpr Closed<PrivateTable::kUnknownF8cf, 2> kF8cf = {};
  static_assert(sizeof(kF8cf) == 24);

  // NVRTC's cache. A key is made of what is to be compiled, and given back; so is what is found.
  static CUresult make_key(void** key, std::uint32_t kind, const void* program, std::uint32_t bytes,
                           const char* options, const char* host, const char* compiler,
                           std::uint32_t first, std::uint32_t second) {
    const auto text = [](const char* from) {
      return std::string_view(from == nullptr ? "" : from);
    };
    if (key == nullptr || (program == nullptr && bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
    const CompileRequest request = {
        kind, bytes_at(program, bytes), text(options), text(host), text(compiler), first, second};
    *key = std::make_unique<Digest>(key_of(request)).release();
    return CUDA_SUCCESS;
  }
  static void end_key(void* key) { std::unique_ptr<Digest>(static_cast<Digest*>(key)).reset(); }
  static CUresult find_code(const void* key, int, void** code, std::uint32_t* bytes) {
    if (key == nullptr || code == nullptr || bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto found = Driver::compile_cache().find(*static_cast<const Digest*>(key));
    if (!found) return CUDA_ERROR_NOT_FOUND;
    std::byte* copy = std::allocator<std::byte>().allocate(std::max<std::size_t>(found->size(), 1));
    if (!found->empty()) std::memcpy(copy, found->data(), found->size());
    *code = copy;
    *bytes = static_cast<std::uint32_t>(found->size());
    return CUDA_SUCCESS;
  }
  static CUresult keep_code(const void* key, int, const void* code, std::uint32_t bytes) {
    if (key == nullptr || (code == nullptr && bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
    const Digest& digest = *static_cast<const Digest*>(key);
    return Driver::compile_cache().insert(digest, bytes_at(code, bytes)) ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_UNKNOWN;
  }
  static void end_code(void* code) { ::operator delete(code); }
  struct Nvrtc {
    std::size_t bytes;
    decltype(&ExportTables::make_key) make_key;
    decltype(&ExportTables::end_key) end_key;
    decltype(&ExportTables::find_code) find_code;
    decltype(&ExportTables::keep_code) keep_code;
    Refused slot_5;
    decltype(&ExportTables::end_code) end_code;
  };
  static_assert(sizeof(Nvrtc) == 56);
  static constexpr Nvrtc kNvrtc = {sizeof(Nvrtc), &make_key,  &end_key,
                                   &find_code,    &keep_code, &refused<PrivateTable::kNvrtc, 5>,
                                   &end_code};

  // Tools' thread-local storage: cuBLASLt asks it which context is current.
  static CUresult current(CUcontext* context) {
    *context = nullptr;
    return Driver::storage_context(context);
  }
  struct Tls {
    std::size_t bytes;
    Refused slot_1;
    CUresult (*current)(CUcontext*);
  };
  static_assert(sizeof(Tls) == 24);
  static constexpr Tls kTls = {sizeof(Tls), &refused<PrivateTable::kToolsTls, 1>, &current};

  // Tools' callback hooks: scratch memory.
  static CUresult large_scratch(void** buffer, std::size_t* bytes) {
    // lint: allow(globals): the caller writes here, and expects it to stay.
    static std::array<std::uint64_t, 128> scratch;
    *buffer = scratch.data();
    *bytes = sizeof scratch;
    return CUDA_SUCCESS;
  }
  static CUresult small_scratch(void** buffer, std::size_t* bytes) {
    constexpr std::size_t kSmallBytes = 14;
    // lint: allow(globals): the caller writes here, and expects it to stay.
    static std::array<std::uint64_t, 2> scratch;
    *buffer = scratch.data();
    *bytes = kSmallBytes;
    return CUDA_SUCCESS;
  }
  struct Hooks {
    std::size_t bytes;
    Refused slot_1;
    CUresult (*large_scratch)(void**, std::size_t*);
    std::array<Refused, 3> slots_3_5;
    CUresult (*small_scratch)(void**, std::size_t*);
  };
  static_assert(sizeof(Hooks) == 56);
  static constexpr Hooks kHooks = {sizeof(Hooks), &refused<PrivateTable::kToolsHooks, 1>,
                                   &large_scratch, refuse<PrivateTable::kToolsHooks, 3, 5>(),
                                   &small_scratch};

  // Context-local storage.
  static CUresult put(CUcontext context, void* key, void* value,
                      ContextStorage::Destructor destructor) {
    if (const CUresult bad = Driver::storage_context(&context); bad != CUDA_SUCCESS) return bad;
    Driver::storage().put(context, key, value, destructor);
    return CUDA_SUCCESS;
  }
  static CUresult erase(CUcontext context, void* key) {
    if (const CUresult bad = Driver::storage_context(&context); bad != CUDA_SUCCESS) return bad;
    return Driver::storage().erase(context, key) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  static CUresult get(void** value, CUcontext context, void* key) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult bad = Driver::storage_context(&context); bad != CUDA_SUCCESS) return bad;
    return Driver::storage().get(context, key, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  struct Storage {
    CUresult (*put)(CUcontext, void*, void*, ContextStorage::Destructor);
    CUresult (*erase)(CUcontext, void*);
    CUresult (*get)(void**, CUcontext, void*);
    Refused slot_3;
  };
  static constexpr Storage kStorage = {&put, &erase, &get,
                                       &refused<PrivateTable::kContextStorage, 3>};

  // Context checks.
  static CUresult check(CUcontext, std::uint32_t* result, void**) {
    if (result != nullptr) *result = 0;
    return CUDA_SUCCESS;
  }
  static std::uint32_t check_all() { return 0; }
  struct Checks {
    std::size_t bytes;
    Refused slot_1;
    CUresult (*check)(CUcontext, std::uint32_t*, void**);
    std::uint32_t (*check_all)();
    std::array<Refused, 11> slots_4_14;
  };
  static_assert(sizeof(Checks) == 120);
  static constexpr Checks kChecks = {sizeof(Checks), &refused<PrivateTable::kContextChecks, 1>,
                                     &check, &check_all,
                                     refuse<PrivateTable::kContextChecks, 4, 14>()};

  // Integrity.
  struct Integrity {
    std::size_t bytes;
    CUresult (*answer)(std::uint32_t, std::uint64_t, std::uint64_t*);
    Refused slot_2;
  };
  static_assert(sizeof(Integrity) == 24);
  static CUresult answer(std::uint32_t version, std::uint64_t unix_seconds, std::uint64_t* result) {
    // The function's address as it stands in the table, which is what the caller sees.
    const void* function = nullptr;
    std::memcpy(&function, &kIntegrity.answer, sizeof function);
    const IntegrityQuestion question = {.driver_version = Driver::driver_version(),
                                        .version = version,
                                        .process = static_cast<std::uint32_t>(::getpid()),
                                        .thread = static_cast<std::uint32_t>(::pthread_self()),
                                        .cudart_interface = &kCudart,
                                        .integrity_table = &kIntegrity,
                                        .integrity_function = function,
                                        .unix_seconds = unix_seconds};
    const auto words = integrity_answer(question, Driver::device_identities());
    std::memcpy(result, words.data(), sizeof words);
    return CUDA_SUCCESS;
  }
  static constexpr Integrity kIntegrity = {sizeof(Integrity), &answer,
                                           &refused<PrivateTable::kIntegrity, 2>};

  // Identities. cuBLASLt asks whose context a stream has: the answer is the context's number in
  // this process, of which it keeps the lower half.
  static CUresult context_identity(CUcontext context, std::uint32_t* identity) {
    if (identity != nullptr) {
      *identity = context == nullptr ? 0 : static_cast<std::uint32_t>(Driver::context_id(context));
    }
    return CUDA_SUCCESS;
  }
  // Split-K GEMMs keep a workspace a stream: they ask for the driver's own stream behind a handle,
  // which stays opaque to them, and for its identity. A default stream is never null here.
  static CUresult inner_stream(CUcontext, CUstream stream, CUstream* inner, int per_thread) {
    if (inner == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (stream == nullptr) stream = per_thread != 0 ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    unsigned long long id = 0;
    if (const CUresult bad = Driver::stream_id(stream, &id); bad != CUDA_SUCCESS) return bad;
    *inner = stream;
    return CUDA_SUCCESS;
  }
  static CUresult stream_identity(CUcontext, CUstream inner, unsigned long long* identity) {
    if (inner == nullptr || identity == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return Driver::stream_id(inner, identity);
  }
  struct Identities {
    std::size_t bytes;
    std::array<Refused, 3> slots_1_3;
    CUresult (*context_identity)(CUcontext, std::uint32_t*);
    std::array<Refused, 34> slots_5_38;
    CUresult (*stream_identity)(CUcontext, CUstream, unsigned long long*);
    std::array<Refused, 11> slots_40_50;
    CUresult (*inner_stream)(CUcontext, CUstream, CUstream*, int);
    std::array<Refused, 41> slots_52_92;
  };
  static_assert(sizeof(Identities) == 744);
  static constexpr Identities kIdentities = {
      sizeof(Identities), refuse<PrivateTable::kIdentities, 1, 3>(),
      &context_identity,  refuse<PrivateTable::kIdentities, 5, 38>(),
      &stream_identity,   refuse<PrivateTable::kIdentities, 40, 50>(),
      &inner_stream,      refuse<PrivateTable::kIdentities, 52, 92>()};

  // Chip layout: two arrays that the caller gives back.
  static CUresult layout(std::uint8_t** gpc_of_tpc, std::uint8_t** index_in_gpc) {
    ChipLayout found;
    if (const CUresult bad = Driver::chip_layout(&found); bad != CUDA_SUCCESS) return bad;
    *gpc_of_tpc = copied(found.gpc_of_tpc);
    *index_in_gpc = copied(found.index_in_gpc);
    return CUDA_SUCCESS;
  }
  static CUresult give_back(std::uint8_t* gpc_of_tpc, std::uint8_t* index_in_gpc) {
    for (std::uint8_t* array : {gpc_of_tpc, index_in_gpc}) {
      if (array != nullptr) std::allocator<std::uint8_t>().deallocate(array, kLayoutBytes);
    }
    return CUDA_SUCCESS;
  }
  // More TPCs than any chip has; readers know how many are real.
  static constexpr std::size_t kLayoutBytes = 1024;
  static std::uint8_t* copied(const std::vector<std::uint8_t>& from) {
    std::uint8_t* array = std::allocator<std::uint8_t>().allocate(kLayoutBytes);
    std::memset(array, 0, kLayoutBytes);
    if (!from.empty()) std::memcpy(array, from.data(), std::min(from.size(), kLayoutBytes));
    return array;
  }
  struct Chip {
    std::size_t bytes;
    std::array<Refused, 3> slots_1_3;
    CUresult (*layout)(std::uint8_t**, std::uint8_t**);
    std::array<Refused, 8> slots_5_12;
    CUresult (*give_back)(std::uint8_t*, std::uint8_t*);
    std::array<Refused, 3> slots_14_16;
  };
  static_assert(sizeof(Chip) == 136);
  static constexpr Chip kChip = {sizeof(Chip), refuse<PrivateTable::kChipLayout, 1, 3>(),
                                 &layout,      refuse<PrivateTable::kChipLayout, 5, 12>(),
                                 &give_back,   refuse<PrivateTable::kChipLayout, 14, 16>()};

  // Functions of a module. cuFFT makes modules with one kernel whose name it does not keep, and has
  // each function shown to it. 1 is success here.
  using ShowFunction = void (*)(void* user, CUfunction function);
  static int show_functions(CUcontext, CUmodule module, ShowFunction show, void* user) {
    std::vector<CUfunction> functions;
    if (show == nullptr || Driver::functions_of(module, &functions) != CUDA_SUCCESS) return 0;
    for (const CUfunction function : functions) show(user, function);
    return 1;
  }
  struct ModuleFunctions {
    std::size_t bytes;
    std::array<Refused, 6> slots_1_6;
    int (*show_functions)(CUcontext, CUmodule, ShowFunction, void*);
  };
  static_assert(sizeof(ModuleFunctions) == 64);
  static constexpr ModuleFunctions kModuleFunctions = {
      sizeof(ModuleFunctions), refuse<PrivateTable::kModuleFunctions, 1, 6>(), &show_functions};
};

}  // namespace flyt::cuda
