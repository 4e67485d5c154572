#include "softgpu/program.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "softgpu/link_texts.h"

namespace flyt::softgpu {
namespace {

constexpr cuda::ComputeCapability kHopper{9, 0};
constexpr char kPtx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry first() { ret; }\n.visible .entry second() { ret; }\n";
constexpr char kUnknown[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { frobnicate.u32 1; }\n";

std::vector<std::byte> fatbin(cuda::FatbinFileKind kind, std::uint32_t sm, cuda::Packing packing) {
  cuda::FatbinWriter writer;
  writer.add(kind, sm, 0, bytes_of(kPtx), packing);
  return writer.finish();
}

TEST(Program, IsLoadedFromTextAndFromFatBinaries) {
  for (const auto packing : {cuda::Packing::kNone, cuda::Packing::kLz4, cuda::Packing::kZstd}) {
    const auto bytes = fatbin(cuda::FatbinFileKind::kPtx, 75, packing);
    for (const void* image :
         {static_cast<const void*>(bytes.data()), static_cast<const void*>(kPtx)}) {
      ptx::JitLog log;
      Program program;
      ASSERT_EQ(load_program(image, kHopper, log, program), CUDA_SUCCESS) << log.errors();
      EXPECT_EQ(program.module().kernels().size(), 2u);
      ASSERT_TRUE(program.kernel("second"));
      EXPECT_EQ(program.function(*program.kernel("second")).name, "second");
      EXPECT_FALSE(program.kernel("third"));
    }
  }
}

TEST(Program, RefusesMachineCodeAndPtxOfNewerGpusByTheirOwnErrors) {
  ptx::JitLog log;
  Program program;
  const auto cubin = fatbin(cuda::FatbinFileKind::kElf, 90, cuda::Packing::kNone);
  EXPECT_EQ(load_program(cubin.data(), kHopper, log, program), CUDA_ERROR_NO_BINARY_FOR_GPU);
  const auto newer = fatbin(cuda::FatbinFileKind::kPtx, 100, cuda::Packing::kNone);
  EXPECT_EQ(load_program(newer.data(), kHopper, log, program), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(load_program("garbage", kHopper, log, program), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load_program("", kHopper, log, program), CUDA_ERROR_INVALID_IMAGE);
}

TEST(Program, NamesAnUnknownInstructionAndItsLineInTheLog) {
  std::array<char, 512> buffer{};
  CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {buffer.data(), pointer_at(buffer.size())};
  JitOptions options;
  ASSERT_EQ(JitOptions::read(2, names, values, options), CUDA_SUCCESS);
  ptx::JitLog log;
  Program program;
  EXPECT_EQ(load_program(kUnknown, kHopper, log, program), CUDA_ERROR_INVALID_PTX);
  options.write(log);
  const std::string text(buffer.data());
  EXPECT_NE(text.find("frobnicate"), std::string::npos) << text;
  EXPECT_NE(text.find("line 4"), std::string::npos) << text;
  EXPECT_EQ(address_of(values[1]), text.size());
}

TEST(Program, WhatTheDeviceRuntimeLacksIsRefusedByName) {
  const std::string text =
      ".version 7.0\n.target sm_75\n.address_size 64\n.extern .func __cudaCDP2Memcpy3DAsync();\n"
      ".visible .entry k() { call __cudaCDP2Memcpy3DAsync; ret; }\n";
  ptx::JitLog log;
  Program program;
  EXPECT_EQ(load_program(text.c_str(), kHopper, log, program), CUDA_ERROR_CDP_NOT_SUPPORTED);
  EXPECT_NE(log.errors().find("__cudaCDP2Memcpy3DAsync"), std::string::npos) << log.errors();
  EXPECT_NE(log.errors().find("device runtime"), std::string::npos) << log.errors();
}

TEST(Program, WhatALibraryLeavesUndefinedIsNoCallOfTheDeviceRuntime) {
  const std::string text =
      ".version 8.0\n.target sm_90\n.address_size 64\n"
      ".extern .func __cuda_ptx_elect_sync_is_not_supported_before_SM_90__();\n"
      ".visible .entry k() { call __cuda_ptx_elect_sync_is_not_supported_before_SM_90__; ret; }\n";
  ptx::JitLog log;
  Program program;
  EXPECT_EQ(load_program(text.c_str(), kHopper, log, program), CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(log.errors().find("__cuda_ptx_elect_sync_is_not"), std::string::npos) << log.errors();
  EXPECT_EQ(log.errors().find("device runtime"), std::string::npos) << log.errors();
}

TEST(Program, ALinkedImageIsLoadedLikeAnyOther) {
  const std::array<std::string_view, 2> texts = {
      ".version 7.0\n.target sm_75\n.address_size 64\n.extern .func helper();\n"
      ".visible .entry k() { call helper; ret; }\n",
      ".version 7.0\n.target sm_75\n.address_size 64\n.visible .func helper() { ret; }\n"};
  const auto image = linked_image(texts, kHopper);
  ptx::JitLog log;
  Program program;
  ASSERT_EQ(load_program(image.data(), kHopper, log, program), CUDA_SUCCESS) << log.errors();
  EXPECT_TRUE(program.kernel("k"));
}

TEST(Program, ALinkedImageHasNoMoreTextsThanALinkMakes) {
  const std::string_view empty = ".version 7.0\n.target sm_75\n.address_size 64\n";
  std::vector<std::string_view> texts(kLinkTextsMax, empty);
  ptx::JitLog log;
  Program program;
  EXPECT_EQ(load_program(linked_image(texts, kHopper).data(), kHopper, log, program), CUDA_SUCCESS);
  texts.push_back(empty);
  EXPECT_EQ(load_program(linked_image(texts, kHopper).data(), kHopper, log, program),
            CUDA_ERROR_INVALID_IMAGE);
}

TEST(JitOptions, RefuseWhatIsNoOption) {
  CUjit_option names[] = {static_cast<CUjit_option>(1000)};
  void* values[] = {nullptr};
  JitOptions options;
  EXPECT_EQ(JitOptions::read(1, names, values, options), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(JitOptions::read(1, nullptr, values, options), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace flyt::softgpu
