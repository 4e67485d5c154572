// mma and wmma, compared with sums made here over the layouts that the PTX ISA draws.
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "softgpu/interpreter/testing/device.h"

namespace flyt::ptx {
namespace {

constexpr unsigned kLanesPerWarp = 32;

// An mma of integer factors, narrower than a register.
struct Form {
  const char* name;         // As gtest shows it.
  const char* instruction;  // Without its operands.
  unsigned m;
  unsigned k;
  unsigned bits;  // Of a factor.
  bool a_signed;
  bool b_signed;
  char how;  // '*', '^' or '&'.

  unsigned per_register() const { return 32 / bits; }
  unsigned a_registers() const { return m / 8 * b_registers(); }
  unsigned b_registers() const { return k / (4 * per_register()); }
  unsigned c_registers() const { return m / 4; }
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

std::string registers(char name, unsigned count) {
  std::string text = "{";
  for (unsigned i = 0; i < count; ++i) {
    text += (i == 0 ? "%" : ", %") + std::string(1, name) + std::to_string(i);
  }
  return text + "}";
}

// Each lane's registers stand in memory one behind the other.
std::string kernel_of(const Form& form) {
  std::string text = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry multiply(.param .u64 pa, .param .u64 pb, .param .u64 pc) {
.reg .b32 %lane, %a<8>, %b<8>, %c<8>;
.reg .b64 %pa, %pb, %pc, %offset;
mov.u32 %lane, %tid.x;
)";
  const auto move = [&](char name, unsigned count, bool stores) {
    for (unsigned i = 0; i < count; ++i) {
      const std::string value = std::string("%") + name + std::to_string(i);
      const std::string place = std::string("[%p") + name + "+" + std::to_string(i * 4) + "]";
      text += stores ? "st.global.b32 " + place + ", " + value + ";\n"
                     : "ld.global.b32 " + value + ", " + place + ";\n";
    }
  };
  const auto find = [&](char name, unsigned count) {
    const std::string pointer = std::string("%p") + name;
    text += "ld.param.u64 " + pointer + ", [p" + name + "];\n";
    text += "mul.wide.u32 %offset, %lane, " + std::to_string(count * 4) + ";\n";
    text += "add.u64 " + pointer + ", " + pointer + ", %offset;\n";
    move(name, count, false);
  };
  find('a', form.a_registers());
  find('b', form.b_registers());
  find('c', form.c_registers());
  const std::string c = registers('c', form.c_registers());
  text += std::string(form.instruction) + " " + c + ", " + registers('a', form.a_registers()) +
          ", " + registers('b', form.b_registers()) + ", " + c + ";\n";
  move('c', form.c_registers(), true);
  return text + "ret;\n}\n";
}

int factor(std::uint32_t word, unsigned index, unsigned bits, bool is_signed) {
  const int value = static_cast<int>(word >> index * bits & ((1u << bits) - 1));
  return is_signed && value >> (bits - 1) != 0 ? value - (1 << bits) : value;
}

std::vector<std::uint32_t> some_words(std::size_t count, std::uint32_t seed) {
  std::vector<std::uint32_t> words(count);
  for (auto& word : words) word = seed = seed * 1664525 + 1013904223;
  return words;
}

class MultiplyOfIntegers : public ::testing::TestWithParam<Form> {};

TEST_P(MultiplyOfIntegers, SumsTheProductsOfRowsAndColumns) {
  const Form form = GetParam();
  TestDevice device(kernel_of(form));
  ASSERT_EQ(device.error(), "");
  const auto a = some_words(kLanesPerWarp * form.a_registers(), 1);
  const auto b = some_words(kLanesPerWarp * form.b_registers(), 2);
  std::vector<std::int32_t> c(kLanesPerWarp * form.c_registers());
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<std::int32_t>(i) * 11 - 500;
  const auto out = device.put(c);
  device.launch.block = {kLanesPerWarp, 1, 1};
  ASSERT_FALSE(device.run("multiply", device.put(a), device.put(b), out).has_value());
  const auto d = device.get<std::int32_t>(out, c.size());

  const unsigned per = form.per_register();
  const auto a_at = [&](unsigned row, unsigned k) {
    const unsigned lane = row % 8 * 4 + k / per % 4;
    const unsigned reg = row / 8 + k / (4 * per) * (form.m / 8);
    return factor(a[lane * form.a_registers() + reg], k % per, form.bits, form.a_signed);
  };
  const auto b_at = [&](unsigned k, unsigned column) {
    const unsigned lane = column * 4 + k / per % 4;
    return factor(b[lane * form.b_registers() + k / (4 * per)], k % per, form.bits, form.b_signed);
  };
  for (unsigned row = 0; row < form.m; ++row) {
    for (unsigned column = 0; column < 8; ++column) {
      const unsigned lane = row % 8 * 4 + column / 2;
      const std::size_t place = lane * form.c_registers() + row / 8 * 2 + column % 2;
      int sum = c[place];
      for (unsigned k = 0; k < form.k; ++k) {
        const int left = a_at(row, k);
        const int right = b_at(k, column);
        sum += form.how == '*' ? left * right : form.how == '^' ? left ^ right : left & right;
      }
      EXPECT_EQ(d[place], sum) << "row " << row << ", column " << column;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Narrow, MultiplyOfIntegers,
    ::testing::Values(
        Form{"s8", "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", 16, 32, 8, true, false, '*'},
        Form{"s4_small", "mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32", 8, 32, 4, true, true,
             '*'},
        Form{"s4", "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s4.u4.s32", 16, 32, 4, true,
             false, '*'},
        Form{"u4", "mma.sync.aligned.m16n8k64.row.col.s32.u4.u4.s32", 16, 64, 4, false, false, '*'},
        Form{"b1_small", "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc", 8, 128, 1,
             false, false, '^'},
        Form{"b1_and", "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc", 16, 128, 1,
             false, false, '&'},
        Form{"b1", "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", 16, 256, 1, false,
             false, '^'}),
    [](const auto& info) { return std::string(info.param.name); });

// wmma.load, wmma.mma and wmma.store of one product of 8 x 8.
std::string fragments_kernel(const std::string& shape, const std::string& element,
                             const std::string& sum, const std::string& reg,
                             const std::string& multiply, int stride) {
  const std::string width = sum == "f64" ? ".f64" : ".b32";
  const std::string row = ".sync.aligned.row." + shape + ".global.";
  return ".version 8.0\n.target sm_90\n.address_size 64\n"
         ".visible .entry multiply(.param .u64 pa, .param .u64 pb, .param .u64 pd) {\n"
         ".reg .b64 %p<3>;\n.reg .b32 %stride, %eight;\n.reg " +
         width + " %a, %b, %c<2>;\n" +
         "ld.param.u64 %p0, [pa];\nld.param.u64 %p1, [pb];\nld.param.u64 %p2, [pd];\n"
         "mov.u32 %stride, " +
         std::to_string(stride) + ";\nmov.u32 %eight, 8;\n" + "mov" + width + " %c0, " + reg +
         ";\nmov" + width + " %c1, " + reg + ";\n" + "wmma.load.a" + row + element +
         " {%a}, [%p0], %stride;\n" + "wmma.load.b.sync.aligned.col." + shape + ".global." +
         element + " {%b}, [%p1], %stride;\n" + multiply +
         " {%c0, %c1}, {%a}, {%b}, {%c0, %c1};\n" + "wmma.store.d" + row + sum +
         " [%p2], {%c0, %c1}, %eight;\nret;\n}\n";
}

void multiply_doubles(const std::string& multiply) {
  TestDevice device(fragments_kernel("m8n8k4", "f64", "f64", "0d3ff0000000000000", multiply, 4));
  ASSERT_EQ(device.error(), "");
  std::vector<double> a(32);
  std::vector<double> b(32);
  for (int i = 0; i < 32; ++i) {
    a[i] = i * 0.25 - 3;
    b[i] = 7 - i * 0.5;
  }
  const auto d = device.allocate(64 * sizeof(double));
  device.launch.block = {kLanesPerWarp, 1, 1};
  ASSERT_FALSE(device.run("multiply", device.put(a), device.put(b), d).has_value());
  const auto values = device.get<double>(d, 64);
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) {
      double sum = 1;
      for (int k = 0; k < 4; ++k) sum += a[i * 4 + k] * b[j * 4 + k];
      EXPECT_EQ(values[i * 8 + j], sum);
    }
  }
}

TEST(Fragments, OfDoublesNameTheirRounding) {
  for (const char* multiply : {"wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64.rn",
                               "wmma.mma.sync.aligned.row.col.m8n8k4.rn.f64.f64.f64.f64"}) {
    SCOPED_TRACE(multiply);
    multiply_doubles(multiply);
  }
  const auto loaded = [](const std::string& rounding) {
    return TestDevice(fragments_kernel(
                          "m8n8k4", "f64", "f64", "0d3ff0000000000000",
                          "mma.sync.aligned.m8n8k4.row.col." + rounding + ".f64.f64.f64.f64", 4))
               .error() == "";
  };
  EXPECT_TRUE(loaded("rn"));
  EXPECT_FALSE(loaded("sat"));
}

// One and a hair less.
TEST(Fragments, OfDoublesAreRoundedAsTheyName) {
  const auto sum = [](const std::string& multiply) {
    TestDevice device(fragments_kernel("m8n8k4", "f64", "f64", "0d3ff0000000000000", multiply, 4));
    EXPECT_EQ(device.error(), "");
    std::vector<double> a(32);
    a[0] = -0x1p-60;
    const auto d = device.allocate(64 * sizeof(double));
    device.launch.block = {kLanesPerWarp, 1, 1};
    EXPECT_FALSE(device.run("multiply", device.put(a), device.put(std::vector<double>(32, 1)), d)
                     .has_value());
    return device.get<double>(d, 64)[0];
  };
  for (const std::string before :
       {"mma.sync.aligned.m8n8k4.row.col.", "wmma.mma.sync.aligned.row.col.m8n8k4."}) {
    EXPECT_EQ(sum(before + "rn.f64.f64.f64.f64"), 1);
    EXPECT_EQ(sum(before + "rp.f64.f64.f64.f64"), 1);
    EXPECT_EQ(sum(before + "rz.f64.f64.f64.f64"), 1 - 0x1p-53);
    EXPECT_EQ(sum(before + "rm.f64.f64.f64.f64"), 1 - 0x1p-53);
  }
}

// Rows of 128 bits, of which 32 factors or 128 are made.
void expect_products(TestDevice& device, unsigned bits, bool is_signed, char how) {
  ASSERT_EQ(device.error(), "");
  const auto a = some_words(32, 5);
  const auto b = some_words(32, 6);
  const auto d = device.allocate(64 * 4);
  device.launch.block = {kLanesPerWarp, 1, 1};
  ASSERT_FALSE(device.run("multiply", device.put(a), device.put(b), d).has_value());
  const auto values = device.get<std::int32_t>(d, 64);
  const unsigned per = 32 / bits;
  for (unsigned i = 0; i < 8; ++i) {
    for (unsigned j = 0; j < 8; ++j) {
      int sum = 3;
      for (unsigned k = 0; k < 128 / bits; ++k) {
        const int left = factor(a[i * 4 + k / per], k % per, bits, is_signed);
        const int right = factor(b[j * 4 + k / per], k % per, bits, is_signed);
        sum += how == '*' ? left * right : left & right;
      }
      EXPECT_EQ(values[i * 8 + j], sum);
    }
  }
}

TEST(Fragments, OfFourBitsAreTwoAByte) {
  TestDevice device(fragments_kernel("m8n8k32", "s4", "s32", "3",
                                     "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32", 32));
  expect_products(device, 4, true, '*');
}

TEST(Fragments, OfSingleBitsCountThoseThatMeet) {
  TestDevice device(
      fragments_kernel("m8n8k128", "b1", "s32", "3",
                       "wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32", 128));
  expect_products(device, 1, false, '&');
}

TEST(Fragments, OfSingleBitsCannotBeSums) {
  TestDevice device(fragments_kernel("m8n8k128", "b1", "b1", "3",
                                     "wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.b1.b1.b1.b1",
                                     128));
  EXPECT_NE(device.error(), "");
}

TEST(Fragments, OfLessThanBytesHaveOneLayout) {
  const auto loaded = [](const char* instruction) {
    return TestDevice(std::string(".version 8.0\n.target sm_90\n.address_size 64\n"
                                  ".visible .entry k(.param .u64 pa) {\n"
                                  ".reg .b32 %a, %b, %c<2>; .reg .b64 %pa;\n"
                                  "ld.param.u64 %pa, [pa];\n") +
                      instruction + "\nret; }\n")
               .error() == "";
  };
  EXPECT_TRUE(loaded("wmma.load.a.sync.aligned.row.m8n8k32.global.s4 {%a}, [%pa];"));
  EXPECT_FALSE(loaded("wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%a}, [%pa];"));
  EXPECT_FALSE(loaded("wmma.load.b.sync.aligned.row.m8n8k32.global.u4 {%a}, [%pa];"));
  EXPECT_FALSE(loaded("wmma.load.b.sync.aligned.row.m8n8k128.global.b1 {%a}, [%pa];"));
  EXPECT_TRUE(
      loaded("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {%c0, %c1}, {%a}, {%b}, "
             "{%c0, %c1};"));
  EXPECT_FALSE(
      loaded("wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32 {%c0, %c1}, {%a}, {%b}, "
             "{%c0, %c1};"));
}

// Of eight rows and four times the columns: as those of the transposed product.
TEST(Fragments, OfWideProductsLieAsTransposedOnes) {
  TestDevice device(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pd) {
.reg .b32 %b<8>, %c<8>, %t; .reg .b64 %pa, %pd, %o;
ld.param.u64 %pa, [pa]; ld.param.u64 %pd, [pd];
mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 64; add.u64 %pd, %pd, %o;
wmma.load.b.sync.aligned.row.m8n32k16.global.f16 {%b0, %b1, %b2, %b3, %b4, %b5, %b6, %b7}, [%pa];
wmma.load.c.sync.aligned.row.m8n32k16.global.f32 {%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7}, [%pa];
st.global.v4.b32 [%pd], {%b0, %b1, %b2, %b3}; st.global.v4.b32 [%pd+16], {%b4, %b5, %b6, %b7};
st.global.v4.b32 [%pd+32], {%c0, %c1, %c2, %c3}; st.global.v4.b32 [%pd+48], {%c4, %c5, %c6, %c7};
ret; })");
  ASSERT_EQ(device.error(), "");
  const auto words = some_words(256, 3);
  const std::uint64_t d = device.allocate(2048);
  device.launch.block = {kLanesPerWarp, 1, 1};
  ASSERT_FALSE(device.run("k", device.put(words), d).has_value());
  const auto seen = device.get<std::uint32_t>(d, 512);
  const auto half = [&](unsigned row, unsigned column) {
    const unsigned place = row * 32 + column;
    return words[place / 2] >> place % 2 * 16 & 0xffff;
  };
  for (unsigned lane = 0; lane < kLanesPerWarp; ++lane) {
    for (unsigned r = 0; r < 8; ++r) {
      const unsigned row = lane % 4 * 2 + r / 2 % 2 * 8;
      const unsigned column = lane / 4 + r % 2 * 8 + r / 4 * 16;
      EXPECT_EQ(seen[lane * 16 + r], half(row, column) | half(row + 1, column) << 16);
      const unsigned sum_row = lane % 4 * 2 + r % 2;
      const unsigned sum_column = lane / 4 + r / 2 * 8;
      EXPECT_EQ(seen[lane * 16 + 8 + r], words[sum_row * 32 + sum_column]) << lane << ", " << r;
    }
  }
}

TEST(Fragments, LieAsThoseOfMmaDo) {
  TestDevice device(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pd) {
.reg .b32 %a<2>, %b<2>, %c<8>; .reg .b64 %pa, %pb, %pd;
ld.param.u64 %pa, [pa]; ld.param.u64 %pb, [pb]; ld.param.u64 %pd, [pd];
wmma.load.a.sync.aligned.row.m16n16k16.global.s8 {%a0, %a1}, [%pa];
wmma.load.b.sync.aligned.col.m16n16k16.global.s8 {%b0, %b1}, [%pb];
mov.b32 %c0, 1; mov.b32 %c1, 1; mov.b32 %c2, 1; mov.b32 %c3, 1;
mov.b32 %c4, 1; mov.b32 %c5, 1; mov.b32 %c6, 1; mov.b32 %c7, 1;
mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%c0, %c1, %c2, %c3}, {%a0, %a1}, {%b0},
  {%c0, %c1, %c2, %c3};
mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%c4, %c5, %c6, %c7}, {%a0, %a1}, {%b1},
  {%c4, %c5, %c6, %c7};
wmma.store.d.sync.aligned.row.m16n16k16.global.s32 [%pd],
  {%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7};
ret; })");
  ASSERT_EQ(device.error(), "");
  std::vector<std::int8_t> a(256);
  std::vector<std::int8_t> b(256);
  for (int i = 0; i < 256; ++i) {
    a[static_cast<unsigned>(i)] = static_cast<std::int8_t>(i * 7 % 23 - 11);
    b[static_cast<unsigned>(i)] = static_cast<std::int8_t>(i * 5 % 19 - 9);
  }
  const std::uint64_t d = device.allocate(1024);
  device.launch.block = {kLanesPerWarp, 1, 1};
  ASSERT_FALSE(device.run("k", device.put(a), device.put(b), d).has_value());
  const auto sums = device.get<std::int32_t>(d, 256);
  for (unsigned i = 0; i < 16; ++i) {
    for (unsigned j = 0; j < 16; ++j) {
      int sum = 1;
      for (unsigned k = 0; k < 16; ++k) sum += a[i * 16 + k] * b[j * 16 + k];
      EXPECT_EQ(sums[i * 16 + j], sum) << i << ", " << j;
    }
  }
}

TEST(Fragments, OfHalvesHoldEachFactorTwice) {
  TestDevice device(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pd) {
.reg .b32 %a<8>, %t; .reg .b64 %pa, %pd, %o;
ld.param.u64 %pa, [pa]; ld.param.u64 %pd, [pd];
mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 32; add.u64 %pd, %pd, %o;
wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}, [%pa];
st.global.v4.b32 [%pd], {%a0, %a1, %a2, %a3}; st.global.v4.b32 [%pd+16], {%a4, %a5, %a6, %a7};
ret; })");
  ASSERT_EQ(device.error(), "");
  const auto words = some_words(128, 3);
  const std::uint64_t d = device.allocate(1024);
  device.launch.block = {kLanesPerWarp, 1, 1};
  ASSERT_FALSE(device.run("k", device.put(words), d).has_value());
  const auto seen = device.get<std::uint32_t>(d, 256);
  for (unsigned lane = 0; lane < kLanesPerWarp; ++lane) {
    for (unsigned r = 0; r < 8; ++r) {
      const unsigned row = lane / 4 + r % 2 * 8;
      EXPECT_EQ(seen[lane * 8 + r], words[row * 8 + lane % 4 + r % 4 / 2 * 4]) << lane << ", " << r;
    }
  }
}

// mma.m8n8k4 of halves: which lanes make a product, and what each has of it.
struct Pairs {
  const char* layouts;
  bool a_by_columns;
  bool b_by_columns;
};

int left_of(unsigned pair, unsigned row, unsigned k) {
  return static_cast<int>((pair + row * 3 + k) % 4) - 1;
}
int right_of(unsigned pair, unsigned k, unsigned column) {
  return static_cast<int>((pair * 2 + column + k * 3) % 4) - 2;
}
std::uint32_t half_bits(int value) {
  constexpr std::uint32_t kHalves[] = {0xc000, 0xbc00, 0, 0x3c00, 0x4000};
  return kHalves[value + 2];
}

TEST(QuadPairs, MakeFourProductsAtOnce) {
  for (const Pairs& form : {Pairs{"row.col", false, true}, Pairs{"col.row", true, false},
                            Pairs{"row.row", false, false}, Pairs{"col.col", true, true}}) {
    TestDevice device(std::string(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pd) {
.reg .b32 %t, %a<2>, %b<2>, %c<8>; .reg .b64 %pa, %pd, %o;
ld.param.u64 %pa, [pa]; ld.param.u64 %pd, [pd];
mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 16; add.u64 %pa, %pa, %o;
ld.global.v4.b32 {%a0, %a1, %b0, %b1}, [%pa];
mul.wide.u32 %o, %t, 32; add.u64 %pd, %pd, %o;
mov.b32 %c0, 0x40003c00; mov.b32 %c1, %c0; mov.b32 %c2, %c0; mov.b32 %c3, %c0;
mma.sync.aligned.m8n8k4.)") +
                      form.layouts +
                      R"(.f32.f16.f16.f16 {%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7},
  {%a0, %a1}, {%b0, %b1}, {%c0, %c1, %c2, %c3};
st.global.v4.b32 [%pd], {%c0, %c1, %c2, %c3}; st.global.v4.b32 [%pd+16], {%c4, %c5, %c6, %c7};
ret; })");
    ASSERT_EQ(device.error(), "");
    std::vector<std::uint32_t> words(128);
    for (unsigned lane = 0; lane < kLanesPerWarp; ++lane) {
      const unsigned pair = lane / 4 % 4;
      const unsigned upper = lane / 16 * 4;
      for (unsigned i = 0; i < 4; ++i) {
        const int left = form.a_by_columns ? left_of(pair, i + upper, lane % 4)
                                           : left_of(pair, lane % 4 + upper, i);
        const int right = form.b_by_columns ? right_of(pair, i, lane % 4 + upper)
                                            : right_of(pair, lane % 4, i + upper);
        words[lane * 4 + i / 2] |= half_bits(left) << i % 2 * 16;
        words[lane * 4 + 2 + i / 2] |= half_bits(right) << i % 2 * 16;
      }
    }
    const std::uint64_t d = device.allocate(1024);
    device.launch.block = {kLanesPerWarp, 1, 1};
    ASSERT_FALSE(device.run("k", device.put(words), d).has_value());
    const auto sums = device.get<float>(d, 256);
    for (unsigned lane = 0; lane < kLanesPerWarp; ++lane) {
      for (unsigned i = 0; i < 8; ++i) {
        const unsigned row = (lane & 1) + (i & 2) + lane / 16 * 4;
        const unsigned column = (i & 4) + (lane & 2) + (i & 1);
        int sum = column % 2 == 0 ? 1 : 2;  // The halves that were there.
        for (unsigned k = 0; k < 4; ++k) {
          sum += left_of(lane / 4 % 4, row, k) * right_of(lane / 4 % 4, k, column);
        }
        EXPECT_EQ(static_cast<int>(sums[lane * 8 + i]), sum) << form.layouts << lane << " " << i;
      }
    }
  }
}

TEST(QuadPairs, DoNotNarrowTheirSums) {
  const char* const text = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry k() {
.reg .b32 %a<2>, %c<8>;
mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f32 {%c0, %c1, %c2, %c3}, {%a0, %a1}, {%a0, %a1},
  {%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7};
ret; })";
  EXPECT_NE(TestDevice(text).error(), "");
}

// Each lane's row of 16 bytes goes to shared memory and comes back by fragments, through the
// address in `space`; `how` makes that address of %row, which is one of shared memory.
std::string tile_kernel(const std::string& space, const std::string& how) {
  return R"(.version 7.8
.target sm_90
.address_size 64
.visible .entry move(.param .u64 pa, .param .u64 pd) {
.reg .b32 %lane, %v<4>;
.reg .b64 %pa, %pd, %offset, %row, %address;
.shared .align 16 .b8 tile[1024];
ld.param.u64 %pa, [pa];
ld.param.u64 %pd, [pd];
mov.u32 %lane, %tid.x;
mul.wide.u32 %offset, %lane, 16;
mov.u64 %row, tile;
add.u64 %row, %row, %offset;
add.u64 %pa, %pa, %offset;
add.u64 %pd, %pd, %offset;
ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%pa];
st.shared.v4.b32 [%row], {%v0, %v1, %v2, %v3};
bar.warp.sync 0xffffffff;
)" + how +
         "ldmatrix.sync.aligned.m8n8.x4" + space + ".b16 {%v0, %v1, %v2, %v3}, [%address];\n" +
         "st.global.v4.b32 [%pd], {%v0, %v1, %v2, %v3};\n" + "stmatrix.sync.aligned.m8n8.x4.trans" +
         space + ".b16 [%address+512], {%v0, %v1, %v2, %v3};\n" +
         "bar.warp.sync 0xffffffff;\n"
         "ld.shared.v4.b32 {%v0, %v1, %v2, %v3}, [%row+512];\n"
         "st.global.v4.b32 [%pd+512], {%v0, %v1, %v2, %v3};\nret;\n}\n";
}

TEST(Tiles, AreFoundByGenericAddressesToo) {
  const std::string generic = "cvta.shared.u64 %address, %row;\n";
  std::vector<std::uint32_t> seen[2];
  for (const bool is_generic : {false, true}) {
    TestDevice device(is_generic ? tile_kernel("", generic)
                                 : tile_kernel(".shared", "mov.u64 %address, %row;\n"));
    ASSERT_EQ(device.error(), "");
    const auto d = device.allocate(1024);
    device.launch.block = {kLanesPerWarp, 1, 1};
    ASSERT_FALSE(device.run("move", device.put(some_words(128, 9)), d).has_value());
    seen[is_generic ? 1 : 0] = device.get<std::uint32_t>(d, 256);
  }
  EXPECT_EQ(seen[0], seen[1]);
  // Lane 5 has the second pair of the second row of each matrix.
  EXPECT_EQ(seen[1][5 * 4 + 2], some_words(128, 9)[(16 + 1) * 4 + 1]);
}

TEST(Tiles, AreNowhereButInSharedMemory) {
  TestDevice device(tile_kernel("", "mov.u64 %address, %pa;\n"));
  ASSERT_EQ(device.error(), "");
  device.launch.block = {kLanesPerWarp, 1, 1};
  const auto fault = device.run("move", device.put(some_words(256, 9)), device.allocate(1024));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, FaultKind::kIllegalAddress);
}

}  // namespace
}  // namespace flyt::ptx
