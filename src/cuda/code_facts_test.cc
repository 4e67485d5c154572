#include "cuda/code_facts.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/random.h"
#include "cuda/fatbin.h"

namespace flyt::cuda {
namespace {

std::uint64_t loaded_bytes(Bytes image) { return code_facts(image).loaded_bytes; }

// What the variables of a PTX text take.
std::uint64_t variables(const std::string& text) {
  return loaded_bytes(bytes_of(text)) - text.size();
}

// An ELF with one section without contents.
std::vector<std::byte> elf_with(std::uint64_t nobits, std::uint16_t sections = 1) {
  std::vector<std::byte> elf(128);
  const auto put = [&](std::size_t at, auto value) {
    std::memcpy(elf.data() + at, &value, sizeof value);
  };
  put(0, std::uint32_t{0x464C457F});
  put(40, std::uint64_t{64});
  put(60, sections);
  put(68, std::uint32_t{8});
  put(96, nobits);
  return elf;
}

// An ELF with one section of that name and size, whose names stand behind it.
std::vector<std::byte> elf_named(const std::string& name, std::uint64_t size) {
  std::vector<std::byte> elf = elf_with(size);
  const std::uint64_t names = elf.size();
  std::memcpy(elf.data() + 64 + 24, &names, sizeof names);
  const Bytes text = bytes_of(name);
  elf.insert(elf.end(), text.begin(), text.end());
  elf.push_back(std::byte{0});
  return elf;
}

TEST(CodeFactsTest, SeesWhetherCodeMayRemember) {
  const auto remembers = [](const std::string& text) {
    return code_facts(bytes_of(text)).may_remember;
  };
  EXPECT_FALSE(
      remembers(".version 8.0\n.visible .entry f(.param .u64 a)\n{ ld.global.u32 %r1, [%rd1]; }"));
  EXPECT_FALSE(remembers("// .global .u32 a;\n.const .u32 b = 1;"));
  EXPECT_TRUE(remembers(".extern .func (.param .b64 r) malloc (.param .b64 n);"));
  EXPECT_FALSE(code_facts(elf_named(".nv.global", 4)).may_remember);
  // An ELF whose sections cannot be told.
  EXPECT_TRUE(code_facts(elf_with(0, 9)).may_remember);
}

TEST(CodeFactsTest, SeesWhetherCodeHasVariables) {
  const auto has = [](const std::string& text) { return code_facts(bytes_of(text)).has_variables; };
  EXPECT_FALSE(has(".visible .entry f(.param .u64 a)\n{ ld.global.u32 %r1, [%rd1]; }"));
  EXPECT_FALSE(has("// .global .u32 a;\n.const .u32 b = 1;"));
  EXPECT_TRUE(has(".visible .global .align 4 .u32 a;"));
  EXPECT_TRUE(has(".visible.global.u32 a;"));
  EXPECT_FALSE(code_facts(elf_named(".nv.shared.f", 64)).has_variables);
  EXPECT_FALSE(code_facts(elf_named(".nv.global", 0)).has_variables);
  EXPECT_TRUE(code_facts(elf_named(".nv.global", 4)).has_variables);
  EXPECT_TRUE(code_facts(elf_named(".nv.global.init", 4)).has_variables);
}

TEST(CodeFactsTest, CountsVariablesOfPtx) {
  EXPECT_EQ(variables(".version 8.0\n.target sm_90\n"), 0U);
  EXPECT_EQ(variables(".global .align 4 .b8 a[1024];"), 1024U);
  EXPECT_EQ(variables(".visible.global.align 16.v4.f32 a[0x10];"), 256U);
  EXPECT_EQ(variables(".const .u64 a[2][3], b;"), 56U);
  EXPECT_EQ(variables(".global .f16x2 a[4] = {1, 2, 3, 4};"), 16U);
  EXPECT_EQ(variables(".global .b8 a[] = {1, 2};"), 1U);
  EXPECT_EQ(variables(".global .texref t;"), 8U);
  EXPECT_EQ(variables(".global .attribute(.managed) .b32 m[010];"), 32U);
}

TEST(CodeFactsTest, PassesOverWhatIsNoVariable) {
  EXPECT_EQ(variables("// .global .b8 a[1024];\n/* .global .b8 b[9]; */"), 0U);
  EXPECT_EQ(variables(".func f() { ld.global.u32 %r1, [a+4]; st.global.v4.f32 [%r2], {a,b,c,d}; }"),
            0U);
  EXPECT_EQ(variables(".shared .b8 s[1024]; .local .b8 l[1024]; .param .b8 p[64];"), 0U);
}

TEST(CodeFactsTest, CountsWhatItCannotTellAsTooMuch) {
  for (const char* text :
       {".global .b8 a[1<<40];", ".global .b8 a[4*1024];", ".global .b8 a[(9)];",
        ".global .b8 a[99999999999999999999];", ".global .b64 a[0xffffffff][0xffffffff];"}) {
    EXPECT_EQ(loaded_bytes(bytes_of(std::string(text))), kCodeBytesUnknown) << text;
  }
}

TEST(CodeFactsTest, CountsSectionsWithoutContents) {
  EXPECT_EQ(loaded_bytes(elf_with(1 << 20)), 128U + (1 << 20));
  EXPECT_EQ(loaded_bytes(elf_with(~std::uint64_t{0})), kCodeBytesUnknown);
  EXPECT_EQ(loaded_bytes(elf_with(0, 9000)), kCodeBytesUnknown);
}

TEST(CodeFactsTest, TakesTheLargestFileOfAFatBinary) {
  const std::string small = ".global .b8 a[100];";
  const std::string large = ".global .b8 a[1000];";
  FatbinWriter writer;
  writer.add(FatbinFileKind::kPtx, 80, 0, bytes_of(large));
  writer.add(FatbinFileKind::kPtx, 90, 0, bytes_of(small));
  // Its text ends with padding there.
  EXPECT_GE(loaded_bytes(writer.finish()), 1000 + large.size());
  EXPECT_LT(loaded_bytes(writer.finish()), 1000 + large.size() + 16);
}

TEST(CodeFactsTest, CodeThatPrintsNamesTheFunction) {
  const std::string prints = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);";
  const std::string silent = ".global .b8 a[100];" + std::string(5000, ' ');
  EXPECT_TRUE(code_facts(bytes_of(prints)).may_print);
  EXPECT_FALSE(code_facts(bytes_of(silent)).may_print);
  for (const Packing packing : {Packing::kNone, Packing::kLz4, Packing::kZstd}) {
    FatbinWriter writer;
    writer.add(FatbinFileKind::kPtx, 80, 0, bytes_of(silent), packing);
    EXPECT_FALSE(code_facts(writer.finish()).may_print);
    EXPECT_GE(loaded_bytes(writer.finish()), silent.size() + 100);
    writer.add(FatbinFileKind::kPtx, 90, 0, bytes_of(prints + std::string(5000, ' ')), packing);
    EXPECT_TRUE(code_facts(writer.finish()).may_print);
  }
}

// Code itself is not searched for names, only the sections where they stand.
TEST(CodeFactsTest, NamesOfACubinStandInTheirSections) {
  const auto facts_of = [](const std::string& names, std::uint32_t type) {
    std::vector<std::byte> elf = elf_named(names, names.size());
    std::memcpy(elf.data() + 68, &type, sizeof type);
    return code_facts(elf);
  };
  constexpr std::uint32_t kNames = 3;
  constexpr std::uint32_t kContents = 1;
  using namespace std::string_literals;
  EXPECT_TRUE(facts_of("\0f\0vprintf\0"s, kNames).may_print);
  EXPECT_FALSE(facts_of("\0f\0vprintf\0"s, kContents).may_print);
  EXPECT_TRUE(facts_of("\0f\0malloc\0"s, kNames).may_remember);
  EXPECT_FALSE(facts_of("\0f\0malloc\0"s, kContents).may_remember);
  EXPECT_FALSE(facts_of("\0f\0mallocator\0"s, kNames).may_remember);
  // Names that are not all there.
  std::vector<std::byte> elf = elf_named("\0f\0"s, 1 << 20);
  std::memcpy(elf.data() + 68, &kNames, sizeof kNames);
  EXPECT_TRUE(code_facts(elf).may_print);
  EXPECT_TRUE(code_facts(elf).may_remember);
}

TEST(CodeFactsTest, TellsWhetherSomethingIsPacked) {
  const std::string text = ".global .b8 a[100];" + std::string(5000, ' ');
  EXPECT_FALSE(has_packed_code(bytes_of(text)));
  for (const Packing packing : {Packing::kNone, Packing::kLz4, Packing::kZstd}) {
    FatbinWriter writer;
    writer.add(FatbinFileKind::kPtx, 80, 0, bytes_of(text), packing);
    EXPECT_EQ(has_packed_code(writer.finish()), packing != Packing::kNone);
  }
}

TEST(CodeFactsTest, WhatCannotBeUnpackedMayPrint) {
  FatbinWriter writer;
  writer.add(FatbinFileKind::kPtx, 80, 0, bytes_of(std::string(5000, 'x')), Packing::kZstd);
  auto fatbin = writer.finish();
  fatbin[kFatbinHeaderBytes + kFatbinFileHeaderBytes] ^= std::byte{0xFF};
  EXPECT_TRUE(code_facts(fatbin).may_print);
}

TEST(CodeFactsTest, ReadsAnyBytes) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE(seed);
  Random random(seed);
  const std::string good = ".visible .global .align 4 .b8 a[1024] = {1,2}; // x\n.const .f64 b[8];";
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (int change = 0; change < 6; ++change) {
      text[random.below(text.size())] = static_cast<char>(random.below(256));
    }
    text.resize(random.below(text.size() + 1));
    EXPECT_GE(loaded_bytes(bytes_of(text)), text.size());
  }
  for (int round = 0; round < 2000; ++round) {
    auto elf = elf_with(64);
    for (int change = 0; change < 6; ++change) {
      elf[4 + random.below(elf.size() - 4)] = static_cast<std::byte>(random.below(256));
    }
    EXPECT_GE(loaded_bytes(Bytes(elf).first(4 + random.below(elf.size() - 3))), 4U);
  }
}

}  // namespace
}  // namespace flyt::cuda
