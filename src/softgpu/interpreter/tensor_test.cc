// Boxes of tensors: what lies outside, swizzles, stores and reductions, and maps that are none.
#include "softgpu/interpreter/tensor_map.h"

#include <cstddef>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "softgpu/interpreter/testing/device.h"

namespace flyt::ptx {
namespace {

constexpr unsigned kWidth = 12;  // Of the tensor, in words; rows are 64 bytes apart.
constexpr unsigned kHeight = 6;
constexpr unsigned kRowWords = 16;
constexpr unsigned kBoxWidth = 8;
constexpr unsigned kBoxHeight = 4;
constexpr unsigned kBoxWords = kBoxWidth * kBoxHeight;

// A kernel k(map, out, x, y) of one warp: `load` announces and brings a box, `body` follows; then
// each thread writes its word of the box to out.
std::string kernel(const std::string& load, const std::string& body = "") {
  return R"(.version 8.6
.target sm_90
.address_size 64
.shared .align 1024 .b8 box[1024];
.shared .align 8 .b64 bar;
.visible .entry k(.param .u64 map, .param .u64 out, .param .u32 x, .param .u32 y) {
.reg .b32 %i, %r, %box, %own, %x, %y;
.reg .b64 %map, %out, %o;
.reg .b16 %mask;
.reg .pred %first, %done;
ld.param.u64 %map, [map]; ld.param.u64 %out, [out];
ld.param.u32 %x, [x]; ld.param.u32 %y, [y];
mov.u32 %i, %tid.x; setp.eq.u32 %first, %i, 0; mov.u32 %box, box;
shl.b32 %own, %i, 2; add.u32 %own, %own, %box;
mov.u32 %r, 1000; add.u32 %r, %r, %i; st.shared.u32 [%own], %r; cvt.u16.u32 %mask, 1;
@%first mbarrier.init.shared::cta.b64 [bar], 1;
bar.sync 0;
)" + load +
         body + R"(
ld.shared.u32 %r, [%own]; mul.wide.u32 %o, %i, 4;
add.u64 %out, %out, %o; st.global.u32 [%out], %r;
ret;
}
)";
}

const char* const kLoad = R"(
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
@%first cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
  [%box], [%map, {%x, %y}], [bar];
wait: mbarrier.try_wait.parity.shared::cta.b64 %done, [bar], 0;
@!%done bra wait;
)";

class Tensors : public ::testing::Test {
 protected:
  TensorMap map_of(std::uint64_t address) const {
    TensorMap map;
    map.type = static_cast<std::uint8_t>(TensorType::kU32);
    map.rank = 2;
    map.address = address;
    map.dimensions = {kWidth - 1, kHeight - 1};
    map.strides = {kRowWords * 4};
    map.box = {kBoxWidth, kBoxHeight};
    map.element_strides = {1, 1};
    return map;
  }

  // Runs with the map that `change` has made of the usual one; what each thread found.
  template <class F>
  std::vector<std::uint32_t> run(const std::string& text, int x, int y, F&& change) {
    TestDevice device(text);
    EXPECT_EQ(device.error(), "");
    if (!device.error().empty()) return std::vector<std::uint32_t>(kBoxWords);
    tensor_.resize(kRowWords * kHeight);
    for (std::uint32_t i = 0; i < tensor_.size(); ++i) tensor_[i] = i;
    const auto tensor = device.put(tensor_);
    TensorMap map = map_of(tensor);
    change(map);
    const auto out = device.allocate(kBoxWords * 4);
    device.launch.block = {32, 1, 1};
    fault_ = device.run("k", device.put(std::vector<TensorMap>{map}), out, x, y);
    tensor_ = device.get<std::uint32_t>(tensor, tensor_.size());
    return device.get<std::uint32_t>(out, kBoxWords);
  }
  std::vector<std::uint32_t> run(const std::string& text, int x, int y) {
    const auto found = run(text, x, y, [](TensorMap&) {});
    EXPECT_FALSE(fault_.has_value()) << to_string(*fault_);
    return found;
  }

  static bool inside(int x, int y) {
    return x >= 0 && y >= 0 && x < static_cast<int>(kWidth) && y < static_cast<int>(kHeight);
  }

  std::vector<std::uint32_t> tensor_;  // What is there after the run.
  std::optional<Fault> fault_;
};

TEST_F(Tensors, ABoxIsLoadedWithZerosForWhatLiesOutside) {
  for (const auto& [left, top] : {std::pair{0, 0}, {4, 1}, {-4, -2}, {8, 4}, {100, 0}}) {
    const auto found = run(kernel(kLoad), left, top);
    for (unsigned i = 0; i < kBoxWords; ++i) {
      const int x = left + static_cast<int>(i % kBoxWidth);
      const int y = top + static_cast<int>(i / kBoxWidth);
      const std::uint32_t wanted =
          inside(x, y) ? static_cast<std::uint32_t>(y) * kRowWords + static_cast<std::uint32_t>(x)
                       : 0;
      ASSERT_EQ(found[i], wanted) << left << ", " << top << ": " << i;
    }
  }
}

TEST_F(Tensors, AddressesMayHaveOffsets) {
  const auto found = run(kernel(R"(
.reg .b64 %before; sub.u64 %before, %map, 64; add.u32 %box, %box, 256;
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
@%first cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
  [%box+-256], [%before+64, {%x, %y}], [bar+0];
wait: mbarrier.try_wait.parity.shared::cta.b64 %done, [bar], 0;
@!%done bra wait;
)"),
                         4, 1);
  for (unsigned i = 0; i < kBoxWords; ++i) {
    EXPECT_EQ(found[i], (1 + i / kBoxWidth) * kRowWords + 4 + i % kBoxWidth);
  }
}

TEST_F(Tensors, AMapIsReplacedPieceByPiece) {
  // The map that the kernel gets says nothing right but where the tensor is, in an unused place.
  const std::string address = std::to_string(offsetof(TensorMap, strides) + 24);
  const auto found = run(kernel(R"(
.shared .align 128 .b8 own_map[128];
.reg .b64 %address, %stride; .reg .b32 %copy, %word, %width, %rank;
shl.b32 %copy, %i, 2; cvt.u64.u32 %o, %copy; add.u64 %o, %o, %map; ld.global.u32 %word, [%o];
mov.u32 %r, own_map; add.u32 %copy, %copy, %r; st.shared.u32 [%copy], %word;
ld.global.u64 %address, [%map+)" +
                                address + R"(];
mov.u64 %stride, 64; mov.u32 %width, 12; mov.u32 %rank, 1;
bar.sync 0;
@%first tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r], %address;
@%first tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r], %rank;
@%first tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r], 0, 8;
@%first tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r], 1, 4;
@%first tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r], 0, %width;
@%first tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r], 0, %stride;
@%first tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r], 0, 1;
@%first tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r], 2;
@%first tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r], 0;
@%first tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r], 0;
@%first tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r], 0;
bar.sync 0;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
  [%map], [own_map], 128;
fence.proxy.tensormap::generic.acquire.gpu [%map], 128;
@%first tensormap.replace.tile.global_dim.global.b1024.b32 [%map], 1, 6;
@%first tensormap.replace.tile.element_stride.b1024.b32 [%map], 1, 1;
bar.sync 0;
)" + std::string(kLoad)),
                         8, 3, [](TensorMap& map) {
                           TensorMap wrong;
                           wrong.swizzle = 2;
                           wrong.fill = 1;
                           wrong.interleave = 1;
                           wrong.strides[3] = map.address;
                           map = wrong;
                         });
  ASSERT_FALSE(fault_.has_value()) << to_string(*fault_);
  for (unsigned i = 0; i < kBoxWords; ++i) {
    const unsigned x = 8 + i % kBoxWidth;
    const unsigned y = 3 + i / kBoxWidth;
    EXPECT_EQ(found[i], x < kWidth && y < kHeight ? y * kRowWords + x : 0) << i;
  }
}

TEST_F(Tensors, ElementsMayBePassedOver) {
  const auto found = run(kernel(R"(
@%first cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
  [%box], [%map, {%x, %y}], [bar];
)"),
                         4, 0, [](TensorMap& map) {
                           map.element_strides = {1, 2};
                         });
  ASSERT_FALSE(fault_.has_value());
  for (unsigned i = 0; i < 2 * kBoxWidth; ++i) {
    EXPECT_EQ(found[i], i / kBoxWidth * 2 * kRowWords + i % kBoxWidth + 4);
  }
  EXPECT_EQ(found[2 * kBoxWidth], 1000 + 2 * kBoxWidth);  // Was not touched.
}

TEST_F(Tensors, ChunksChangePlacesByTheirLine) {
  const auto found = run(kernel(kLoad), 0, 0, [](TensorMap& map) {
    map.swizzle = static_cast<std::uint8_t>(TensorSwizzle::k32);
    map.box = {kBoxWidth, kBoxHeight};
  });
  ASSERT_FALSE(fault_.has_value());
  // Four rows are one line of 128 bytes, the first: nothing moves.
  EXPECT_EQ(found[5], 5u);
  const auto wide = run(kernel(R"(
@%first cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
  [%box], [%map, {%x, %y}], [bar];
bar.sync 0; add.u32 %own, %own, 128;
)"),
                        0, 0, [](TensorMap& map) {
                          map.swizzle = static_cast<std::uint8_t>(TensorSwizzle::k128);
                          map.dimensions = {31, 1};
                          map.strides = {128};
                          map.box = {32, 2};
                        });
  ASSERT_FALSE(fault_.has_value());
  // The second line's chunks go in pairs.
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(wide[i], 32 + (i ^ 4));
}

TEST_F(Tensors, ABoxIsStoredWhereTheTensorIs) {
  run(kernel(R"(
@%first cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%map, {%x, %y}], [%box];
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
)"),
      8, 3);
  for (unsigned i = 0; i < tensor_.size(); ++i) {
    const int x = static_cast<int>(i % kRowWords) - 8;
    const int y = static_cast<int>(i / kRowWords) - 3;
    const bool stored = x >= 0 && y >= 0 && i % kRowWords < kWidth;
    ASSERT_EQ(tensor_[i],
              stored ? 1000 + static_cast<unsigned>(y) * kBoxWidth + static_cast<unsigned>(x) : i);
  }
}

TEST_F(Tensors, ABoxIsAdded) {
  run(kernel("@%first cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group "
             "[%map, {%x, %y}], [%box];"),
      0, 0);
  EXPECT_EQ(tensor_[3], 3 + 1003u);
  EXPECT_EQ(tensor_[kRowWords], kRowWords + 1000 + kBoxWidth);
  EXPECT_EQ(tensor_[kBoxWidth], kBoxWidth);
}

TEST_F(Tensors, AMulticastReachesTheBlocksOfItsMask) {
  const auto found = run(kernel(R"(
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
@%first cp.async.bulk.tensor.2d.shared::cluster.global.tile)"
                                R"(.mbarrier::complete_tx::bytes.multicast::cluster
  [%box], [%map, {%x, %y}], [bar], %mask;
wait: mbarrier.try_wait.parity.shared::cta.b64 %done, [bar], 0;
@!%done bra wait;
)"),
                         4, 1);
  EXPECT_EQ(found[0], kRowWords + 4);
}

TEST_F(Tensors, ABoxBeginsAtWholeSixteensOfBytesOfItsRow) {
  for (const int x : {1, 2, -3}) {
    run(kernel(kLoad), x, 0, [](TensorMap&) {});
    ASSERT_TRUE(fault_.has_value());
    EXPECT_EQ(fault_->kind, FaultKind::kIllegalInstruction);
  }
  run(kernel("@%first cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
             "[%map, {%x, %y}], [%box];"),
      1, 0, [](TensorMap&) {});
  EXPECT_TRUE(fault_.has_value());
}

TEST_F(Tensors, WhatLiesOutsideIsANumberThatIsNone) {
  const auto found = run(kernel(kLoad), 8, 0, [](TensorMap& map) {
    map.type = static_cast<std::uint8_t>(TensorType::kF32);
    map.fill = 1;
  });
  ASSERT_FALSE(fault_.has_value());
  EXPECT_EQ(found[3], 11u);
  EXPECT_EQ(found[4], 0x7ff77ff7u);
}

TEST_F(Tensors, LoadsOfShortFractionsRoundThem) {
  const auto found =
      run(kernel(R"(
.reg .b64 %tensor; ld.global.u64 %tensor, [%map+8];
@%first st.global.u32 [%tensor], 0x3f801000; @%first st.global.u32 [%tensor+4], 0x3f800fff;
@%first st.global.u32 [%tensor+8], 0xbf803000; @%first st.global.u32 [%tensor+12], 0x7f800000;
@%first st.global.u32 [%tensor+16], 0x7f800fff;
)" + std::string(kLoad)),
          0, 0, [](TensorMap& map) { map.type = static_cast<std::uint8_t>(TensorType::kTF32); });
  ASSERT_FALSE(fault_.has_value());
  EXPECT_EQ(found[0], 0x3f802000u);
  EXPECT_EQ(found[1], 0x3f800000u);
  EXPECT_EQ(found[2], 0xbf804000u);
  EXPECT_EQ(found[3], 0x7f800000u);
  EXPECT_EQ(found[4] & 0x7fc00000, 0x7fc00000u);  // Is still no number.
}

TEST_F(Tensors, SomeOperationsAreNoneOfAType) {
  const auto reduces = [&](const std::string& operation, TensorType type) {
    run(kernel("@%first cp.reduce.async.bulk.tensor.2d.global.shared::cta." + operation +
               ".tile.bulk_group [%map, {%x, %y}], [%box];"),
        0, 0, [type](TensorMap& map) {
          map.type = static_cast<std::uint8_t>(type);
          map.box = {2, 1};
        });
    return !fault_.has_value();
  };
  EXPECT_TRUE(reduces("min", TensorType::kS64));
  EXPECT_FALSE(reduces("add", TensorType::kS64));
  EXPECT_FALSE(reduces("and", TensorType::kS64));
  EXPECT_TRUE(reduces("add", TensorType::kU64));
  EXPECT_TRUE(reduces("xor", TensorType::kU64));
  EXPECT_FALSE(reduces("inc", TensorType::kU64));
  EXPECT_TRUE(reduces("add", TensorType::kF64));
  EXPECT_FALSE(reduces("or", TensorType::kF64));
}

TEST_F(Tensors, WhatIsNoMapIsAFault) {
  const auto expect_fault = [&](auto change) {
    run(kernel(kLoad), 0, 0, change);
    ASSERT_TRUE(fault_.has_value());
    EXPECT_EQ(fault_->kind, FaultKind::kIllegalInstruction);
  };
  expect_fault([](TensorMap& map) { map.magic = 0; });
  expect_fault([](TensorMap& map) { map.rank = 3; });
  expect_fault([](TensorMap& map) { map.mode = TensorMap::Mode::kIm2col; });
  expect_fault([](TensorMap& map) { map.type = 200; });
  expect_fault([](TensorMap& map) { map.swizzle = 9; });
  expect_fault([](TensorMap& map) { map.interleave = 1; });
  expect_fault([](TensorMap& map) { map.box = {0, 1}; });
  expect_fault([](TensorMap& map) { map.box = {0xffff, 0xffff}; });
  expect_fault([](TensorMap& map) { map.element_strides = {1, 0}; });
}

TEST_F(Tensors, ATensorThatIsNowhereIsAFault) {
  run(kernel(kLoad), 0, 0, [](TensorMap& map) { map.address = 0x10000; });
  ASSERT_TRUE(fault_.has_value());
  EXPECT_EQ(fault_->kind, FaultKind::kIllegalAddress);
  run(kernel(kLoad), 0, 0, [](TensorMap& map) { map.strides = {1ull << 60}; });
  ASSERT_TRUE(fault_.has_value());
}

TEST_F(Tensors, WhatIsNotSupportedIsRefused) {
  for (const char* body : {
           "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
           "[%box], [%map, {%x, %y, %x}], [bar], {%mask};",
           "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
           "[%box], [%map, {%x, %y}], [bar];",
           "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
           "[%box], [%map], [bar];",
           "cp.reduce.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {%x, %y}], [%box];",
           "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {%x, %y}];",
       }) {
    EXPECT_NE(TestDevice(kernel(body)).error(), "") << body;
  }
  EXPECT_EQ(TestDevice(kernel("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%map, {%x, %y}];"))
                .error(),
            "");
}

}  // namespace
}  // namespace flyt::ptx
