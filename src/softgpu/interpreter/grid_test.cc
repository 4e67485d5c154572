#include "softgpu/interpreter/grid.h"

#include "base/wall_clock.h"
#include "gtest/gtest.h"
#include "softgpu/interpreter/testing/device.h"

namespace flyt::ptx {
namespace {

constexpr const char* kHeader = ".version 8.6\n.target sm_90\n.address_size 64\n";

// A kernel k(out, in) whose thread i has %i, and 4 i in %o; `out[i] = %r` at the end.
std::string kernel(const std::string& body, const std::string& before = "") {
  return kHeader + before +
         "\n.visible .entry k(.param .u64 out, .param .u64 in) {\n"
         ".reg .b32 %i, %r, %x<16>; .reg .b64 %o, %out, %in, %t<8>; .reg .pred %p<8>;\n"
         "ld.param.u64 %out, [out]; ld.param.u64 %in, [in];\n"
         "mov.u32 %x0, %ctaid.x; mov.u32 %x1, %ntid.x; mov.u32 %x2, %tid.x;\n"
         "mad.lo.u32 %i, %x0, %x1, %x2; mul.wide.u32 %o, %i, 4; mov.u32 %r, 0;\n" +
         body + "\nfinish: add.u64 %t0, %out, %o; st.global.u32 [%t0], %r; ret;\n}\n";
}

struct Ran {
  std::vector<std::uint32_t> out;
  std::optional<Fault> fault;
  std::string output;
};

Ran run_threads(const std::string& text, std::uint32_t blocks, std::uint32_t threads,
                std::vector<std::uint32_t> in = {0}, Launch launch = {}) {
  TestDevice device(text);
  EXPECT_EQ(device.error(), "") << text;
  if (!device.error().empty()) return {};
  device.launch = std::move(launch);
  device.launch.grid = {blocks, 1, 1};
  device.launch.block = {threads, 1, 1};
  const std::vector<std::uint32_t> zeros(std::size_t{blocks} * threads);
  const std::uint64_t out = device.put(zeros);
  const std::uint64_t input = device.put(in);
  Ran result;
  result.fault = device.run("k", out, input);
  result.out = device.get<std::uint32_t>(out, zeros.size());
  result.output = device.output();
  return result;
}

TEST(Grid, RunsEveryThreadOfEveryBlock) {
  const Ran run = run_threads(kernel("mad.lo.u32 %r, %i, 3, 1;"), 7, 45);
  ASSERT_FALSE(run.fault.has_value());
  for (std::uint32_t i = 0; i < run.out.size(); ++i) ASSERT_EQ(run.out[i], 3 * i + 1);
}

TEST(Grid, ReadsAndWritesElementsOfArrays) {
  const std::string arrays =
      ".global .u32 a[8] = {10, 11, 12, 13, 14, 15, 16, 17}; .const .s16 c[4] = {5, -6, 7, 8};";
  const Ran run = run_threads(kernel(R"(
        .reg .s16 %h; .reg .u64 %w; .shared .u32 s[8]; .local .u64 l[4];
        mov.s16 %h, -2; mov.u64 %w, 0x100000003;
        st.shared.u32 s[%i], %i;
        bar.sync 0;
        max.s32 %x3, %i, 1;
        ld.shared.u32 %x4, s[%x3+-1];
        ld.global.u32 %x5, a[%i+2];
        mov.u64 %t2, l[1]; st.local.u64 l[1], 100; ld.local.u64 %t3, [l+8]; cvt.u32.u64 %x6, %t3;
        mov.u64 %t4, a[%w]; ld.global.u32 %x7, [%t4];  // Of 64 bits 32 count: a[3].
        ld.const.s16 %x8, c[1];
        ld.global.u32 %x9, a[%h+5];
        mov.u64 %t5, a[1]; mov.u64 %t6, a; sub.u64 %t5, %t5, %t6; cvt.u32.u64 %x10, %t5;
        add.u32 %r, %x4, %x5; add.u32 %r, %r, %x6; add.u32 %r, %r, %x7; add.s32 %r, %r, %x8;
        add.u32 %r, %r, %x10; add.u32 %r, %r, %x9;
      )",
                                     arrays),
                              1, 4);
  ASSERT_FALSE(run.fault.has_value());
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(run.out[i], (i == 0 ? 0 : i - 1) + (12 + i) + 100 + 13 - 6 + 4 + 13);
  }
}

TEST(Grid, ReadsSpecialRegistersAsVectors) {
  const Ran run = run_threads(kernel(R"(
    .reg .v4 .u32 %v; .reg .b16 %h<4>;
    mov.v4.u32 %v, %tid; mov.v4.b32 {%x3, %x4, %x5, %x6}, %ntid;
    mov.v4.u16 {%h0, _, %h2, _}, %nctaid;
    mov.u32 %x7, %tid.w; cvt.u32.u16 %x8, %h0; cvt.u32.u16 %x9, %h2;
    mad.lo.u32 %r, %x3, 100, %v.x; add.u32 %r, %r, %v.y; add.u32 %r, %r, %v.w;
    add.u32 %r, %r, %x6; add.u32 %r, %r, %x7;
    mad.lo.u32 %r, %x8, 100000, %r; mad.lo.u32 %r, %x9, 10000, %r;
  )"),
                              2, 3);
  ASSERT_FALSE(run.fault.has_value());
  for (std::uint32_t i = 0; i < 6; ++i) EXPECT_EQ(run.out[i], 210000 + 300 + i % 3);
}

TEST(Grid, CopiesFromInFrontOfAnAddress) {
  const Ran run = run_threads(kernel(R"(
    .shared .align 16 .b32 s[4];
    add.u64 %t1, %in, 20;
    cp.async.ca.shared.global [s], [%t1-16], 4; cp.async.wait_all;
    ld.shared.u32 %r, [s];
  )"),
                              1, 1, {4, 5, 6, 7, 8, 9});
  ASSERT_FALSE(run.fault.has_value());
  EXPECT_EQ(run.out[0], 5u);
}

TEST(Grid, AsksForTheSpaceOfNarrowAddresses) {
  const Ran run = run_threads(kernel(R"(
    .shared .b32 s;
    mov.u32 %x3, s;
    isspacep.shared %p0, %x3; isspacep.global %p1, %x3;
    selp.u32 %x4, 1, 0, %p0; selp.u32 %x5, 2, 0, %p1; add.u32 %r, %x4, %x5;
  )"),
                              1, 1);
  ASSERT_FALSE(run.fault.has_value());
  EXPECT_EQ(run.out[0], 2u) << "as any number of 32 bits it is an address in global memory";
}

TEST(Grid, TheGlobalTimerIsTheTimeOfDay) {
  const std::int64_t before = unix_seconds() - 1;
  const Ran run = run_threads(
      kernel("mov.u64 %t1, %globaltimer; div.u64 %t1, %t1, 1000000000; cvt.u32.u64 %r, %t1;"), 1,
      1);
  ASSERT_FALSE(run.fault.has_value());
  EXPECT_GE(run.out[0], before);
  EXPECT_LE(run.out[0], unix_seconds() + 1);
}

TEST(Grid, LanesOfAWarpGoTheirOwnWaysAndMeetAgain) {
  // Collatz steps: every lane loops as often as it must; then all vote together.
  const Ran run = run_threads(kernel(R"(
    add.u32 %x3, %i, 1;
    loop: setp.le.u32 %p0, %x3, 1; @%p0 bra over;
    add.u32 %r, %r, 1; and.b32 %x4, %x3, 1; setp.eq.u32 %p1, %x4, 0;
    @%p1 bra even;
    mad.lo.u32 %x3, %x3, 3, 1; bra loop;
    even: shr.u32 %x3, %x3, 1; bra loop;
    over: activemask.b32 %x5; setp.ne.u32 %p2, %x5, -1; @%p2 mov.u32 %r, 9999;
  )"),
                              2, 64);
  ASSERT_FALSE(run.fault.has_value());
  for (std::uint32_t i = 0; i < run.out.size(); ++i) {
    std::uint32_t steps = 0;
    for (std::uint64_t n = i + 1; n > 1; ++steps) n = n % 2 == 0 ? n / 2 : 3 * n + 1;
    EXPECT_EQ(run.out[i], steps);
  }
}

// Kernels whose lanes look, in %r, at who else is with them at a place where all must meet.
void expect_all_together(const std::string& body) {
  const Ran run = run_threads(kernel("mov.u32 %r, -1;" + body), 2, 64);
  ASSERT_FALSE(run.fault.has_value()) << to_string(*run.fault);
  for (std::size_t i = 0; i < run.out.size(); ++i) ASSERT_EQ(run.out[i], 0xffffffffu) << i;
}

TEST(Grid, LanesMeetBehindALoopThoughItStandsBehindThatPlace) {
  expect_all_together(R"(
    add.u32 %x3, %i, 1; bra loop;
    over: activemask.b32 %r; bra finish;
    loop: sub.u32 %x3, %x3, 1; setp.eq.u32 %p0, %x3, 0; @%p0 bra over; bra loop;
  )");
}

TEST(Grid, LanesMeetBehindLoopsInLoops) {
  expect_all_together(R"(
    mov.u32 %x3, 3; bra outer;
    over: activemask.b32 %x5; and.b32 %r, %r, %x5; bra finish;
    next: activemask.b32 %x5; and.b32 %r, %r, %x5; sub.u32 %x3, %x3, 1;
    setp.eq.u32 %p1, %x3, 0; @%p1 bra over;
    outer: add.u32 %x4, %x2, %x3;
    inner: sub.u32 %x4, %x4, 1; setp.eq.u32 %p0, %x4, 0; @%p0 bra next; bra inner;
  )");
}

TEST(Grid, BranchesLeadToHintsToo) {
  // `hint` is the end of what comes before `over` now, and no step.
  const Ran run = run_threads(kernel(R"(
    mov.u32 %x3, %i; bra loop;
    over: add.u32 %r, %r, 100; bra finish;
    loop: add.u32 %r, %r, 1; setp.eq.u32 %p0, %x3, 0; setp.lt.u32 %p1, %x3, 5;
    sub.u32 %x3, %x3, 1; @%p1 bra hint; @%p0 bra over; hint: pmevent 1;
    again: setp.ne.u32 %p2, %x3, -1; @%p2 bra loop; bra over;
  )"),
                              1, 32);
  ASSERT_FALSE(run.fault.has_value()) << to_string(*run.fault);
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(run.out[i], i + 101);
}

TEST(Grid, LanesThatGoOnWithALoopEarlyMeetTheOthersAtItsNextRound) {
  expect_all_together(R"(
    mov.u32 %x3, 0; mov.u32 %x7, 0;
    head: activemask.b32 %x5; and.b32 %r, %r, %x5; add.u32 %x3, %x3, 1;
    setp.gt.u32 %p0, %x3, 8; @%p0 bra finish;
    add.u32 %x4, %x3, %x2; and.b32 %x4, %x4, 1; setp.eq.u32 %p1, %x4, 0; @%p1 bra even;
    bra head;
    even: add.u32 %x7, %x7, 1; bra head;
  )");
}

TEST(Grid, LanesMeetBehindALoopOfATable) {
  expect_all_together(R"(
    states: .branchtargets over, work;
    add.u32 %x3, %i, 1; bra step;
    over: activemask.b32 %r; bra finish;
    work: sub.u32 %x3, %x3, 1;
    step: setp.ne.u32 %p0, %x3, 0; selp.u32 %x4, 1, 0, %p0; brx.idx %x4, states;
  )");
}

TEST(Grid, ALockIsPassedOnByCodeThatStandsBeforeTheLoopThatWaits) {
  const Ran run = run_threads(kernel(R"(
    bra again;
    held: ld.volatile.global.u32 %x4, [%in+4]; add.u32 %x4, %x4, 1;
    st.volatile.global.u32 [%in+4], %x4; membar.gl;
    atom.global.exch.b32 %x3, [%in], 0; mov.u32 %r, %x4; bra finish;
    again: atom.global.cas.b32 %x3, [%in], 0, 1; setp.eq.u32 %p0, %x3, 0; @%p0 bra held;
    bra again;
  )"),
                              4, 64, {0, 0});
  ASSERT_FALSE(run.fault.has_value()) << to_string(*run.fault);
  std::vector<std::uint32_t> order = run.out;
  std::sort(order.begin(), order.end());
  for (std::uint32_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i + 1);
}

TEST(Grid, ALockBetweenLanesOfOneWarpIsPassedOn) {
  const Ran run = run_threads(kernel(R"(
    again: atom.global.cas.b32 %x3, [%in], 0, 1; setp.ne.u32 %p0, %x3, 0; @%p0 bra again;
    ld.volatile.global.u32 %x4, [%in+4]; add.u32 %x4, %x4, 1;
    st.volatile.global.u32 [%in+4], %x4; membar.gl;
    atom.global.exch.b32 %x3, [%in], 0; mov.u32 %r, %x4;
  )"),
                              4, 64, {0, 0});
  ASSERT_FALSE(run.fault.has_value());
  std::vector<std::uint32_t> order = run.out;
  std::sort(order.begin(), order.end());
  for (std::uint32_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i + 1);
}

TEST(Grid, AnEarlierBlockMayWaitForALaterOne) {
  const Ran run = run_threads(kernel(R"(
    setp.ne.u32 %p0, %x0, 0; @%p0 bra set;
    wait: ld.acquire.gpu.global.u32 %r, [%in]; setp.eq.u32 %p1, %r, 0; @%p1 bra wait;
    bra finish;
    set: setp.ne.u32 %p2, %x0, 5; @%p2 bra finish; st.release.gpu.global.u32 [%in], 77;
  )"),
                              6, 32);
  ASSERT_FALSE(run.fault.has_value()) << to_string(*run.fault);
  EXPECT_EQ(run.out[0], 77u);
}

TEST(Grid, BarriersOrderSharedMemory) {
  const Ran run = run_threads(kernel(R"(
    shl.b32 %x3, %x2, 2; mov.u32 %x4, tile; add.u32 %x5, %x4, %x3; st.shared.u32 [%x5], %i;
    bar.sync 0;
    sub.u32 %x6, 127, %x2; shl.b32 %x6, %x6, 2; add.u32 %x6, %x6, %x4; ld.shared.u32 %r, [%x6];
  )",
                                     ".shared .align 4 .b8 tile[512];"),
                              3, 128);
  ASSERT_FALSE(run.fault.has_value());
  for (std::uint32_t i = 0; i < run.out.size(); ++i) {
    EXPECT_EQ(run.out[i], i / 128 * 128 + 127 - i % 128);
  }
}

TEST(Grid, BarriersReduceAndIgnoreThreadsThatHaveEnded) {
  const Ran run = run_threads(kernel(R"(
    setp.ge.u32 %p0, %x2, 70; @%p0 ret;
    and.b32 %x3, %x2, 3; setp.eq.u32 %p1, %x3, 0;
    barrier.sync 1; bar.red.popc.u32 %r, 0, %p1;
  )"),
                              1, 128);
  ASSERT_FALSE(run.fault.has_value());
  for (std::uint32_t i = 0; i < 70; ++i) EXPECT_EQ(run.out[i], 18u);
}

TEST(Grid, ProducersArriveAndConsumersWait) {
  const Ran run = run_threads(kernel(R"(
    setp.lt.u32 %p0, %x2, 32; @%p0 bra consume;
    st.shared.u32 [box], 41; bar.arrive 2, 64; bra finish;
    consume: bar.sync 2, 64; ld.shared.u32 %r, [box];
  )",
                                     ".shared .align 4 .u32 box;"),
                              1, 64);
  ASSERT_FALSE(run.fault.has_value());
  EXPECT_EQ(run.out[5], 41u);
}

TEST(Grid, ThreadsThatCanNeverMeetAreATimeout) {
  const Ran run = run_threads(kernel(R"(
    setp.lt.u32 %p0, %x2, 32; @%p0 bra one; bar.sync 2; bra finish; one: bar.sync 3;
  )"),
                              1, 64);
  ASSERT_TRUE(run.fault.has_value());
  EXPECT_EQ(run.fault->kind, FaultKind::kTimeout);
}

TEST(Grid, ShufflesInEveryMode) {
  const auto shuffle = [](const std::string& operands) {
    return run_threads(kernel("mov.u32 %x3, %laneid; shfl.sync." + operands +
                              "selp.u32 %x5, 100, 0, %p1; add.u32 %r, %x4, %x5;"),
                       1, 32)
        .out;
  };
  const auto up = shuffle("up.b32 %x4|%p1, %x3, 3, 0, -1;");
  const auto down = shuffle("down.b32 %x4|%p1, %x3, 2, 0x181f, -1;");  // Eights.
  const auto across = shuffle("bfly.b32 %x4|%p1, %x3, 5, 31, -1;");
  const auto index = shuffle("idx.b32 %x4|%p1, %x3, 6, 0x181f, -1;");
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(up[lane], lane < 3 ? lane : lane - 3 + 100);
    EXPECT_EQ(down[lane], lane % 8 > 5 ? lane : lane + 2 + 100);
    EXPECT_EQ(across[lane], (lane ^ 5) + 100);
    EXPECT_EQ(index[lane], lane / 8 * 8 + 6 + 100);
  }
}

TEST(Grid, LanesWaitForThePartnersTheyName) {
  // The odd lanes come to the vote later than the even ones.
  const Ran run = run_threads(kernel(R"(
    and.b32 %x3, %x2, 1; setp.eq.u32 %p0, %x3, 0; @%p0 bra vote;
    mov.u32 %x4, 50; spin: sub.u32 %x4, %x4, 1; setp.ne.u32 %p1, %x4, 0; @%p1 bra spin;
    vote: vote.sync.ballot.b32 %r, %p0, -1;
    bar.warp.sync -1;
  )"),
                              1, 32);
  ASSERT_FALSE(run.fault.has_value());
  for (const std::uint32_t ballot : run.out) EXPECT_EQ(ballot, 0x55555555u);
}

TEST(Grid, MatchesAndReducesWithinGroups) {
  const Ran match =
      run_threads(kernel("and.b32 %x3, %x2, 3; match.any.sync.b32 %r, %x3, -1;"), 1, 32);
  EXPECT_EQ(match.out[1], 0x22222222u);
  const Ran sum = run_threads(kernel("redux.sync.add.u32 %r, %x2, -1;"), 1, 32);
  EXPECT_EQ(sum.out[9], 496u);
  const Ran halves = run_threads(kernel(R"(
    setp.lt.u32 %p0, %x2, 16; selp.b32 %x3, 0xffff, 0xffff0000, %p0;
    redux.sync.max.s32 %r, %x2, %x3;
  )"),
                                 1, 32);
  EXPECT_EQ(halves.out[3], 15u);
  EXPECT_EQ(halves.out[20], 31u);
}

TEST(Grid, AtomicsOfAllBlocksAddUp) {
  TestDevice device(
      kernel("atom.global.add.u32 %r, [%in], 2; red.global.max.u32 [%in+4], %i;"
             "atom.global.inc.u32 %x3, [%in+8], 9;"));
  device.launch.grid = {50, 1, 1};
  device.launch.block = {64, 1, 1};
  const auto in = device.put(std::vector<std::uint32_t>(4));
  const auto out = device.allocate(50 * 64 * 4);
  auto grid = device.start("k", out, in);
  grid->work();
  EXPECT_TRUE(grid->done());
  EXPECT_EQ(device.get<std::uint32_t>(in, 3), (std::vector<std::uint32_t>{6400, 3199, 0}));
}

constexpr const char* kFactorial = R"(
.func (.param .b32 r) factorial(.param .b32 n) {
  .reg .b32 %a<4>; .reg .pred %p;
  ld.param.b32 %a0, [n]; mov.u32 %a1, 1; setp.le.u32 %p, %a0, 1; @%p bra done;
  sub.u32 %a2, %a0, 1;
  { .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %a2; call (r0), factorial, (p0);
    ld.param.b32 %a1, [r0]; }
  mul.lo.u32 %a1, %a1, %a0;
  done: st.param.b32 [r], %a1; ret;
}
.func (.param .b32 r) twice(.param .b32 n) {
  .reg .b32 %a; ld.param.b32 %a, [n]; shl.b32 %a, %a, 1; st.param.b32 [r], %a; ret;
}
.func endless() { call endless; ret; }
.func (.reg .b32 %r) sum(.reg .b32 %a, .reg .b64 %b) {
  cvt.u32.u64 %r, %b; add.u32 %r, %r, %a; ret;
}
.global .align 8 .u64 table[2] = {factorial, twice};
)";

TEST(Grid, RecursionKeepsTheRegistersOfEveryLane) {
  const Ran run = run_threads(kernel(R"(
    and.b32 %x3, %x2, 7;
    { .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %x3; call (r0), factorial, (p0);
      ld.param.b32 %r, [r0]; }
  )",
                                     kFactorial),
                              1, 40);
  ASSERT_FALSE(run.fault.has_value());
  const std::uint32_t expected[] = {1, 1, 2, 6, 24, 120, 720, 5040};
  for (std::uint32_t i = 0; i < 40; ++i) EXPECT_EQ(run.out[i], expected[i % 8]);
}

TEST(Grid, CallsWhatLanesHaveInTheirRegisters) {
  const Ran run = run_threads(kernel(R"(
    mov.u64 %t1, table; and.b32 %x3, %x2, 1; mul.wide.u32 %t2, %x3, 8; add.u64 %t1, %t1, %t2;
    ld.global.u64 %t3, [%t1];
    shape: .callprototype (.param .b32 _) _ (.param .b32 _);
    { .param .b32 p0; .param .b32 r0; st.param.b32 [p0], 5; call (r0), %t3, (p0), shape;
      ld.param.b32 %r, [r0]; }
  )",
                                     kFactorial),
                              1, 32);
  ASSERT_FALSE(run.fault.has_value()) << to_string(*run.fault);
  EXPECT_EQ(run.out[0], 120u);
  EXPECT_EQ(run.out[1], 10u);
}

TEST(Grid, PassesArgumentsInRegistersToo) {
  const Ran run =
      run_threads(kernel("mov.u64 %t1, 30; call (%r), sum, (%x2, %t1);", kFactorial), 1, 8);
  ASSERT_FALSE(run.fault.has_value());
  EXPECT_EQ(run.out[7], 37u);
}

constexpr const char* kVariadic = R"(
.func (.param .b32 r) last_of(.param .b32 n, .param .align 8 .b8 %rest[]) {
  .reg .b32 %n, %v; .reg .b64 %p, %o;
  ld.param.b32 %n, [n]; mov.u64 %p, %rest; mul.wide.u32 %o, %n, 8; add.u64 %p, %p, %o;
  ld.local.b32 %v, [%p+-8]; st.param.b32 [r], %v; ret;
}
.func (.param .b32 r) second_of(.param .b32 n, .param .align 8 .b8 rest[]) {
  .reg .b32 %v; ld.param.b32 %v, [rest+8]; st.param.b32 [r], %v; ret;
}
.func (.param .b32 r) passes_on(.param .b32 n, .param .align 8 .b8 rest[]) {
  .local .b8 own[64]; .reg .b32 %v, %w, %n; ld.param.b32 %n, [n]; st.local.b32 [own], %n;
  { .param .b32 r0; .param .b32 p0; st.param.b32 [p0], %n;
    call (r0), last_of, (p0, rest); ld.param.b32 %v, [r0]; }
  { .param .b32 r0; .param .b32 p0; .param .align 8 .b8 p1[16];
    st.param.b32 [p0], 2; st.param.b64 [p1], 1; st.param.b64 [p1+8], 4000;
    call (r0), last_of, (p0, p1); ld.param.b32 %w, [r0]; }
  add.u32 %v, %v, %w; st.param.b32 [r], %v; ret;
}
.func (.param .b32 r) counts(.param .b32 n, .param .align 8 .b8 rest[]) {
  .reg .b32 %n; ld.param.b32 %n, [n]; st.param.b32 [r], %n; ret;
}
.global .align 8 .u64 variadic[2] = {last_of, second_of};
)";

TEST(Grid, CallsVariadicFunctions) {
  const Ran run = run_threads(kernel(R"(
    mov.u64 %t1, variadic; and.b32 %x3, %x2, 1; mul.wide.u32 %t2, %x3, 8; add.u64 %t1, %t1, %t2;
    ld.global.u64 %t3, [%t1]; cvt.u64.u32 %t2, %x2;
    shape: .callprototype (.param .b32 _) _ (.param .b32 _, .param .align 8 .b8 _[]);
    { .param .b32 p0; .param .align 8 .b8 p1[24]; .param .b32 r0;
      st.param.b32 [p0], 3; st.param.b64 [p1], 7; st.param.b64 [p1+8], 20;
      st.param.b64 [p1+16], %t2;
      call (r0), %t3, (p0, p1), shape; ld.param.b32 %r, [r0];
      call (r0), passes_on, (p0, p1); ld.param.b32 %x3, [r0]; add.u32 %r, %r, %x3; }
    { .param .b32 p0; .param .b32 r0; st.param.b32 [p0], 100000;
      call (r0), counts, (p0); ld.param.b32 %x3, [r0]; add.u32 %r, %r, %x3; }
  )",
                                     kVariadic),
                              1, 40);
  ASSERT_FALSE(run.fault.has_value()) << to_string(*run.fault);
  for (std::uint32_t i = 0; i < 40; ++i) {
    EXPECT_EQ(run.out[i], (i % 2 == 0 ? i : 20) + i + 4000 + 100000);
  }
}

TEST(Grid, EndlessRecursionIsAStackOverflow) {
  const Ran run = run_threads(kernel("call endless;", kFactorial), 1, 2);
  ASSERT_TRUE(run.fault.has_value());
  EXPECT_EQ(run.fault->kind, FaultKind::kStackOverflow);
}

TEST(Grid, ACallOfWhatIsNoFunctionIsAFault) {
  const Ran run = run_threads(kernel(R"(
    mov.u64 %t3, 12345; shape: .callprototype _ (); call %t3, (), shape;
  )"),
                              1, 1);
  ASSERT_TRUE(run.fault.has_value());
  EXPECT_EQ(run.fault->kind, FaultKind::kInvalidPc);
}

TEST(Grid, JumpsThroughTables) {
  const Ran run = run_threads(kernel(R"(
    and.b32 %x3, %x2, 3;
    ways: .branchtargets a, b, c, b;
    brx.idx %x3, ways;
    a: mov.u32 %r, 10; bra finish;
    b: mov.u32 %r, 20; bra finish;
    c: mov.u32 %r, 30;
  )"),
                              1, 32);
  ASSERT_FALSE(run.fault.has_value());
  EXPECT_EQ(std::vector<std::uint32_t>(run.out.begin(), run.out.begin() + 4),
            (std::vector<std::uint32_t>{10, 20, 30, 20}));
}

TEST(Grid, FaultsTellKindLineAndThread) {
  const Ran wild = run_threads(kernel("\n\nld.global.u32 %r, [%i+18];"), 1, 1);
  ASSERT_TRUE(wild.fault.has_value());
  EXPECT_EQ(wild.fault->kind, FaultKind::kMisalignedAddress);
  const Ran zero = run_threads(kernel("mov.u64 %t0, 64; st.global.u32 [%t0], %r;"), 2, 33);
  ASSERT_TRUE(zero.fault.has_value());
  EXPECT_EQ(zero.fault->kind, FaultKind::kIllegalAddress);
  EXPECT_EQ(zero.fault->address, 64u);
  EXPECT_EQ(zero.fault->line, 10u);
  EXPECT_NE(to_string(*zero.fault).find("illegal address 0x40 in kernel 'k', PTX line 10"),
            std::string::npos);
  EXPECT_EQ(run_threads(kernel("trap;"), 1, 1).fault->kind, FaultKind::kTrap);
  EXPECT_EQ(run_threads(kernel("brkpt;"), 1, 1).fault->kind, FaultKind::kIllegalInstruction);
}

TEST(Grid, AccessesOutsideSharedLocalAndParametersAreFaults) {
  const std::string shared = ".shared .align 4 .b8 tile[64];";
  EXPECT_TRUE(run_threads(kernel("ld.shared.u32 %r, [tile+64];", shared), 1, 1).fault.has_value());
  EXPECT_TRUE(
      run_threads(kernel("ld.shared.u32 %r, [tile-2000];", shared), 1, 1).fault.has_value());
  EXPECT_FALSE(run_threads(kernel("ld.shared.u32 %r, [tile+60];", shared), 1, 1).fault.has_value());
  const std::string local =
      ".local .align 8 .b8 depot[32]; mov.u64 %t1, depot; cvta.local.u64 %t1, %t1;";
  EXPECT_FALSE(run_threads(kernel(local + "ld.u32 %r, [%t1+28];"), 1, 1).fault.has_value());
  EXPECT_TRUE(run_threads(kernel(local + "ld.u32 %r, [%t1+32];"), 1, 1).fault.has_value());
  EXPECT_TRUE(
      run_threads(kernel(local + "st.local.u32 [%t1+4000000], %r;"), 1, 1).fault.has_value());
  EXPECT_TRUE(run_threads(kernel("ld.param.u32 %r, [in+8];"), 1, 1).fault.has_value());
}

TEST(Grid, EndlessKernelsEndAtTheirLimits) {
  const std::string text = kernel("forever: bra forever;");
  Launch steps;
  steps.instructions_max = 100000;
  EXPECT_EQ(run_threads(text, 1, 32, {0}, steps).fault->kind, FaultKind::kTimeout);
  Launch time;
  time.time_max_ns = 20'000'000;
  EXPECT_EQ(run_threads(text, 4, 64, {0}, time).fault->kind, FaultKind::kTimeout);
}

TEST(Grid, StopsWhenItIsTold) {
  TestDevice device(kernel("forever: bra forever;"));
  auto grid = device.start("k", std::uint64_t{0}, std::uint64_t{0});
  grid->stop();
  grid->work();
  EXPECT_TRUE(grid->done());
  EXPECT_EQ(grid->fault()->kind, FaultKind::kStopped);
}

constexpr const char* kPrints = R"(
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 format[40] = {37, 100, 124, 37, 53, 46, 50, 102, 124, 37, 115, 124, 37, 108,
  108, 120, 124, 37, 37, 124, 37, 45, 52, 99, 124, 37, 42, 100, 10, 0};
.global .align 1 .b8 word[6] = {104, 101, 108, 108, 111, 0};
)";

TEST(Grid, FormatsWhatItPrints) {
  // %d|%5.2f|%s|%llx|%%|%-4c|%*d
  const Ran run = run_threads(kernel(R"(
    .local .align 8 .b8 pack[64]; mov.u64 %t1, pack; cvta.local.u64 %t2, %t1;
    st.local.u32 [%t1], -7; st.local.f64 [%t1+8], 0d400921FB54442D18;
    mov.u64 %t3, word; st.local.u64 [%t1+16], %t3;
    mov.u64 %t4, 0x123456789ab; st.local.u64 [%t1+24], %t4; st.local.u32 [%t1+32], 90;
    st.local.u32 [%t1+36], 6; st.local.u32 [%t1+40], 42;
    mov.u64 %t5, format;
    { .param .b64 f; .param .b64 a; .param .b32 r0; st.param.b64 [f], %t5; st.param.b64 [a], %t2;
      call (r0), vprintf, (f, a); ld.param.b32 %r, [r0]; }
  )",
                                     kPrints),
                              1, 2);
  ASSERT_FALSE(run.fault.has_value()) << to_string(*run.fault);
  const std::string line = "-7| 3.14|hello|123456789ab|%|Z   |    42\n";
  EXPECT_EQ(run.output, line + line);
  EXPECT_EQ(run.out[0], 7u);
}

// Prints by `format`, with the arguments 7, 42 and a null pointer; and what printf returned.
std::pair<std::string, std::uint32_t> printed(const std::string& format) {
  std::string bytes;
  for (const char c : format) bytes += std::to_string(static_cast<int>(c)) + ", ";
  const Ran run =
      run_threads(kernel(R"(
    .local .align 8 .b8 pack[64]; mov.u64 %t1, pack; cvta.local.u64 %t2, %t1;
    st.local.u32 [%t1], 7; st.local.u32 [%t1+4], 42; mov.u64 %t3, 0; st.local.u64 [%t1+8], %t3;
    mov.u64 %t5, format;
    { .param .b64 f; .param .b64 a; .param .b32 r0; st.param.b64 [f], %t5; st.param.b64 [a], %t2;
      call (r0), vprintf, (f, a); ld.param.b32 %r, [r0]; }
  )",
                         ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
                         ".global .align 1 .b8 format[" +
                             std::to_string(format.size() + 1) + "] = {" + bytes + "0};\n"),
                  1, 1);
  EXPECT_FALSE(run.fault.has_value()) << format;
  return {run.output, run.out[0]};
}

TEST(Grid, ConversionsThatHardwareDoesNotKnowStandForThemselves) {
  for (const std::string format : {"%zu", "%zd", "%td", "%jd", "%Ld", "%llld", "%lhd", "%hhhd",
                                   "%.*d", "%*.*d", "%k", "%n", "%5"}) {
    EXPECT_EQ(printed(format), (std::pair<std::string, std::uint32_t>{format, 0}));
  }
  using Printed = std::pair<std::string, std::uint32_t>;
  EXPECT_EQ(printed("%k %d"), (Printed{"%k 7", 1}));
  EXPECT_EQ(printed("%+++++++++++d"), (Printed{"+7", 1}));
  EXPECT_EQ(printed("%*d"), (Printed{"     42", 2}));
  EXPECT_EQ(printed("%d %d %s"), (Printed{"7 42 (null)", 3}));
  EXPECT_EQ(printed("%d %d %.2s."), (Printed{"7 42 .", 3}));
  EXPECT_EQ(printed("%9000d").first.size(), 9000u);
}

TEST(Grid, AWildFormatIsAFaultAndNoCrash) {
  const Ran run = run_threads(kernel(R"(
    mov.u64 %t5, 4096;
    { .param .b64 f; .param .b64 a; .param .b32 r0; st.param.b64 [f], %t5; st.param.b64 [a], %t5;
      call (r0), vprintf, (f, a); ld.param.b32 %r, [r0]; }
  )",
                                     kPrints),
                              1, 1);
  ASSERT_TRUE(run.fault.has_value());
  EXPECT_EQ(run.fault->kind, FaultKind::kIllegalAddress);
}

TEST(Grid, LanesThatSpinLetOthersRunThoughOneGivesUpAtAnyTime) {
  // Lane 0 stands behind the loop in which the others wait for it; lane 1 leaves that after
  // `turns`.
  for (unsigned turns = 1; turns <= 70; ++turns) {
    Launch launch;
    launch.instructions_max = 100000;
    const Ran run = run_threads(kernel("setp.eq.u32 %p0, %x2, 0; @%p0 bra set; mov.u32 %x3, 0;\n"
                                       "spin: add.u32 %x3, %x3, 1;\n"
                                       "ld.volatile.global.u32 %r, [%in]; setp.ne.u32 %p1, %r, 0;\n"
                                       "setp.eq.u32 %p2, %x2, 1; setp.ge.and.u32 %p2, %x3, " +
                                       std::to_string(turns) +
                                       ", %p2;\n"
                                       "or.pred %p1, %p1, %p2; @!%p1 bra spin; bra finish;\n"
                                       "set: st.volatile.global.u32 [%in], 1;"),
                                1, 32, {0}, launch);
    ASSERT_FALSE(run.fault.has_value()) << turns << ": " << to_string(*run.fault);
    EXPECT_EQ(run.out[2], 1u);
  }
}

TEST(Grid, AWarpThatSpinsSoonLetsTheOneThatItWaitsForGoOn) {
  // Two warps hand a number back and forth: even ones are for warp 0 to add to.
  Launch launch;
  launch.instructions_max = 100'000;
  const Ran run = run_threads(kernel(R"(
    and.b32 %x3, %x2, 31; setp.ne.u32 %p0, %x3, 0; @%p0 bra finish;
    shr.u32 %x4, %x2, 5; mov.u32 %x3, 0;
    spin: ld.volatile.global.u32 %r, [%in]; and.b32 %x5, %r, 1; setp.ne.u32 %p1, %x5, %x4;
    @%p1 bra spin;
    add.u32 %r, %r, 1; st.volatile.global.u32 [%in], %r;
    add.u32 %x3, %x3, 1; setp.lt.u32 %p1, %x3, 100; @%p1 bra spin;
  )"),
                              1, 64, {0}, launch);
  ASSERT_FALSE(run.fault.has_value()) << to_string(*run.fault);
  EXPECT_EQ(run.out[32], 200u);
}

TEST(Grid, AMatchMayOverwriteWhatItCompares) {
  const Ran run = run_threads(kernel("and.b32 %r, %x2, 3; match.any.sync.b32 %r, %r, -1;"), 1, 32);
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(run.out[i], 0x11111111u << i % 4) << i;
}

TEST(Grid, HalvesOfAWarpMatchAndReduceEachByItself) {
  // %x4: the half that the lane is in.
  const std::string halves = "setp.lt.u32 %p0, %x2, 16; selp.b32 %x4, 0xffff, 0xffff0000, %p0;";
  const Ran match = run_threads(kernel(halves + "shr.u32 %x3, %x2, 3; and.b32 %x3, %x3, 1;"
                                                "match.any.sync.b32 %r, %x3, %x4;"),
                                1, 32);
  const Ran sum = run_threads(kernel(halves + "redux.sync.add.u32 %r, %x2, %x4;"), 1, 32);
  for (unsigned i = 0; i < 32; ++i) {
    EXPECT_EQ(match.out[i], 0xffu << i / 8 * 8) << i;
    EXPECT_EQ(sum.out[i], i < 16 ? 120u : 376u) << i;
  }
}

TEST(Grid, BlocksOfAClusterSeeEachOthersSharedMemory) {
  Launch launch;
  launch.cluster = {2, 1, 1};
  const Ran run = run_threads(kernel(R"(
    add.u32 %x3, %x0, 100; st.shared.u32 [box], %x3;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mov.u32 %x4, %cluster_ctarank; xor.b32 %x4, %x4, 1; mov.u32 %x5, box;
    mapa.shared::cluster.u32 %x6, %x5, %x4; ld.shared::cluster.u32 %r, [%x6];
    barrier.cluster.arrive; barrier.cluster.wait;
  )",
                                     ".shared .align 4 .u32 box;"),
                              4, 32, {0}, launch);
  ASSERT_FALSE(run.fault.has_value()) << to_string(*run.fault);
  EXPECT_EQ(run.out[0], 101u);
  EXPECT_EQ(run.out[32], 100u);
  EXPECT_EQ(run.out[64], 103u);
}

TEST(Grid, APredicateTellsWhetherBlocksAreInAClusterThatWasAskedFor) {
  const std::string text = kernel("mov.pred %p0, %is_explicit_cluster; selp.u32 %r, 1, 2, %p0;");
  Launch launch;
  EXPECT_EQ(run_threads(text, 2, 32).out[0], 2u);
  launch.in_clusters = true;  // Of one block each, too.
  EXPECT_EQ(run_threads(text, 2, 32, {0}, launch).out[0], 1u);
}

TEST(Grid, EnvironmentRegistersThatNobodyWritesAreZero) {
  const Ran run = run_threads(
      kernel("mov.u32 %r, %envreg0; mov.u32 %x3, %envreg9; or.b32 %r, %r, %x3; mov.u32 %x3, "
             "%envreg31; or.b32 %r, %r, %x3; add.u32 %r, %r, 5;"),
      1, 1);
  ASSERT_FALSE(run.fault.has_value());
  EXPECT_EQ(run.out[0], 5u);
}

TEST(Grid, TellsWhatAKernelNeeds) {
  TestDevice device(kernel("ld.shared.u32 %r, [tile]; call endless;",
                           std::string(kFactorial) + ".shared .align 4 .b8 tile[300];"));
  EXPECT_EQ(device.info("k").shared_bytes, 300u);
  EXPECT_TRUE(device.info("k").recursive);
  EXPECT_EQ(device.module().functions()[device.info("k").function].parameters[1].offset, 8u);
}

}  // namespace
}  // namespace flyt::ptx
