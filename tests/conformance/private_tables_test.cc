// The undocumented tables that CUDA's own libraries ask for; facts in docs/private-tables.md.
#include <cstdlib>

#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

using PrivateTablesTest = ContextTest;

using Table = void* const*;

CUuuid uuid(const char* hex) {
  CUuuid id{};
  for (std::size_t i = 0; i < 16; ++i) {
    const char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};
    id.bytes[i] = static_cast<char>(std::strtoul(digits, nullptr, 16));
  }
  return id;
}

Table table(const char* hex) {
  const CUuuid id = uuid(hex);
  const void* found = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, cu().cuGetExportTable(&found, &id)) << hex;
  return static_cast<Table>(found);
}

template <class Function>
Function slot(Table of, std::size_t index) {
  return reinterpret_cast<Function>(of[index]);
}

constexpr const char* kContextStorage = "c693336e1121df11a8c368f355d89593";

TEST_F(PrivateTablesTest, TheKnownTablesExistAndTellTheirSizes) {
  struct Known {
    const char* id;
    std::uintptr_t bytes;
  };
  constexpr Known kKnown[] = {
      {"6bd5fb6c5bf4e74a8987d93912fd9df9", 104}, {"42d85a8123f6cb478298f6e78a3aecdc", 24},
      {"a094798c2e742e7493f20800200c0a66", 56},  {"263e88607cd2614392f6bbd5006dfa7e", 120},
      {"d4082055bde6704b8d34ba123c66e1f2", 24},  {"21318c60971432488ca641ff7324c8f2", 744},
      {"1734dc26800d47458726c0f1e7dd8bca", 136}};
  for (const Known& known : kKnown) {
    const Table found = table(known.id);
    ASSERT_NE(nullptr, found);
    EXPECT_EQ(known.bytes, reinterpret_cast<std::uintptr_t>(found[0])) << known.id;
  }
}

TEST_F(PrivateTablesTest, UnknownTablesAndNullAreRefused) {
  const CUuuid unknown = uuid("01000000000000000000000000000000");
  const void* found = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGetExportTable(&found, &unknown));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGetExportTable(nullptr, &unknown));
}

TEST_F(PrivateTablesTest, TheRuntimeInterfaceGivesThePrimaryContext) {
  const Table runtime = table("6bd5fb6c5bf4e74a8987d93912fd9df9");
  CUcontext primary = nullptr;
  CU_IS(CUDA_SUCCESS, slot<CUresult (*)(CUcontext*, CUdevice)>(runtime, 2)(&primary, device));
  EXPECT_EQ(context, primary);
}

int destroyed = 0;
void forget(CUcontext, void*, void*) { ++destroyed; }

TEST_F(PrivateTablesTest, ContextStorageKeepsValuesByKey) {
  const Table storage = table(kContextStorage);
  const auto put =
      slot<CUresult (*)(CUcontext, void*, void*, void (*)(CUcontext, void*, void*))>(storage, 0);
  const auto remove = slot<CUresult (*)(CUcontext, void*)>(storage, 1);
  const auto get = slot<CUresult (*)(void**, CUcontext, void*)>(storage, 2);
  int key = 0;
  int value = 0;
  void* read = nullptr;
  CU_IS(CUDA_ERROR_INVALID_HANDLE, get(&read, context, &key));
  CU_IS(CUDA_SUCCESS, put(context, &key, &value, forget));
  CU_IS(CUDA_SUCCESS, get(&read, context, &key));
  EXPECT_EQ(&value, read);
  CU_IS(CUDA_SUCCESS, get(&read, nullptr, &key));
  EXPECT_EQ(&value, read);
  CU_IS(CUDA_SUCCESS, remove(context, &key));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, get(&read, context, &key));
}

TEST_F(PrivateTablesTest, AContextIsToldByItsNumber) {
  const Table identities = table("21318c60971432488ca641ff7324c8f2");
  const auto identity_of = slot<CUresult (*)(CUcontext, std::uint32_t*)>(identities, 4);
  std::uint32_t first = 0;
  std::uint32_t identity = 0;
  CU_IS(CUDA_SUCCESS, identity_of(context, &first));
  EXPECT_NE(0u, first);
  CUcontext other = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&other, 0, device));
  CU_IS(CUDA_SUCCESS, identity_of(other, &identity));
  EXPECT_NE(0u, identity);
  EXPECT_NE(first, identity);
  CU_OK(cu().cuCtxDestroy_v2(other));
  CU_OK(cu().cuCtxSetCurrent(context));
  CU_IS(CUDA_SUCCESS, identity_of(nullptr, &identity));
  EXPECT_EQ(0u, identity);
}

TEST_F(PrivateTablesTest, CallbackHooksGiveScratchMemory) {
  const Table hooks = table("a094798c2e742e7493f20800200c0a66");
  void* buffer = nullptr;
  std::size_t bytes = 0;
  slot<CUresult (*)(void**, std::size_t*)>(hooks, 2)(&buffer, &bytes);
  EXPECT_NE(nullptr, buffer);
  EXPECT_GT(bytes, 0u);
}

TEST_F(PrivateTablesTest, TheIntegrityConstantsAreGiven) {
  const Table integrity = table("d4082055bde6704b8d34ba123c66e1f2");
  const auto check = slot<CUresult (*)(std::uint32_t, std::uint64_t, std::uint64_t*)>(integrity, 1);
  std::uint64_t answer[2] = {};
  CU_IS(CUDA_SUCCESS, check(0, 1700000000, answer));
  EXPECT_EQ(0x3341181C03CB675Cull, answer[0]);
  EXPECT_EQ(0x8ED383AA1F4CD1E8ull, answer[1]);
  CU_IS(CUDA_SUCCESS, check(1, 1700000000, answer));
  EXPECT_EQ(0x1841181C03CB675Cull, answer[0]);
}

}  // namespace
}  // namespace flyt::conformance
