// Bulk copies, reductions and remote stores, and the mbarriers that hear of them.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "softgpu/interpreter/testing/device.h"

namespace flyt::ptx {
namespace {

constexpr unsigned kThreads = 32;

// A kernel k(out, in): thread i has %i in its block, writes i + 100 * block to buf[i], 0 to box[i],
// and ends with out[thread of the grid] = %r. The neighbour's box and bar are at %box and %bar, the
// own ones at box and bar; bar waits for one arrival.
std::string kernel(const std::string& body) {
  return R"(.version 8.6
.target sm_90
.address_size 64
.shared .align 16 .b8 buf[128];
.shared .align 16 .b8 box[128];
.shared .align 8 .b64 bar;
.visible .entry k(.param .u64 out, .param .u64 in) {
.reg .b32 %i, %r, %own, %buf, %mine, %box, %bar, %here, %x<8>;
.reg .b64 %out, %in, %o;
.reg .pred %first, %done;
.reg .b16 %mask;
ld.param.u64 %out, [out]; ld.param.u64 %in, [in];
mov.u32 %i, %tid.x; mov.u32 %x0, %ctaid.x; setp.eq.u32 %first, %i, 0;
mad.lo.u32 %r, %x0, 100, %i; shl.b32 %own, %i, 2;
mov.u32 %buf, buf; mov.u32 %mine, box; mov.u32 %here, bar;
add.u32 %x1, %buf, %own; st.shared.u32 [%x1], %r;
add.u32 %own, %mine, %own; st.shared.u32 [%own], 0;
mov.u32 %x2, %cluster_ctarank; xor.b32 %x2, %x2, 1;
mapa.shared::cluster.u32 %box, %mine, %x2; mapa.shared::cluster.u32 %bar, %here, %x2;
@%first mbarrier.init.shared::cta.b64 [bar], 1;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
)" + body +
         R"(
mov.u32 %x2, %ntid.x; mad.lo.u32 %x1, %x0, %x2, %i; mul.wide.u32 %o, %x1, 4;
add.u64 %out, %out, %o; st.global.u32 [%out], %r;
barrier.cluster.arrive; barrier.cluster.wait;
ret;
}
)";
}

// Announces bytes to the own barrier, does `work` in one thread, waits for the bytes.
std::string told(const std::string& bytes, const std::string& work) {
  return kernel("@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], " + bytes +
                ";\n@!%first bra wait;\n" + work +
                "\nwait: mbarrier.try_wait.parity.shared::cta.b64 %done, [bar], 0;\n"
                "@!%done bra wait;\nld.shared.u32 %r, [%own];\n");
}

class Bulk : public ::testing::Test {
 protected:
  // Two blocks that are a cluster.
  std::vector<std::uint32_t> run(const std::string& text) {
    TestDevice device(text);
    EXPECT_EQ(device.error(), "");
    if (!device.error().empty()) return std::vector<std::uint32_t>(2 * kThreads);
    device.launch.grid = device.launch.cluster = {2, 1, 1};
    device.launch.block = {kThreads, 1, 1};
    std::vector<std::uint32_t> in(kThreads);
    for (std::uint32_t i = 0; i < kThreads; ++i) in[i] = 1000 + i;
    const auto out = device.put(std::vector<std::uint32_t>(2 * kThreads));
    const auto given = device.put(in);
    const auto fault = device.run("k", out, given);
    EXPECT_FALSE(fault.has_value()) << to_string(*fault);
    in_ = device.get<std::uint32_t>(given, kThreads);
    return device.get<std::uint32_t>(out, 2 * kThreads);
  }

  std::vector<std::uint32_t> in_;  // What is there after the run.
};

TEST_F(Bulk, ABarrierThatIsInvalidStillShowsThatItsPhaseHasEnded) {
  // Whoever ends a barrier seldom waits until the others have seen what it told.
  const auto out = run(kernel(R"(
    mov.u32 %r, 0;
    @!%first bra over;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    mbarrier.inval.shared::cta.b64 [bar];
    mbarrier.test_wait.parity.shared::cta.b64 %done, [bar], 0;
    selp.u32 %r, 1, 2, %done;
    over:)"));
  EXPECT_EQ(out[0], 1u);
  EXPECT_EQ(out[kThreads], 1u);
}

TEST_F(Bulk, SharedMemoryIsAddedToGlobal) {
  run(kernel(R"(
    @!%first bra over;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%in], [%buf], 128;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    over:)"));
  for (std::uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(in_[i], 1000 + i + i + 100 + i);
}

TEST_F(Bulk, HalvesReduceInPairsOfBytes) {
  run(kernel(R"(
    add.u32 %x1, %x0, 0; setp.ne.u32 %done, %x1, 0; @%done bra over;
    @!%first bra over;
    st.shared.u32 [%buf], 0x40003c00;
    st.global.u32 [%in], 0x3c003c00;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%in], [%buf], 16;
    over:)"));
  EXPECT_EQ(in_[0], 0x42004000u);
}

TEST_F(Bulk, ANeighboursMemoryIsReducedAndItsBarrierTold) {
  const auto out = run(told("128", R"(
    cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.max.s32
      [%box], [%buf], 128, [%bar];)"));
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ(out[i], 100 + i);
    EXPECT_EQ(out[kThreads + i], i);
  }
}

TEST_F(Bulk, AMulticastReachesTheBlocksOfItsMask) {
  const auto out = run(told("128", R"(
    setp.ne.u32 %done, %x0, 0; @%done bra wait;
    mov.u32 %x3, 3; cvt.u16.u32 %mask, %x3;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
      [%mine], [%in], 128, [%here], %mask;)"));
  for (std::uint32_t i = 0; i < 2 * kThreads; ++i) EXPECT_EQ(out[i], 1000 + i % kThreads);
}

TEST_F(Bulk, WordsAreStoredAtANeighbour) {
  const auto out = run(told("20", R"(
    mov.u32 %x3, 41; mov.u32 %x4, 42; add.u32 %x5, %box, 8; add.u32 %x6, %box, 16;
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%box], {%x3, %x4}, [%bar];
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%x5], %in, [%bar];
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32
      [%x6], %x4, [%bar];)"));
  EXPECT_EQ(out[0], 41u);
  EXPECT_EQ(out[kThreads + 1], 42u);
  // The address of `in`, half of which may be zeros.
  EXPECT_NE(out[2] | out[3], 0u);
  EXPECT_EQ(out[4], 42u);
  EXPECT_EQ(out[5], 0u);
}

TEST_F(Bulk, AddressesMayHaveOffsets) {
  const auto copied = run(told("64", R"(
    sub.u32 %x3, %mine, 32; add.u32 %x4, %here, 8;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
      [%x3+64], [%in+16], 64, [%x4+-8];)"));
  for (std::uint32_t i = 0; i < 16; ++i) EXPECT_EQ(copied[8 + i], 1004 + i);
  run(kernel(R"(
    @!%first bra over;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%in+32], [buf+16], 32;
    over:)"));
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_EQ(in_[8 + i], 1008 + i + 2 * (4 + i) + 100);
  const auto stored = run(told("8", R"(
    mov.u32 %x3, 43; sub.u32 %x4, %bar, 16;
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%box+4], %x3, [%x4+16];
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32
      [%box+12], %x3, [%bar+0];)"));
  EXPECT_EQ(stored[0], 0u);
  EXPECT_EQ(stored[1], 43u);
  EXPECT_EQ(stored[kThreads + 3], 43u);
}

TEST_F(Bulk, APrefetchDoesNothing) {
  run(kernel("cp.async.bulk.prefetch.L2.global [%in], 128;"));
  EXPECT_EQ(in_[3], 1003u);
}

TEST_F(Bulk, VariablesAreNamedInBothSpaces) {
  const std::string there = R"(
    cp.async.bulk.global.shared::cta.bulk_group [VARIABLE], [buf], 64;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [VARIABLE+32], [buf], 16;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
      [box], [VARIABLE], 64, [bar];
  )";
  const auto with = [&there](const std::string& name) {
    std::string text = there;
    for (std::size_t at = 0; (at = text.find("VARIABLE", at)) != std::string::npos;) {
      text.replace(at, 8, name);
    }
    return text;
  };
  const auto out = run(told("64",
                            ".global .align 16 .b32 one[16], other[16];\n"
                            "setp.ne.u32 %done, %x0, 0; @%done bra second;\n" +
                                with("one") + "bra both;\nsecond:\n" + with("other") + "both:\n"));
  for (std::uint32_t block = 0; block < 2; ++block) {
    EXPECT_EQ(out[block * kThreads + 1], 100 * block + 1);
    EXPECT_EQ(out[block * kThreads + 9], 100 * block + 9 + 100 * block + 1);
    EXPECT_EQ(out[block * kThreads + 15], 100 * block + 15);
  }
}

TEST_F(Bulk, RemoteStoresTakeGenericAddresses) {
  const auto out = run(told("12", R"(
    .reg .b64 %g<4>;
    mov.u64 %g0, box; cvta.shared.u64 %g0, %g0; mapa.u64 %g1, %g0, %x2;
    mov.u64 %g0, bar; cvta.shared.u64 %g0, %g0; mapa.u64 %g2, %g0, %x2;
    st.async.weak.mbarrier::complete_tx::bytes.v2.b32 [%g1], {%r, 5}, [%g2];
    red.async.relaxed.cluster.mbarrier::complete_tx::bytes.add.u32 [%g1+8], 9, [%g2];
  )"));
  for (unsigned block = 0; block < 2; ++block) {
    EXPECT_EQ(out[block * kThreads], 100 * (1 - block));
    EXPECT_EQ(out[block * kThreads + 1], 5u);
    EXPECT_EQ(out[block * kThreads + 2], 9u);
  }
}

TEST_F(Bulk, WhatPtxDoesNotHaveIsRefused) {
  for (const char* body : {
           "cp.reduce.async.bulk.global.shared::cta.bulk_group.max.f32 [%in], [%buf], 16;",
           "cp.reduce.async.bulk.global.shared::cta.bulk_group.exch.b32 [%in], [%buf], 16;",
           "cp.async.bulk.global.shared::cta.mbarrier::complete_tx::bytes [%in], [%buf], 16, "
           "[%bar];",
           "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%box], [%in], 16;",
           "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%box], %x1, [%bar];",
           "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%box], %x1;",
           "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.f32 "
           "[%box], %x1, [%bar];",
       }) {
    EXPECT_NE(TestDevice(kernel(body)).error(), "") << body;
  }
}

TEST_F(Bulk, HalfAPieceIsAFault) {
  TestDevice device(
      kernel("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%in], [%buf], 24;"));
  ASSERT_EQ(device.error(), "");
  device.launch.grid = device.launch.cluster = {2, 1, 1};
  device.launch.block = {kThreads, 1, 1};
  const auto out = device.allocate(2 * kThreads * 4);
  const auto fault = device.run("k", out, out);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, FaultKind::kMisalignedAddress);
}

}  // namespace
}  // namespace flyt::ptx
