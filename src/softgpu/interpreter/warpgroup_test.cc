// wgmma, compared with sums made here. How matrices lie in shared memory is written here once more,
// from what the PTX ISA draws: rows of 16, 32, 64 or 128 bytes whose pieces change places.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "softgpu/interpreter/testing/device.h"

namespace flyt::ptx {
namespace {

constexpr unsigned kThreads = 128;
constexpr unsigned kRows = 64;
constexpr unsigned kTileBytes = 4096;

// The unit that repeats has eight lines of `width` bytes; the matrix has units side by side.
struct Layout {
  const char* name;
  unsigned width;
  std::uint64_t mode;  // Of a descriptor, in its two highest bits.
};
constexpr Layout kPlain = {"Plain", 16, 0};
constexpr Layout kBy32 = {"By32", 32, 3};
constexpr Layout kBy64 = {"By64", 64, 2};
constexpr Layout kBy128 = {"By128", 128, 1};

struct Form {
  const char* name;
  const char* types;  // Of result, left and right matrix.
  unsigned columns;
  unsigned bits;  // Of a factor.
  Layout layout;
  bool by_columns;  // The left matrix has its columns one behind the other, the right its rows.
  bool a_in_registers;
  const char* immediates;

  unsigned factors() const { return 256 / bits; }
  unsigned registers() const { return columns / 2; }
  bool integers() const { return bits == 8; }
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

// A matrix in memory: `lines` rows of the left, or columns of the right one.
struct Tile {
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(kTileBytes);
  std::uint64_t descriptor = 0;
};

std::uint64_t descriptor_of(const Layout& layout, unsigned leading, unsigned stride) {
  return std::uint64_t{leading / 16} << 16 | std::uint64_t{stride / 16} << 32 | layout.mode << 62;
}

unsigned exchanged(const Layout& layout, unsigned place) {
  const unsigned row = place / 128 % (layout.width / 16);
  return place ^ row << 4;
}

// value(line, k) is the bits of a factor.
template <class F>
Tile tile_of(const Form& form, unsigned lines, F&& value) {
  Tile made;
  const unsigned bytes = form.bits / 8;
  const unsigned unit = form.layout.width * 8;
  const unsigned along = (form.by_columns ? lines : form.factors()) * bytes;
  const unsigned per_row = (along + form.layout.width - 1) / form.layout.width;
  for (unsigned line = 0; line < lines; ++line) {
    for (unsigned k = 0; k < form.factors(); ++k) {
      const unsigned x = (form.by_columns ? line : k) * bytes;
      const unsigned y = form.by_columns ? k : line;
      const unsigned number = y / 8 * per_row + x / form.layout.width;
      const unsigned place = number * unit + y % 8 * form.layout.width + x % form.layout.width;
      const std::uint32_t bits = value(line, k);
      std::memcpy(&made.bytes.at(exchanged(form.layout, place)), &bits, bytes);
    }
  }
  const bool plain = form.layout.width == 16;
  const unsigned side = unit;             // From a unit to the next one in its row.
  const unsigned below = per_row * unit;  // To that of the next eight rows.
  const bool swapped = plain && form.by_columns;
  made.descriptor = descriptor_of(form.layout, swapped ? below : side, swapped ? side : below);
  return made;
}

std::string list(const char* prefix, unsigned first, unsigned count) {
  std::string text = "{";
  for (unsigned i = 0; i < count; ++i) {
    text += (i == 0 ? "" : ", ") + std::string(prefix) + std::to_string(first + i);
  }
  return text + "}";
}

std::string kernel_of(const Form& form) {
  std::string text = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 image, .param .u64 out, .param .u64 left, .param .u64 right,
                  .param .u64 adds) {
.shared .align 1024 .b8 tiles[8192];
.reg .b32 %t, %s, %v, %d<64>, %a<4>; .reg .b64 %image, %from, %out, %left, %right, %o;
.reg .pred %p, %more;
mov.u32 %t, %tid.x; ld.param.u64 %image, [image]; ld.param.u64 %out, [out];
ld.param.u64 %left, [left]; ld.param.u64 %right, [right]; ld.param.u64 %o, [adds];
setp.ne.u64 %p, %o, 0;
mul.lo.u32 %s, %t, 4;
again: mov.u32 %v, tiles; add.u32 %v, %v, %s; cvt.u64.u32 %o, %s; add.u64 %from, %image, %o;
ld.global.u32 %a0, [%from]; st.shared.u32 [%v], %a0;
add.u32 %s, %s, 512; setp.lt.u32 %more, %s, 8192; @%more bra again;
bar.sync 0;
mul.wide.u32 %o, %t, 16; add.u64 %from, %image, %o;
ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%from];
mov.u32 %v, tiles; shr.u32 %v, %v, 4; cvt.u64.u32 %o, %v;
or.b64 %left, %left, %o; add.u64 %o, %o, 256; or.b64 %right, %right, %o;
)";
  for (unsigned i = 0; i < form.registers(); ++i) {
    text += "mov.b32 %d" + std::to_string(i) + (form.integers() ? ", 5;\n" : ", 0f40A00000;\n");
  }
  const std::string shape =
      "m64n" + std::to_string(form.columns) + "k" + std::to_string(form.factors());
  text += "wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned." + shape + "." + form.types +
          " " + list("%d", 0, form.registers()) + ", " +
          (form.a_in_registers ? list("%a", 0, 4) : std::string("%left")) + ", %right, %p" +
          form.immediates + ";\nwgmma.commit_group.sync.aligned;\n" +
          "wgmma.wait_group.sync.aligned 0;\nmul.wide.u32 %o, %t, " +
          std::to_string(form.registers() * 4) + "; add.u64 %out, %out, %o;\n";
  for (unsigned i = 0; i < form.registers(); ++i) {
    text += "st.global.b32 [%out+" + std::to_string(i * 4) + "], %d" + std::to_string(i) + ";\n";
  }
  return text + "ret;\n}\n";
}

int left_value(unsigned row, unsigned k) { return static_cast<int>((row * 7 + k * 3) % 8) - 3; }
int right_value(unsigned column, unsigned k) {
  return static_cast<int>((column * 5 + k * 11) % 7) - 2;
}

// Small integers as factors.
std::uint32_t bits_of_value(const Form& form, int value) {
  if (form.integers()) return static_cast<std::uint32_t>(value) & 0xff;
  const auto number = static_cast<float>(value);
  std::uint32_t word = 0;
  std::memcpy(&word, &number, 4);
  if (form.bits == 32) return word;
  if (std::string(form.types).find("bf16") != std::string::npos) return word >> 16;
  if (value == 0) return 0;
  return (word >> 16 & 0x8000) | (((word >> 23 & 0xff) - 112) << 10) | (word >> 13 & 0x3ff);
}

class WarpgroupProduct : public testing::TestWithParam<Form> {
 protected:
  // What thread `t` has of the left matrix: four words.
  static std::vector<std::uint32_t> registers_of(const Form& form) {
    std::vector<std::uint32_t> words(std::size_t{kThreads} * 4);
    const unsigned per = 32 / form.bits;
    for (unsigned t = 0; t < kThreads; ++t) {
      for (unsigned r = 0; r < 4; ++r) {
        for (unsigned e = 0; e < per; ++e) {
          const unsigned row = t / 32 * 16 + t % 32 / 4 + r % 2 * 8;
          const unsigned k = t % 4 * per + e + r / 2 * 4 * per;
          words[t * 4 + r] |= bits_of_value(form, left_value(row, k)) << e * form.bits;
        }
      }
    }
    return words;
  }
};

TEST_P(WarpgroupProduct, SumsTheProductsOfRowsAndColumns) {
  const Form& form = GetParam();
  const Tile left = tile_of(form, kRows, [&](unsigned row, unsigned k) {
    return bits_of_value(form, left_value(row, k));
  });
  const Tile right = tile_of(form, form.columns, [&](unsigned column, unsigned k) {
    return bits_of_value(form, right_value(column, k));
  });
  std::vector<std::uint8_t> image = left.bytes;
  if (form.a_in_registers) {
    const auto words = registers_of(form);
    std::memcpy(image.data(), words.data(), words.size() * 4);
  }
  image.insert(image.end(), right.bytes.begin(), right.bytes.end());
  TestDevice device(kernel_of(form));
  ASSERT_EQ(device.error(), "");
  device.launch.block = {kThreads, 1, 1};
  const std::uint64_t in = device.put(image);
  const std::size_t count = std::size_t{kThreads} * form.registers();
  const std::uint64_t out = device.put(std::vector<std::uint32_t>(count));
  const std::string immediates = form.immediates;
  const bool negated = std::count(immediates.begin(), immediates.end(), '-') == 1;
  for (const std::uint64_t adds : {0, 1}) {
    const auto fault = device.run("k", in, out, left.descriptor, right.descriptor, adds);
    ASSERT_FALSE(fault.has_value()) << to_string(*fault);
    const auto words = device.get<std::uint32_t>(out, count);
    for (unsigned t = 0; t < kThreads; ++t) {
      for (unsigned i = 0; i < form.registers(); ++i) {
        const unsigned row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8;
        const unsigned column = i / 4 * 8 + t % 4 * 2 + i % 2;
        int sum = 0;
        for (unsigned k = 0; k < form.factors(); ++k) {
          sum += left_value(row, k) * right_value(column, k);
        }
        sum = (negated ? -sum : sum) + (adds != 0 ? 5 : 0);
        const std::uint32_t word = words[t * form.registers() + i];
        float number = 0;
        std::memcpy(&number, &word, 4);
        ASSERT_EQ(form.integers() ? static_cast<int>(word) : static_cast<int>(number), sum)
            << "row " << row << ", column " << column << ", adds " << adds;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, WarpgroupProduct,
    testing::Values(
        Form{"Plain", "f32.f16.f16", 32, 16, kPlain, false, false, ", 1, 1, 0, 0"},
        Form{"By32", "f32.bf16.bf16", 16, 16, kBy32, false, false, ", 1, 1, 0, 0"},
        Form{"By64", "f32.f16.f16", 8, 16, kBy64, false, false, ", -1, 1, 0, 0"},
        Form{"PlainTransposed", "f32.f16.f16", 32, 16, kPlain, true, false, ", 1, 1, 1, 1"},
        Form{"By32Transposed", "f32.bf16.bf16", 64, 16, kBy32, true, false, ", -1, -1, 1, 1"},
        Form{"By64Transposed", "f32.f16.f16", 32, 16, kBy64, true, false, ", 1, 1, 1, 1"},
        Form{"By128Transposed", "f32.f16.f16", 128, 16, kBy128, true, false, ", 1, 1, 1, 1"},
        Form{"Registers", "f32.f16.f16", 24, 16, kBy32, false, true, ", 1, -1, 0"},
        Form{"Bytes", "s32.s8.s8", 48, 8, kBy32, false, false, ""},
        Form{"BytesInRegisters", "s32.s8.s8", 8, 8, kPlain, false, true, ""},
        Form{"Tf32", "f32.tf32.tf32", 40, 32, kPlain, false, false, ", 1, 1"},
        Form{"Tf32By32", "f32.tf32.tf32", 8, 32, kBy32, false, false, ", 1, 1"}),
    [](const auto& info) { return info.param.name; });

std::string refusal_of(const std::string& instruction) {
  TestDevice device(
      ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() {\n"
      ".reg .b32 %d<8>; .reg .b64 %a, %b; .reg .pred %p;\n" +
      instruction + "\nret;\n}\n");
  return device.error();
}

TEST(WarpgroupProduct, WhatPtxDoesNotHaveIsRefused) {
  const std::string d = "{%d0, %d1, %d2, %d3}, %a, %b, %p";
  EXPECT_EQ(refusal_of("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 " + d + ", 1, 1, 0, 0;"),
            "");
  for (const std::string& wrong :
       {"m64n8k16.f32.f16.f16 " + d + ", 1, 2, 0, 0;",
        "m64n8k16.f32.f16.f16 " + d + ", 1, 1, 0, 2;", "m64n8k16.f32.f16.f16 " + d + ", 1, 1;",
        "m64n8k8.f32.f16.f16 " + d + ", 1, 1, 0, 0;",
        "m64n12k16.f32.f16.f16 " + d + ", 1, 1, 0, 0;",
        "m64n8k16.f32.f16.bf16 " + d + ", 1, 1, 0, 0;", "m64n8k32.s32.s8.s8 " + d + ", 1, 1;"}) {
    EXPECT_NE(refusal_of("wgmma.mma_async.sync.aligned." + wrong), "") << wrong;
  }
}

}  // namespace
}  // namespace flyt::ptx
