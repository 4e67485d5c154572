// mma.sp, compared with sums over the whole matrix: factors, and the metadata that say where they
// are, are put into lanes' registers here, as the PTX ISA draws them.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "softgpu/interpreter/testing/device.h"

namespace flyt::ptx {
namespace {

constexpr unsigned kLanesPerWarp = 32;
constexpr unsigned kRows = 16;
constexpr unsigned kColumns = 8;

enum class Kind { kHalf, kSingle, kByte, kNibble, kByteFloat };

struct Form {
  const char* name;
  const char* instruction;
  Kind kind;
  unsigned factors;  // Of a row of the whole left matrix.
  unsigned selector;

  unsigned bits() const {
    switch (kind) {
      case Kind::kHalf:
        return 16;
      case Kind::kSingle:
        return 32;
      case Kind::kByte:
      case Kind::kByteFloat:
        return 8;
      case Kind::kNibble:
        return 4;
    }
    return 0;
  }
  unsigned per_register() const { return 32 / bits(); }
  unsigned block() const { return 8 * per_register(); }
  unsigned blocks() const { return factors / block(); }
  bool integers() const { return kind == Kind::kByte || kind == Kind::kNibble; }
  // Columns that are chosen together, and of how many such.
  unsigned together() const { return kind == Kind::kNibble ? 2 : 1; }
  unsigned chunk() const { return kind == Kind::kSingle ? 2 : kind == Kind::kNibble ? 8 : 4; }
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

std::uint32_t encoded(Kind kind, int value) {
  static constexpr std::uint32_t kHalves[] = {0xc000, 0xbc00, 0, 0x3c00, 0x4000, 0x4200};
  static constexpr std::uint32_t kBytes[] = {0xc0, 0xb8, 0, 0x38, 0x40, 0x44};
  switch (kind) {
    case Kind::kHalf:
      return kHalves[value + 2];
    case Kind::kByteFloat:
      return kBytes[value + 2];
    case Kind::kByte:
      return static_cast<std::uint32_t>(value) & 0xff;
    case Kind::kNibble:
      return static_cast<std::uint32_t>(value) & 15;
    case Kind::kSingle:
      break;
  }
  const auto number = static_cast<float>(value);
  std::uint32_t word = 0;
  std::memcpy(&word, &number, 4);
  return word;
}

class Numbers {
 public:
  unsigned below(unsigned limit) {
    state_ = state_ * 1664525 + 1013904223;
    return (state_ >> 16) % limit;
  }
  int small() { return static_cast<int>(below(6)) - 2; }

 private:
  std::uint32_t state_ = 7;
};

struct Operands {
  explicit Operands(const Form& form)
      : a(std::size_t{kLanesPerWarp} * 2 * form.blocks()),
        b(std::size_t{kLanesPerWarp} * 2 * form.blocks()),
        metadata(kLanesPerWarp, 0xdddddddd) {}
  std::vector<std::uint32_t> a;
  std::vector<std::uint32_t> b;
  std::vector<std::uint32_t> metadata;
  std::vector<int> sums = std::vector<int>(kRows * kColumns);
};

// The lane, and the lowest bit there, of the metadata of a row in a block.
std::pair<unsigned, unsigned> place_of(const Form& form, unsigned row, unsigned block) {
  const unsigned group = row % 8 * 4;
  if (form.bits() >= 16) {
    const unsigned member = form.blocks() == 1 ? form.selector : form.selector * 2 + block;
    return {group + member, row / 8 * 16};
  }
  const unsigned pair = form.blocks() == 1 ? form.selector : block;
  return {group + pair * 2 + row / 8, 0};
}

void put_bits(std::uint32_t& word, unsigned place, unsigned count, std::uint32_t bits) {
  const std::uint32_t ones = count == 32 ? ~0u : (1u << count) - 1;
  word = (word & ~(ones << place)) | bits << place;
}

Operands operands_of(const Form& form) {
  Operands made(form);
  Numbers numbers;
  std::vector<int> whole(std::size_t{kRows} * form.factors);
  const unsigned choices = form.chunk() / form.together();
  for (unsigned row = 0; row < kRows; ++row) {
    unsigned stored = 0;
    for (unsigned first = 0; first < form.factors; first += form.chunk()) {
      const unsigned low = numbers.below(choices - 1);
      const unsigned high = low + 1 + numbers.below(choices - 1 - low);
      std::vector<unsigned> chosen = {low, high};
      if (form.kind == Kind::kSingle) chosen = {numbers.below(2)};
      const auto [lane, place] = place_of(form, row, first / form.block());
      const unsigned number = first % form.block() / form.chunk();
      const std::uint32_t pattern =
          form.kind == Kind::kSingle ? (chosen[0] == 0 ? 0b0100 : 0b1110) : low | high << 2;
      put_bits(made.metadata[lane], place + number * 4, 4, pattern);
      for (const unsigned choice : chosen) {
        for (unsigned i = 0; i < form.together(); ++i, ++stored) {
          const int value = numbers.small();
          whole[row * form.factors + first + choice * form.together() + i] = value;
          const unsigned per = form.per_register();
          const unsigned owner = row % 8 * 4 + stored / per % 4;
          const unsigned reg = row / 8 + stored / (4 * per) * 2;
          put_bits(made.a[owner * 2 * form.blocks() + reg], stored % per * form.bits(), form.bits(),
                   encoded(form.kind, value));
        }
      }
    }
  }
  for (unsigned k = 0; k < form.factors; ++k) {
    for (unsigned column = 0; column < kColumns; ++column) {
      const int value = numbers.small();
      const unsigned per = form.per_register();
      const unsigned owner = column * 4 + k / per % 4;
      put_bits(made.b[owner * 2 * form.blocks() + k / (4 * per)], k % per * form.bits(),
               form.bits(), encoded(form.kind, value));
      for (unsigned row = 0; row < kRows; ++row) {
        made.sums[row * kColumns + column] += whole[row * form.factors + k] * value;
      }
    }
  }
  return made;
}

std::string registers(char name, unsigned count) {
  std::string text = "{";
  for (unsigned i = 0; i < count; ++i) {
    text += (i == 0 ? "%" : ", %") + std::string(1, name) + std::to_string(i);
  }
  return text + "}";
}

std::string kernel_of(const Form& form, unsigned selector) {
  const unsigned count = 2 * form.blocks();
  std::string text = R"(.version 8.5
.target sm_90
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pe, .param .u64 pd) {
.reg .b32 %t, %a<4>, %b<4>, %c<4>, %e; .reg .b64 %pa, %pb, %pe, %pd, %o;
ld.param.u64 %pa, [pa]; ld.param.u64 %pb, [pb]; ld.param.u64 %pe, [pe]; ld.param.u64 %pd, [pd];
mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; add.u64 %pe, %pe, %o; ld.global.b32 %e, [%pe];
mul.wide.u32 %o, %t, 16; add.u64 %pd, %pd, %o;
mov.b32 %c0, 0; mov.b32 %c1, 0; mov.b32 %c2, 0; mov.b32 %c3, 0;
)";
  text += "mul.wide.u32 %o, %t, " + std::to_string(count * 4) +
          "; add.u64 %pa, %pa, %o; add.u64 %pb, %pb, %o;\n";
  for (unsigned i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    const std::string offset = std::to_string(i * 4);
    text += "ld.global.b32 %a" + number + ", [%pa+" + offset + "]; ld.global.b32 %b" + number +
            ", [%pb+" + offset + "];\n";
  }
  return text + form.instruction + " {%c0, %c1, %c2, %c3}, " + registers('a', count) + ", " +
         registers('b', count) + ", {%c0, %c1, %c2, %c3}, %e, " + std::to_string(selector) +
         ";\nst.global.v4.b32 [%pd], {%c0, %c1, %c2, %c3};\nret;\n}\n";
}

class SparseProduct : public testing::TestWithParam<Form> {};

TEST_P(SparseProduct, TakesFactorsForWhereTheMetadataSay) {
  const Form& form = GetParam();
  const Operands operands = operands_of(form);
  TestDevice device(kernel_of(form, form.selector));
  ASSERT_EQ(device.error(), "");
  device.launch.block = {kLanesPerWarp, 1, 1};
  const std::uint64_t d = device.allocate(512);
  const auto fault = device.run("k", device.put(operands.a), device.put(operands.b),
                                device.put(operands.metadata), d);
  ASSERT_FALSE(fault.has_value()) << to_string(*fault);
  const auto words = device.get<std::uint32_t>(d, 128);
  for (unsigned lane = 0; lane < kLanesPerWarp; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = lane / 4 + i / 2 * 8;
      const unsigned column = lane % 4 * 2 + i % 2;
      const std::uint32_t word = words[lane * 4 + i];
      float number = 0;
      std::memcpy(&number, &word, 4);
      EXPECT_EQ(form.integers() ? static_cast<int>(word) : static_cast<int>(number),
                operands.sums[row * kColumns + column])
          << "row " << row << ", column " << column;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, SparseProduct,
    testing::Values(
        Form{"Halves", "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", Kind::kHalf, 16, 0},
        Form{"HalvesOfTheLast", "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", Kind::kHalf,
             16, 3},
        Form{"HalvesOfTwo",
             "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", Kind::kHalf,
             32, 1},
        Form{"Tf32", "mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", Kind::kSingle, 8, 2},
        Form{"Tf32OfTwo", "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", Kind::kSingle,
             16, 0},
        Form{"Bytes", "mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", Kind::kByte, 32, 1},
        Form{"BytesOfTwo", "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32",
             Kind::kByte, 64, 0},
        Form{"Nibbles", "mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", Kind::kNibble, 64, 1},
        Form{"NibblesOfTwo", "mma.sp.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32", Kind::kNibble,
             128, 0},
        Form{"ByteFloats",
             "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32",
             Kind::kByteFloat, 64, 0}),
    [](const auto& info) { return info.param.name; });

TEST(SparseProduct, ASelectorOfNobodyIsRefused) {
  const Form form = {"", "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32", Kind::kByte, 64, 0};
  EXPECT_NE(TestDevice(kernel_of(form, 1)).error(), "");
  EXPECT_NE(TestDevice(kernel_of(form, 4)).error(), "");
}

TEST(SparseProduct, SmallFloatsHaveNoHalvesAsSums) {
  const Form form = {"", "mma.sp.sync.aligned.m16n8k64.row.col.f16.e4m3.e4m3.f16", Kind::kByteFloat,
                     64, 0};
  EXPECT_NE(TestDevice(kernel_of(form, 0)).error(), "");
}

}  // namespace
}  // namespace flyt::ptx
