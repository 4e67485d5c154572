#include "base/bytes.h"

#include <gtest/gtest.h>

#include <array>

namespace flyt {
namespace {

TEST(Reader, FailsForGoodOnceAReadDidNotFit) {
  const std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  Reader reader(bytes);
  EXPECT_EQ(reader.take<std::uint32_t>(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.take<std::uint8_t>(), 0u);
  EXPECT_TRUE(reader.take_bytes(1).empty());
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(Reader, ReadsWhatAWriterWroteAndKnowsTheEnd) {
  std::array<std::byte, 16> space{};
  Writer writer(space);
  writer.write(std::uint8_t{7});
  writer.write(std::uint64_t{0x1122334455667788});
  writer.write_bytes(bytes_of("abc"));
  Reader reader(Bytes(space).first(writer.used()));
  EXPECT_EQ(reader.take<std::uint8_t>(), 7);
  EXPECT_EQ(reader.take<std::uint64_t>(), 0x1122334455667788u);
  EXPECT_FALSE(reader.finished());
  EXPECT_EQ(text_of(reader.take_bytes(3)), "abc");
  EXPECT_TRUE(reader.finished());
}

TEST(Writer, StopsTheProcessWhenItsSpaceIsTooSmall) {
  std::array<std::byte, 2> space{};
  Writer writer(space);
  EXPECT_DEATH(writer.write(std::uint32_t{1}), "assertion failed");
}

}  // namespace
}  // namespace flyt
