#include "cuda/host_object.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/host_object_sample.h"

namespace flyt::cuda {
namespace {

// Of an object.
constexpr std::size_t kClassAt = 4;
constexpr std::size_t kOrderAt = 5;
constexpr std::size_t kMachineAt = 18;
constexpr std::size_t kSectionCountAt = 60;
constexpr std::size_t kContentAt = 64;
constexpr std::size_t kHeaderBytes = 64;  // Of a section; that of the code is the last one.

std::vector<std::byte> code_of(std::string_view text) {
  FatbinWriter writer;
  writer.add(FatbinFileKind::kPtx, 75, 0, bytes_of(text));
  return writer.finish();
}

std::string text_in(const Fatbin& fatbin) {
  const auto bytes = unpack(fatbin.files().at(0));
  return bytes.ok() ? std::string(text_of(*bytes)) : bytes.error().message;
}

TEST(HostObject, HasTheFatBinariesOfItsSections) {
  std::vector<std::byte> two = code_of("the one.");
  two.resize((two.size() + 7) / 8 * 8);
  const std::vector<std::byte> second = code_of("another.");
  two.insert(two.end(), second.begin(), second.end());
  const std::vector<std::byte> object = host_object("__nv_relfatbin", two);
  const auto found = fatbins_of_object(object);
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ(text_in(found->at(0)), "the one.");
  EXPECT_EQ(text_in(found->at(1)), "another.");
}

// As nvlink has it, of whole code too, and of names that only begin alike.
TEST(HostObject, HasNoneInOtherSections) {
  for (const char* section : {".data", ".nv_fatbin", "__nv_relfatbin2", "__nv_relfat"}) {
    const auto found = fatbins_of_object(host_object(section, code_of("the one.")));
    ASSERT_TRUE(found.ok()) << section;
    EXPECT_TRUE(found->empty()) << section;
  }
}

TEST(HostObject, CutOffAnywhereIsRefused) {
  const std::vector<std::byte> object = host_object("__nv_relfatbin", code_of("the one."));
  ASSERT_TRUE(fatbins_of_object(object).ok());
  for (std::size_t size = 0; size < object.size(); ++size) {
    EXPECT_FALSE(fatbins_of_object(Bytes(object).first(size)).ok()) << size;
  }
}

ErrorCode refusal_of(const std::vector<std::byte>& object) {
  const auto found = fatbins_of_object(object);
  EXPECT_FALSE(found.ok());
  return found.ok() ? ErrorCode::kLost : found.error().code;
}

TEST(HostObject, FilesOfOtherKindsAreToldFromDamagedOnes) {
  const std::vector<std::byte> object = host_object("__nv_relfatbin", code_of("the one."));
  for (const std::size_t at : {kClassAt, kOrderAt, kMachineAt}) {
    std::vector<std::byte> other = object;
    other[at] = at == kMachineAt ? std::byte{190} : std::byte{3};
    EXPECT_EQ(refusal_of(other), ErrorCode::kUnsupported) << at;
  }
  EXPECT_EQ(refusal_of({}), ErrorCode::kUnsupported);
  std::vector<std::byte> damaged = object;
  damaged[kContentAt] = std::byte{0};
  EXPECT_EQ(refusal_of(damaged), ErrorCode::kInvalid);
}

TEST(HostObject, WithMoreSectionsThanItsHeaderCountsIsRefused) {
  std::vector<std::byte> object = host_object("__nv_relfatbin", code_of("the one."));
  object[kSectionCountAt] = std::byte{0};
  EXPECT_EQ(refusal_of(object), ErrorCode::kLimit);
}

TEST(HostObject, SectionsMayLieAnywhereWithinAndNowhereElse) {
  const std::vector<std::byte> object = host_object("__nv_relfatbin", code_of("the one."));
  for (const std::uint64_t offset : {std::uint64_t{object.size()}, ~std::uint64_t{0}}) {
    for (const std::uint64_t size : {std::uint64_t{1}, ~std::uint64_t{0}}) {
      std::vector<std::byte> bad = object;
      Writer writer(MutableBytes(bad).last(kHeaderBytes).subspan(24));
      writer.write(offset);
      writer.write(size);
      EXPECT_EQ(refusal_of(bad), ErrorCode::kInvalid) << offset << " " << size;
    }
  }
}

// Few bytes would be the code of thousands of sections.
TEST(HostObject, SectionsOfCodeThatLieOverEachOtherAreRefused) {
  std::vector<std::byte> object = host_object("__nv_relfatbin", code_of(std::string(1000, '.')));
  const std::vector<std::byte> header(object.end() - kHeaderBytes, object.end());
  object.insert(object.end(), header.begin(), header.end());
  object[kSectionCountAt] = std::byte{4};
  EXPECT_EQ(refusal_of(object), ErrorCode::kInvalid);
}

TEST(HostObject, HasOnlySoManyFatBinaries) {
  const std::vector<std::byte> empty = FatbinWriter().finish();
  std::vector<std::byte> many;
  for (std::size_t i = 0; i < kObjectFatbinsMax; ++i) {
    many.insert(many.end(), empty.begin(), empty.end());
  }
  EXPECT_TRUE(fatbins_of_object(host_object("__nv_relfatbin", many)).ok());
  many.insert(many.end(), empty.begin(), empty.end());
  EXPECT_EQ(refusal_of(host_object("__nv_relfatbin", many)), ErrorCode::kLimit);
}

TEST(Archive, HasItsFilesWithoutItsTables) {
  const std::vector<std::byte> first = host_object(".data", code_of("odd"));
  const std::vector<std::byte> second(3, std::byte{7});
  const std::vector<std::byte> bytes = archive(
      {{"/", bytes_of("symbols")}, {"//", bytes_of("names")}, {"a.o/", second}, {"/0", first}});
  const auto members = members_of_archive(bytes);
  ASSERT_TRUE(members.ok()) << members.error().message;
  ASSERT_EQ(members->size(), 2u);
  EXPECT_EQ(members->at(0).size(), 3u);
  EXPECT_EQ(members->at(1).size(), first.size());
}

TEST(Archive, CutOffDamagedOrOfAnotherKindIsRefused) {
  const std::vector<std::byte> bytes = archive({{"a.o/", bytes_of("abcd")}});
  ASSERT_TRUE(members_of_archive(bytes).ok());
  EXPECT_FALSE(members_of_archive(Bytes(bytes).first(bytes.size() - 1)).ok());
  EXPECT_FALSE(members_of_archive(Bytes(bytes).first(20)).ok());
  EXPECT_FALSE(members_of_archive(bytes_of("!<thin>\n")).ok());
  const std::string_view text = text_of(bytes);
  for (const char* size : {"-4        ", "4x        ", "          ", "9999999999"}) {
    std::string damaged(text);
    damaged.replace(8 + 48, 10, size);
    EXPECT_FALSE(members_of_archive(bytes_of(damaged)).ok()) << size;
  }
  std::string damaged(text);
  damaged[8 + 58] = '\n';
  EXPECT_FALSE(members_of_archive(bytes_of(damaged)).ok());
}

TEST(Archive, HasOnlySoManyFiles) {
  std::vector<std::pair<std::string_view, Bytes>> files(kArchiveMembersMax, {"a.o/", Bytes()});
  EXPECT_TRUE(members_of_archive(archive(files)).ok());
  files.emplace_back("a.o/", Bytes());
  const auto members = members_of_archive(archive(files));
  ASSERT_FALSE(members.ok());
  EXPECT_EQ(members.error().code, ErrorCode::kLimit);
}

}  // namespace
}  // namespace flyt::cuda
