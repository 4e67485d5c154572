#include "cuda/fatbin.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace flyt::cuda {
namespace {

const std::string kText(5000, 'x');

std::vector<std::byte> sample() {
  FatbinWriter writer;
  writer.add(FatbinFileKind::kPtx, 75, 0, bytes_of("ptx75"));
  writer.add(FatbinFileKind::kPtx, 90, 0, bytes_of(kText), Packing::kZstd);
  writer.add(FatbinFileKind::kPtx, 90, kFatbinFlagArchSpecific, bytes_of("ptx90a"), Packing::kLz4);
  writer.add(FatbinFileKind::kPtx, 100, 0, bytes_of("ptx100"));
  writer.add(FatbinFileKind::kElf, 80, 0, bytes_of("elf80"));
  writer.add(FatbinFileKind::kElf, 86, 0, bytes_of("elf86"));
  writer.add(FatbinFileKind::kElf, 90, 0, bytes_of(kText), Packing::kLz4);
  writer.add(FatbinFileKind::kElf, 90, kFatbinFlagArchSpecific, bytes_of("elf-90a."));
  return writer.finish();
}

std::string text(const FatbinFile& file) {
  const auto bytes = unpack(file);
  return bytes.ok() ? std::string(text_of(*bytes)) : "(" + bytes.error().message + ")";
}

TEST(Fatbin, UnpacksWhatWasPackedInEveryWay) {
  const std::vector<std::byte> bytes = sample();
  const auto fatbin = Fatbin::parse(bytes);
  ASSERT_TRUE(fatbin.ok()) << fatbin.error().message;
  ASSERT_EQ(fatbin->files().size(), 8u);
  EXPECT_EQ(fatbin->files()[1].packing, Packing::kZstd);
  EXPECT_EQ(text(fatbin->files()[1]), kText);
  EXPECT_EQ(fatbin->files()[6].packing, Packing::kLz4);
  EXPECT_EQ(text(fatbin->files()[6]), kText);
  EXPECT_EQ(text(fatbin->files()[2]), "ptx90a");
}

TEST(Fatbin, ChoosesWhatRunsOnTheGpuBestFirst) {
  const std::vector<std::byte> bytes = sample();
  const auto fatbin = Fatbin::parse(bytes);
  ASSERT_TRUE(fatbin.ok());
  const Candidates hopper = candidates(*fatbin, {9, 0});
  EXPECT_EQ(hopper.cubins, (std::vector<std::size_t>{7, 6}));
  EXPECT_EQ(hopper.ptx, (std::vector<std::size_t>{2, 1, 0}));
  const Candidates ada = candidates(*fatbin, {8, 9});
  EXPECT_EQ(ada.cubins, (std::vector<std::size_t>{5, 4}));
  EXPECT_EQ(ada.ptx, (std::vector<std::size_t>{0}));
  const Candidates old = candidates(*fatbin, {7, 0});
  EXPECT_TRUE(old.cubins.empty() && old.ptx.empty());
}

TEST(Fatbin, IsReducedToWhatOneGpuCanUse) {
  const std::vector<std::byte> bytes = sample();
  const auto fatbin = Fatbin::parse(bytes);
  ASSERT_TRUE(fatbin.ok());
  const std::vector<std::byte> reduced = reduced_fatbin(*fatbin, {9, 0});
  const auto again = Fatbin::parse(reduced);
  ASSERT_TRUE(again.ok()) << again.error().message;
  ASSERT_EQ(again->files().size(), 3u);
  EXPECT_EQ(text(again->files()[0]), "elf-90a.");
  EXPECT_EQ(text(again->files()[1]), kText);
  EXPECT_EQ(text(again->files()[2]), "ptx90a");
  EXPECT_TRUE(reduced_fatbin(*fatbin, {5, 0}).empty());
  EXPECT_FALSE(all_fits(*fatbin, {9, 0}));
  EXPECT_TRUE(all_fits(*again, {9, 0}));
  EXPECT_FALSE(all_fits(*again, {5, 0}));
  const std::vector<std::byte> header = FatbinWriter().finish();
  const auto nothing = Fatbin::parse(header);
  ASSERT_TRUE(nothing.ok());
  EXPECT_FALSE(all_fits(*nothing, {9, 0}));
}

TEST(Fatbin, RefusesEveryTruncation) {
  const std::vector<std::byte> bytes = sample();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(Fatbin::parse(Bytes(bytes).first(size)).ok()) << size;
  }
}

TEST(Fatbin, RefusesAPackedFileThatClaimsTooMuch) {
  FatbinWriter writer;
  writer.add(FatbinFileKind::kPtx, 90, 0, bytes_of(kText), Packing::kZstd);
  std::vector<std::byte> bytes = writer.finish();
  constexpr std::size_t kUnpackedAt = kFatbinHeaderBytes + 56;
  bytes[kUnpackedAt + 3] = std::byte{0x7F};
  EXPECT_FALSE(Fatbin::parse(bytes).ok());
}

TEST(Fatbin, RefusesAPackedFileWithAWrongSize) {
  FatbinWriter writer;
  writer.add(FatbinFileKind::kPtx, 90, 0, bytes_of(kText), Packing::kLz4);
  std::vector<std::byte> bytes = writer.finish();
  constexpr std::size_t kUnpackedAt = kFatbinHeaderBytes + 56;
  bytes[kUnpackedAt] ^= std::byte{1};
  const auto fatbin = Fatbin::parse(bytes);
  ASSERT_TRUE(fatbin.ok());
  EXPECT_FALSE(unpack(fatbin->files()[0]).ok());
}

TEST(Fatbin, SurvivesRandomDamage) {
  Random random(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes = sample();
    for (std::uint64_t i = 1 + random.below(8); i > 0; --i) {
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.next());
    }
    const auto fatbin = Fatbin::parse(bytes);
    if (!fatbin) continue;
    for (const FatbinFile& file : fatbin->files()) {
      if (file.unpacked_bytes <= kMiB) static_cast<void>(unpack(file));
    }
  }
}

}  // namespace
}  // namespace flyt::cuda
