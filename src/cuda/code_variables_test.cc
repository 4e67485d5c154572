#include "cuda/code_variables.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/random.h"

namespace flyt::cuda {
namespace {

using Names = std::vector<std::string>;

CodeVariables of_text(const std::string& text) { return variables_of_file(bytes_of(text)); }

// A cubin with sections .symtab, .strtab, .shstrtab and one of variables.
struct Cubin {
  struct Symbol {
    std::string name;
    std::uint64_t size = 4;
    std::uint8_t kind = 1;
    std::uint16_t section = 4;
  };
  std::string section = ".nv.global";
  std::uint64_t bytes = 64;
  std::vector<Symbol> symbols;

  std::vector<std::byte> make() const {
    std::string names(1, '\0');
    std::vector<std::byte> table(24);
    for (const Symbol& symbol : symbols) {
      std::vector<std::byte> entry(24);
      Writer writer(entry);
      writer.write(static_cast<std::uint32_t>(names.size()));
      writer.write(symbol.kind);
      writer.write(std::uint8_t{0});
      writer.write(symbol.section);
      writer.write(std::uint64_t{0});
      writer.write(symbol.size);
      table.insert(table.end(), entry.begin(), entry.end());
      names += symbol.name + '\0';
    }
    std::string sections(1, '\0');
    const auto section_name = static_cast<std::uint32_t>(sections.size());
    sections += section + '\0';
    const std::uint64_t table_at = 64;
    const std::uint64_t names_at = table_at + table.size();
    const std::uint64_t sections_at = names_at + names.size();
    const std::uint64_t headers_at = sections_at + sections.size();
    std::vector<std::byte> elf(headers_at + 5 * 64);
    const auto put = [&](std::size_t at, auto value) {
      std::memcpy(elf.data() + at, &value, sizeof value);
    };
    put(0, std::uint32_t{0x464C457F});
    put(40, headers_at);
    put(60, std::uint16_t{5});
    put(62, std::uint16_t{3});
    std::memcpy(elf.data() + table_at, table.data(), table.size());
    std::memcpy(elf.data() + names_at, names.data(), names.size());
    std::memcpy(elf.data() + sections_at, sections.data(), sections.size());
    const auto header = [&](std::size_t index, std::uint32_t name, std::uint32_t type,
                            std::uint64_t at, std::uint64_t size, std::uint32_t link) {
      const std::size_t base = headers_at + index * 64;
      put(base, name);
      put(base + 4, type);
      put(base + 24, at);
      put(base + 32, size);
      put(base + 40, link);
    };
    header(1, 0, 2, table_at, table.size(), 2);
    header(2, 0, 3, names_at, names.size(), 0);
    header(3, 0, 3, sections_at, sections.size(), 0);
    header(4, section_name, 8, headers_at, bytes, 0);
    return elf;
  }
};

TEST(CodeVariables, AreTheGlobalOnesOfAText) {
  EXPECT_EQ(of_text(".visible .global .align 4 .u32 a;").names, Names{"a"});
  EXPECT_EQ(of_text(".visible.global.v4.f32 a[4]; .weak .global .b8 $str[3] = {1, 2, 3}, c;").names,
            (Names{"$str", "a", "c"}));
  EXPECT_EQ(of_text(".global .u64 p = generic(x), q[2] = {f, generic(y)+4}; .global .u32 r;").names,
            (Names{"p", "q", "r"}));
  EXPECT_EQ(of_text(".global .attribute(.managed) .b32 m; .extern .global .b32 m;").names,
            Names{"m"});
  EXPECT_FALSE(of_text(".const .u32 a = 1; .shared .u32 b; // .global .u32 c;").any());
}

TEST(CodeVariables, AreNotWhatParametersPointAt) {
  const CodeVariables found = of_text(
      ".visible .entry f(.param .u64 .ptr .global .align 16 a, .param .u64 b)\n"
      "{ .reg .b32 %r<2>; ld.global.u32 %r1, [a]; st.global.u32 [b], %r1; }\n"
      ".global .u32 c;");
  EXPECT_EQ(found.names, Names{"c"});
  EXPECT_TRUE(found.complete);
}

TEST(CodeVariables, AreSymbolsOfACubin) {
  Cubin cubin{.symbols = {{.name = "b"},
                          {.name = "a", .kind = 13},
                          {.name = "f", .kind = 2},
                          {.name = "s", .kind = 3},
                          {.name = "elsewhere", .section = 2},
                          {.name = "nothing", .size = 0}}};
  EXPECT_EQ(variables_of_file(cubin.make()).names, (Names{"a", "b"}));
  EXPECT_TRUE(variables_of_file(cubin.make()).complete);
  cubin.section = ".nv.global.init";
  EXPECT_EQ(variables_of_file(cubin.make()).names, (Names{"a", "b"}));
  cubin.section = ".nv.constant3";
  EXPECT_FALSE(variables_of_file(cubin.make()).any());
}

TEST(CodeVariables, WithoutNamesAreIncomplete) {
  EXPECT_FALSE(variables_of_file(Cubin{}.make()).complete);
  EXPECT_FALSE(variables_of_file(Cubin{.symbols = {{.name = ""}}}.make()).complete);
  EXPECT_TRUE(variables_of_file(Cubin{.bytes = 0}.make()).complete);
  auto cut = Cubin{.symbols = {{.name = "a"}}}.make();
  cut.resize(cut.size() - 1);
  EXPECT_FALSE(variables_of_file(cut).complete);
}

TEST(CodeVariables, AreThoseOfTheFilesThatFit) {
  FatbinWriter writer;
  writer.add(FatbinFileKind::kElf, 80, 0, Cubin{.symbols = {{.name = "of80"}}}.make());
  writer.add(FatbinFileKind::kElf, 90, 0, Cubin{.symbols = {{.name = "of90"}}}.make());
  writer.add(FatbinFileKind::kPtx, 75, 0, bytes_of(std::string_view(".global .u32 text;")),
             Packing::kZstd);
  const auto files = variables_of_image(writer.finish(), {9, 0});
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].names, Names{"of90"});
  EXPECT_EQ(files[1].names, Names{"text"});
}

TEST(CodeVariables, OfTextsInCodeAreKnownByTheirNames) {
  EXPECT_TRUE(names_literal("$str$1"));
  EXPECT_TRUE(names_literal("__unnamed_2"));
  EXPECT_FALSE(names_literal("string"));
}

TEST(CodeVariables, AreReadFromAnyBytes) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE(seed);
  Random random(seed);
  const std::string good = ".visible .global .b8 a[4] = {1,(2)}, b; .global .attribute(.x) .u8 c;";
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (int change = 0; change < 6; ++change) {
      text[random.below(text.size())] = static_cast<char>(random.below(256));
    }
    text.resize(random.below(text.size() + 1));
    EXPECT_LE(of_text(text).names.size(), text.size());
  }
  const auto cubin = Cubin{.symbols = {{.name = "a"}, {.name = "b"}}}.make();
  for (int round = 0; round < 20000; ++round) {
    auto elf = cubin;
    for (int change = 0; change < 6; ++change) {
      elf[4 + random.below(elf.size() - 4)] = static_cast<std::byte>(random.below(256));
    }
    elf.resize(4 + random.below(elf.size() - 3));
    EXPECT_LE(variables_of_file(elf).names.size(), elf.size());
  }
}

}  // namespace
}  // namespace flyt::cuda
