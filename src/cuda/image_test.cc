#include "cuda/image.h"

#include <gtest/gtest.h>

#include <array>

#include "cuda/fatbin.h"

namespace flyt::cuda {
namespace {

struct Wrapper {
  std::uint32_t magic = kFatbinWrapperMagic;
  std::uint32_t version = 1;
  const void* header = nullptr;
  const void* linked = nullptr;
};

std::vector<std::byte> fatbin(std::string_view ptx) {
  FatbinWriter writer;
  writer.add(FatbinFileKind::kPtx, 90, 0, bytes_of(ptx));
  return writer.finish();
}

// An ELF with one section of `payload` bytes behind its section table.
std::vector<std::byte> elf(std::uint64_t payload, std::uint16_t sections = 1) {
  std::vector<std::byte> bytes(64 + 64 + payload);
  Writer writer(bytes);
  writer.write(std::uint32_t{0x464C457F});
  writer.write(std::uint8_t{2});
  writer.skip(11);
  writer.skip(2 + 2 + 4 + 8 + 8);
  writer.write(std::uint64_t{64});  // Where the section table is.
  writer.skip(4 + 2 + 2 + 2);
  writer.write(std::uint16_t{64});
  writer.write(sections);
  writer.skip(2);
  writer.write(std::uint32_t{0});
  writer.write(std::uint32_t{1});
  writer.skip(16);
  writer.write(std::uint64_t{128});
  writer.write(payload);
  return bytes;
}

TEST(ImageAt, MeasuresAFatbinBehindAWrapperOrAlone) {
  const std::vector<std::byte> bytes = fatbin("text");
  const Wrapper wrapper{.header = bytes.data()};
  for (const void* at :
       {static_cast<const void*>(&wrapper), static_cast<const void*>(bytes.data())}) {
    const auto image = image_at(at);
    ASSERT_TRUE(image.ok());
    EXPECT_EQ(image->kind, ImageKind::kFatbin);
    EXPECT_EQ(image->bytes.size(), bytes.size());
  }
}

TEST(ImageAt, FindsTheLinkedFatbinsOfAVersion2Wrapper) {
  const std::vector<std::byte> main = fatbin("main");
  const std::vector<std::byte> first = fatbin("first one");
  const std::vector<std::byte> second = fatbin("second one of them");
  const std::array<const void*, 3> linked = {first.data(), second.data(), nullptr};
  const Wrapper wrapper{.version = 2, .header = main.data(), .linked = linked.data()};
  const auto image = image_at(&wrapper);
  ASSERT_TRUE(image.ok());
  ASSERT_EQ(image->linked.size(), 2u);
  EXPECT_EQ(image->linked[0].size(), first.size());
  EXPECT_EQ(image->linked[1].size(), second.size());
}

TEST(ImageAt, RefusesAnUnknownWrapperVersion) {
  const std::vector<std::byte> bytes = fatbin("text");
  const Wrapper wrapper{.version = 3, .header = bytes.data()};
  EXPECT_FALSE(image_at(&wrapper).ok());
}

TEST(ImageAt, MeasuresACubinByItsTablesAndPtxByItsNul) {
  const std::vector<std::byte> bytes = elf(100);
  const auto cubin = image_at(bytes.data());
  ASSERT_TRUE(cubin.ok());
  EXPECT_EQ(cubin->kind, ImageKind::kCubin);
  EXPECT_EQ(cubin->bytes.size(), bytes.size());
  const auto ptx = image_at(".version 8.0");
  ASSERT_TRUE(ptx.ok());
  EXPECT_EQ(ptx->kind, ImageKind::kPtx);
  EXPECT_EQ(ptx->bytes.size(), 12u);
  EXPECT_FALSE(image_at(nullptr).ok());
  EXPECT_FALSE(image_at("").ok());
}

TEST(ImageOf, RefusesWhatIsLongerThanItsBytes) {
  for (const std::vector<std::byte>& bytes : {elf(100), fatbin("a text of some length")}) {
    EXPECT_TRUE(image_of(bytes).ok());
    for (std::size_t size = 4; size < bytes.size(); ++size) {
      EXPECT_FALSE(image_of(Bytes(bytes).first(size)).ok()) << size;
    }
  }
}

TEST(ImageOf, RefusesAnElfWithImpossibleTables) {
  EXPECT_FALSE(image_of(elf(8, 60000)).ok());
  std::vector<std::byte> huge = elf(8);
  huge[64 + 32 + 7] = std::byte{0xFF};  // The section's size.
  EXPECT_FALSE(image_of(huge).ok());
}

TEST(ImageOf, RefusesAWrapperFromAPeer) {
  const Wrapper wrapper;
  EXPECT_FALSE(image_of(bytes_at(&wrapper, sizeof wrapper)).ok());
}

}  // namespace
}  // namespace flyt::cuda
