#include "softgpu/interpreter/warp.h"

#include <bit>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace flyt::ptx {
namespace {

std::uintptr_t place(RawBytes& bytes) { return std::bit_cast<std::uintptr_t>(bytes.data()); }

TEST(RawBytes, KeepWhatIsThereFromTheHeapToAMappingOfTheirOwn) {
  RawBytes bytes;
  EXPECT_TRUE(bytes.resize(0));
  std::size_t before = 0;
  for (const std::size_t size : {std::size_t{1}, std::size_t{1000}, RawBytes::kHeapBytesMax,
                                 RawBytes::kHeapBytesMax + 1, 4 * RawBytes::kHeapBytesMax}) {
    ASSERT_TRUE(bytes.resize(size));
    ASSERT_GE(bytes.size(), size);
    EXPECT_EQ(place(bytes) % 128, 0u);
    for (std::size_t i = 0; i < before; ++i) ASSERT_EQ(bytes.data()[i], std::byte(i * 7));
    before = bytes.size();
    for (std::size_t i = 0; i < before; ++i) bytes.data()[i] = std::byte(i * 7);
    ASSERT_TRUE(bytes.resize(size / 2));
    EXPECT_EQ(bytes.size(), before);
  }
}

// Or each launch would map and unmap memory for each warp.
TEST(RawBytes, ThatAreFewHaveNoPagesOfTheirOwn) {
  constexpr std::size_t kPageBytes = 4096;
  std::vector<RawBytes> many(100);
  std::size_t at_page_begins = 0;
  for (RawBytes& each : many) {
    ASSERT_TRUE(each.resize(200));
    at_page_begins += place(each) % kPageBytes == 0 ? 1 : 0;
  }
  EXPECT_LT(at_page_begins, many.size() / 2);
}

}  // namespace
}  // namespace flyt::ptx
