#include "cuda/host_object.h"

#include <gtest/gtest.h>

#include <string>

#include "cuda/host_object_sample.h"

namespace flyt::cuda {
namespace {

std::vector<std::byte> code_of(const char* text) {
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

TEST(HostObject, HasNoneInOtherSections) {
  const auto found = fatbins_of_object(host_object(".data", code_of("the one.")));
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->empty());
}

TEST(HostObject, CutOffAnywhereIsRefused) {
  const std::vector<std::byte> object = host_object(".nv_fatbin", code_of("the one."));
  ASSERT_TRUE(fatbins_of_object(object).ok());
  for (std::size_t size = 0; size < object.size(); ++size) {
    EXPECT_FALSE(fatbins_of_object(Bytes(object).first(size)).ok()) << size;
  }
}

TEST(HostObject, OfAGpuIsRefused) {
  std::vector<std::byte> object = host_object(".nv_fatbin", code_of("the one."));
  object[18] = std::byte{190};
  EXPECT_FALSE(fatbins_of_object(object).ok());
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

TEST(Archive, CutOffOrOfAnotherKindIsRefused) {
  const std::vector<std::byte> bytes = archive({{"a.o/", bytes_of("abcd")}});
  ASSERT_TRUE(members_of_archive(bytes).ok());
  EXPECT_FALSE(members_of_archive(Bytes(bytes).first(bytes.size() - 1)).ok());
  EXPECT_FALSE(members_of_archive(Bytes(bytes).first(20)).ok());
  EXPECT_FALSE(members_of_archive(bytes_of("!<thin>\n")).ok());
}

}  // namespace
}  // namespace flyt::cuda
