#include "cuda/export_tables.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/bytes.h"

namespace flyt::cuda {
namespace {

struct Driver {
  static CUresult load_module(CUmodule*, const void*) { return CUDA_ERROR_INVALID_IMAGE; }
  static CUresult retain_primary(CUcontext* context, CUdevice device) {
    *context = static_cast<CUcontext>(pointer_at(0x1000 + static_cast<std::uint64_t>(device)));
    return CUDA_SUCCESS;
  }
  static CUresult storage_context(CUcontext*) { return CUDA_SUCCESS; }
  static ContextStorage& storage() {
    static ContextStorage storage;
    return storage;
  }
  static unsigned long long context_id(CUcontext) { return 7; }
  static CUresult stream_id(CUstream stream, unsigned long long* id) {
    *id = address_of(stream) + 100;
    return CUDA_SUCCESS;
  }
  static CUresult chip_layout(ChipLayout* layout) {
    *layout = {{0, 1}, {0, 0}};
    return CUDA_SUCCESS;
  }
  static CUresult functions_of(CUmodule module, std::vector<CUfunction>* functions) {
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *functions = {static_cast<CUfunction>(pointer_at(0x10)),
                  static_cast<CUfunction>(pointer_at(0x20))};
    return CUDA_SUCCESS;
  }
  static std::uint32_t driver_version() { return 13000; }
  static std::vector<DeviceIdentity> device_identities() { return {DeviceIdentity{}}; }
  static CompileCache& compile_cache() {
    static CompileCache cache({});
    return cache;
  }
  static CUresult refused_slot(PrivateTable, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; }
};
using Tables = ExportTables<Driver>;

CUuuid uuid_of(PrivateTable table) {
  CUuuid id;
  std::memcpy(id.bytes, kPrivateTableUuids[static_cast<std::size_t>(table)].data(), 16);
  return id;
}

const void* const* slots(PrivateTable table) {
  return static_cast<const void* const*>(Tables::find(uuid_of(table)));
}

template <class F>
F slot(PrivateTable table, unsigned index) {
  F function;
  std::memcpy(&function, &slots(table)[index], sizeof function);
  return function;
}

TEST(ExportTables, HaveTheirSizesInSlotZero) {
  EXPECT_EQ(address_of(slots(PrivateTable::kCudartInterface)[0]), 104u);
  EXPECT_EQ(address_of(slots(PrivateTable::kIdentities)[0]), 744u);
  EXPECT_EQ(address_of(slots(PrivateTable::kChipLayout)[0]), 136u);
  CUuuid unknown{};
  EXPECT_EQ(Tables::find(unknown), nullptr);
}

TEST(ExportTables, AnswerWhereTheyAreUnderstoodAndRefuseElsewhere) {
  CUcontext context = nullptr;
  EXPECT_EQ(
      (slot<CUresult (*)(CUcontext*, CUdevice)>(PrivateTable::kCudartInterface, 2)(&context, 3)),
      CUDA_SUCCESS);
  EXPECT_EQ(address_of(context), 0x1003u);
  EXPECT_EQ((slot<CUresult (*)()>(PrivateTable::kCudartInterface, 9)()), CUDA_ERROR_NOT_SUPPORTED);
  std::uint32_t identity = 9;
  EXPECT_EQ((slot<CUresult (*)(CUcontext, std::uint32_t*)>(PrivateTable::kIdentities, 4)(
                context, &identity)),
            CUDA_SUCCESS);
  EXPECT_EQ(identity, 7u);
}

TEST(ExportTables, GiveTheFixedAnswersOfTheFirstIntegrityVersions) {
  std::uint64_t result[2] = {};
  const auto answer =
      slot<CUresult (*)(std::uint32_t, std::uint64_t, std::uint64_t*)>(PrivateTable::kIntegrity, 1);
  EXPECT_EQ(answer(10, 0, result), CUDA_SUCCESS);
  EXPECT_EQ(result[0], 0x3341181C03CB675Cu);
  EXPECT_EQ(answer(11, 0, result), CUDA_SUCCESS);
  EXPECT_EQ(result[0], 0x1841181C03CB675Cu);
  EXPECT_EQ(result[1], 0x8ED383AA1F4CD1E8u);
}

TEST(ExportTables, HandOutAndTakeBackTheChipLayout) {
  std::uint8_t* gpc = nullptr;
  std::uint8_t* index = nullptr;
  EXPECT_EQ((slot<CUresult (*)(std::uint8_t**, std::uint8_t**)>(PrivateTable::kChipLayout, 4)(
                &gpc, &index)),
            CUDA_SUCCESS);
  EXPECT_EQ(gpc[1], 1);
  EXPECT_EQ(
      (slot<CUresult (*)(std::uint8_t*, std::uint8_t*)>(PrivateTable::kChipLayout, 13)(gpc, index)),
      CUDA_SUCCESS);
}

TEST(ContextStorage, KeepsValuesByContextAndRunsDestructorsAtItsEnd) {
  static int destroyed;
  destroyed = 0;
  ContextStorage storage;
  auto* context = static_cast<CUcontext>(pointer_at(0x10));
  int key = 0;
  int value = 0;
  storage.put(context, &key, &value, [](CUcontext, void*, void*) { ++destroyed; });
  void* found = nullptr;
  EXPECT_TRUE(storage.get(context, &key, &found));
  EXPECT_EQ(found, &value);
  EXPECT_FALSE(storage.get(nullptr, &key, &found));
  storage.end(context);
  EXPECT_EQ(destroyed, 1);
  EXPECT_FALSE(storage.get(context, &key, &found));
}

TEST(ExportTables, TellTheStreamBehindAHandleAndItsIdentity) {
  const auto inner_stream =
      slot<CUresult (*)(CUcontext, CUstream, CUstream*, int)>(PrivateTable::kIdentities, 51);
  const auto identity =
      slot<CUresult (*)(CUcontext, CUstream, unsigned long long*)>(PrivateTable::kIdentities, 39);
  CUstream inner = nullptr;
  unsigned long long id = 0;
  ASSERT_EQ(inner_stream(nullptr, nullptr, &inner, 0), CUDA_SUCCESS);
  EXPECT_EQ(inner, CU_STREAM_LEGACY);
  ASSERT_EQ(inner_stream(nullptr, nullptr, &inner, 1), CUDA_SUCCESS);
  EXPECT_EQ(inner, CU_STREAM_PER_THREAD);
  ASSERT_EQ(identity(nullptr, inner, &id), CUDA_SUCCESS);
  EXPECT_EQ(id, 102u);
  EXPECT_EQ(identity(nullptr, nullptr, &id), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(inner_stream(nullptr, nullptr, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(ExportTables, ShowEachFunctionOfAModule) {
  using Show = void (*)(void*, CUfunction);
  const auto show_functions =
      slot<int (*)(CUcontext, CUmodule, Show, void*)>(PrivateTable::kModuleFunctions, 7);
  std::uint64_t sum = 0;
  const Show add = [](void* user, CUfunction function) {
    *static_cast<std::uint64_t*>(user) += address_of(function);
  };
  EXPECT_EQ(1, show_functions(nullptr, static_cast<CUmodule>(pointer_at(0x1)), add, &sum));
  EXPECT_EQ(0x30u, sum);
  EXPECT_EQ(0, show_functions(nullptr, nullptr, add, &sum));
}

// In NVRTC's order: a key, a look, and what was compiled since for the next one.
TEST(ExportTablesTest, NvrtcFindsWhatItHasCompiled) {
  using Make = CUresult (*)(void**, std::uint32_t, const void*, std::uint32_t, const char*,
                            const char*, const char*, std::uint32_t, std::uint32_t);
  const auto make = slot<Make>(PrivateTable::kNvrtc, 1);
  const auto end_key = slot<void (*)(void*)>(PrivateTable::kNvrtc, 2);
  const auto find = slot<CUresult (*)(void*, int, void**, std::uint32_t*)>(PrivateTable::kNvrtc, 3);
  const auto keep =
      slot<CUresult (*)(void*, int, const void*, std::uint32_t)>(PrivateTable::kNvrtc, 4);
  const auto end_code = slot<void (*)(void*)>(PrivateTable::kNvrtc, 6);
  const std::string_view code = "code";
  for (const bool again : {false, true}) {
    void* key = nullptr;
    ASSERT_EQ(make(&key, 1, "program", 7, "-arch=sm_90", "host", "13.0", 9, 0), CUDA_SUCCESS);
    void* found = nullptr;
    std::uint32_t bytes = 0;
    EXPECT_EQ(find(key, 0, &found, &bytes), again ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(text_of(bytes_at(found, bytes)), again ? code : "");
    end_code(found);
    EXPECT_EQ(keep(key, 0, code.data(), 4), CUDA_SUCCESS);
    end_key(key);
  }
  void* key = nullptr;
  ASSERT_EQ(make(&key, 1, "program", 7, nullptr, "host", "13.0", 9, 0), CUDA_SUCCESS);
  void* found = nullptr;
  std::uint32_t bytes = 0;
  EXPECT_EQ(find(key, 0, &found, &bytes), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(find(nullptr, 0, &found, &bytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(keep(nullptr, 0, code.data(), 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(make(nullptr, 1, "program", 7, "", "", "", 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(make(&key, 1, nullptr, 7, "", "", "", 0, 0), CUDA_ERROR_INVALID_VALUE);
  end_key(key);
}

}  // namespace
}  // namespace flyt::cuda
