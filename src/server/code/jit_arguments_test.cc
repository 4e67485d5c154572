#include "server/code/jit_arguments.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace flyt::server {
namespace {

bool take(JitArguments& jit, const std::vector<std::int32_t>& options,
          const std::vector<std::uint64_t>& values) {
  return jit.take(wire::List<std::int32_t>(options), wire::List<std::uint64_t>(values));
}

TEST(JitArguments, GivesLogsBuffersOfItsOwn) {
  JitArguments jit;
  ASSERT_TRUE(take(jit, {CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_MAX_REGISTERS}, {100, 32}));
  ASSERT_EQ(jit.count(), 3U);
  EXPECT_EQ(jit.options()[0], CU_JIT_ERROR_LOG_BUFFER);
  EXPECT_NE(jit.values()[0], nullptr);
  EXPECT_EQ(address_of(jit.values()[1]), 100U);
  EXPECT_EQ(address_of(jit.values()[2]), 32U);
  EXPECT_EQ(jit.error_log(), "");
}

TEST(JitArguments, BoundsTheBuffers) {
  JitArguments jit;
  ASSERT_TRUE(take(jit, {CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES}, {~0ULL}));
  EXPECT_EQ(address_of(jit.values()[1]), 64 * kKiB);
}

TEST(JitArguments, RefusesPointersOfAClient) {
  for (const CUjit_option option : {CU_JIT_INFO_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER,
                                    CU_JIT_GLOBAL_SYMBOL_NAMES, CU_JIT_GLOBAL_SYMBOL_ADDRESSES}) {
    JitArguments jit;
    EXPECT_FALSE(take(jit, {static_cast<std::int32_t>(option)}, {0x1000}));
  }
}

TEST(JitArguments, RefusesUnknownOptionsAndUnequalLists) {
  JitArguments jit;
  EXPECT_FALSE(take(jit, {-1}, {0}));
  EXPECT_FALSE(take(jit, {static_cast<std::int32_t>(CU_JIT_NUM_OPTIONS)}, {0}));
  EXPECT_FALSE(take(jit, {CU_JIT_LTO}, {}));
}

}  // namespace
}  // namespace flyt::server
