#include "softgpu/link_texts.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "cuda/host_object_sample.h"

namespace flyt::softgpu {
namespace {

constexpr cuda::ComputeCapability kDevice{9, 0};

std::vector<std::byte> fatbin(cuda::FatbinFileKind kind, std::string_view text,
                              cuda::Packing packing = cuda::Packing::kNone) {
  cuda::FatbinWriter writer;
  writer.add(kind, 75, 0, bytes_of(text), packing);
  return writer.finish();
}

std::vector<std::byte> object(std::string_view text) {
  return cuda::host_object("__nv_relfatbin", fatbin(cuda::FatbinFileKind::kPtx, text));
}

std::vector<std::byte> machine_code() {
  return cuda::host_object("__nv_relfatbin", fatbin(cuda::FatbinFileKind::kElf, "SASS"));
}

struct LinkTextsTest : testing::Test {
  LinkTextsTest() { room.all = std::make_shared<std::atomic<std::uint64_t>>(0); }

  CUresult add(CUjitInputType type, Bytes bytes) {
    return texts_of_input(type, bytes, kDevice, room, log, texts);
  }
  std::vector<std::string> found() const {
    std::vector<std::string> those;
    // Padding comes along.
    for (const LinkText& each : texts) those.emplace_back(each.text.c_str());
    return those;
  }

  LinkRoom room;
  ptx::JitLog log;
  std::vector<LinkText> texts;
};

TEST_F(LinkTextsTest, AreFoundInAllThatPtxIsIn) {
  EXPECT_EQ(add(CU_JIT_INPUT_PTX, bytes_of("itself")), CUDA_SUCCESS);
  const auto binary = fatbin(cuda::FatbinFileKind::kPtx, "fat", cuda::Packing::kZstd);
  EXPECT_EQ(add(CU_JIT_INPUT_FATBINARY, binary), CUDA_SUCCESS);
  EXPECT_EQ(add(CU_JIT_INPUT_OBJECT, object("object")), CUDA_SUCCESS);
  const auto one = object("one");
  const auto two = object("two");
  EXPECT_EQ(add(CU_JIT_INPUT_LIBRARY, cuda::archive({{"a.o/", one}, {"b.o/", two}})), CUDA_SUCCESS);
  EXPECT_EQ(found(), (std::vector<std::string>{"itself", "fat", "object", "one", "two"}));
  EXPECT_TRUE(log.errors().empty()) << log.errors();
}

TEST_F(LinkTextsTest, OfALibraryWhatHasNoPtxIsLeftOut) {
  const auto whole = cuda::host_object(".nv_fatbin", fatbin(cuda::FatbinFileKind::kPtx, "whole"));
  const auto sass = machine_code();
  const auto one = object("one");
  const auto library = cuda::archive({{"README/", bytes_of("no object")},
                                      {"whole.o/", whole},
                                      {"sass.o/", sass},
                                      {"one.o/", one}});
  EXPECT_EQ(add(CU_JIT_INPUT_LIBRARY, library), CUDA_SUCCESS);
  EXPECT_EQ(found(), std::vector<std::string>{"one"});
}

TEST_F(LinkTextsTest, AreNoneWhereAnObjectHasNoCode) {
  EXPECT_EQ(add(CU_JIT_INPUT_OBJECT, cuda::host_object(".data", bytes_of("12345678"))),
            CUDA_SUCCESS);
  EXPECT_TRUE(texts.empty());
}

TEST_F(LinkTextsTest, WhatCannotBeLinkedIsRefusedByName) {
  const auto sass = machine_code();
  EXPECT_EQ(add(CU_JIT_INPUT_OBJECT, sass), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_NE(log.errors().find("machine code"), std::string::npos) << log.errors();
  EXPECT_EQ(add(CU_JIT_INPUT_NVVM, bytes_of("BC")), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_NE(log.errors().find("links PTX"), std::string::npos) << log.errors();
  EXPECT_EQ(add(CU_JIT_INPUT_OBJECT, bytes_of("text")), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_NE(log.errors().find("not a 64-bit ELF"), std::string::npos) << log.errors();
  const auto cut = cuda::archive({{"a.o/", Bytes(sass).first(sass.size() / 2)}});
  EXPECT_EQ(add(CU_JIT_INPUT_LIBRARY, cut), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_NE(log.errors().find("cut off"), std::string::npos) << log.errors();
}

TEST_F(LinkTextsTest, AreOnlySoMany) {
  const auto one = object("one");
  room.texts = 2;
  EXPECT_EQ(add(CU_JIT_INPUT_LIBRARY, cuda::archive({{"a.o/", one}, {"b.o/", one}})), CUDA_SUCCESS);
  EXPECT_EQ(add(CU_JIT_INPUT_LIBRARY, cuda::archive({{"a.o/", one}, {"b.o/", one}, {"c.o/", one}})),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(log.errors().find("too much PTX"), std::string::npos) << log.errors();
}

TEST_F(LinkTextsTest, HaveOnlySoManyBytes) {
  const auto one = object("12345678");
  room.bytes = 16;
  EXPECT_EQ(add(CU_JIT_INPUT_LIBRARY, cuda::archive({{"a.o/", one}, {"b.o/", one}})), CUDA_SUCCESS);
  room.bytes = 15;
  EXPECT_EQ(add(CU_JIT_INPUT_LIBRARY, cuda::archive({{"a.o/", one}, {"b.o/", one}})),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(add(CU_JIT_INPUT_PTX, bytes_of("1234567812345678")), CUDA_ERROR_OUT_OF_MEMORY);
}

// Damaged data would be told if it were looked at.
TEST_F(LinkTextsTest, TooLargeOnesAreNotUnpacked) {
  constexpr std::uint64_t kClaimAt = 16 + 56;
  auto bomb = fatbin(cuda::FatbinFileKind::kPtx, std::string(1 << 20, '.'), cuda::Packing::kLz4);
  Writer writer(MutableBytes(bomb).subspan(kClaimAt));
  writer.write(std::uint64_t{2 << 20});
  EXPECT_EQ(add(CU_JIT_INPUT_FATBINARY, bomb), CUDA_ERROR_INVALID_IMAGE);
  room.bytes = (2 << 20) - 1;
  EXPECT_EQ(add(CU_JIT_INPUT_FATBINARY, bomb), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(room.all->load(), 0U);
}

TEST_F(LinkTextsTest, OfAllLinksHaveOnlySoManyBytes) {
  CountedBytes others;
  ASSERT_TRUE(others.take(room.all, kLinksTextBytesMax - 9, kLinksTextBytesMax));
  EXPECT_EQ(add(CU_JIT_INPUT_PTX, bytes_of("1234567890")), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(add(CU_JIT_INPUT_PTX, bytes_of("12345")), CUDA_SUCCESS);
  EXPECT_EQ(add(CU_JIT_INPUT_PTX, bytes_of("12345")), CUDA_ERROR_OUT_OF_MEMORY);
  texts.clear();
  EXPECT_EQ(add(CU_JIT_INPUT_PTX, bytes_of("123456789")), CUDA_SUCCESS);
}

}  // namespace
}  // namespace flyt::softgpu
