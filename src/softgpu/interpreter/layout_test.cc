#include "softgpu/interpreter/layout.h"

#include <array>
#include <string>

#include "base/random.h"
#include "gtest/gtest.h"
#include "softgpu/interpreter/flow_graph.h"
#include "softgpu/interpreter/testing/device.h"
#include "softgpu/ptx/module.h"

namespace flyt::ptx {
namespace {

Code parsed(const std::string& body) {
  const std::string text =
      ".version 8.6\n.target sm_90\n.address_size 64\n.entry k() {\n"
      ".reg .pred %p; .reg .b32 %r;\n" +
      body + "\n}\n";
  const auto module = parse(text, nullptr);
  EXPECT_TRUE(module.ok()) << module.error().message;
  return module.ok() ? (*module)->functions()[0].code : Code{};
}

std::vector<Stretch> laid_out(const std::string& body) { return lay_out(parsed(body)); }

using Stretches = std::vector<Stretch>;

TEST(Layout, LeavesTextWithoutLoopsAsItIs) {
  EXPECT_EQ(laid_out(""), (Stretches{{0, 0}}));
  EXPECT_EQ(laid_out("@%p bra a; mov.u32 %r, 1; bra b; a: mov.u32 %r, 2; b: ret;"),
            (Stretches{{0, 5}}));
}

TEST(Layout, LeavesLoopsAsTheyAreWhoseWaysOutComeBehindThem) {
  EXPECT_EQ(laid_out(R"(
    mov.u32 %r, 1;
    outer: @%p bra over; inner: @%p bra odd; mov.u32 %r, 2; odd: @%p bra inner; bra outer;
    over: ret;
  )"),
            (Stretches{{0, 7}}));
  // Turned round: the condition is at the end, where lanes come in.
  EXPECT_EQ(laid_out("bra head; body: mov.u32 %r, 1; head: @%p bra body; ret;"),
            (Stretches{{0, 4}}));
  // Two loops of one head.
  EXPECT_EQ(laid_out("head: @%p bra head; mov.u32 %r, 1; @%p bra head; ret;"), (Stretches{{0, 4}}));
}

TEST(Layout, PutsTheWayOutOfALoopBehindIt) {
  EXPECT_EQ(laid_out("bra loop; over: ret; loop: mov.u32 %r, 1; @%p bra loop; bra over;"),
            (Stretches{{0, 1}, {2, 5}, {1, 2}}));
}

TEST(Layout, TurnsLoopsInLoopsWhoseEndsComeFirst) {
  EXPECT_EQ(laid_out(R"(
    bra outer;
    next: @%p bra over; outer: mov.u32 %r, 1; bra inner;
    last: @%p bra next; inner: @%p bra odd; mov.u32 %r, 2; bra last; odd: bra last;
    over: ret;
  )"),
            (Stretches{{0, 1}, {2, 4}, {5, 9}, {4, 5}, {1, 2}, {9, 10}}));
}

TEST(Layout, PutsTheHeadOfALoopBehindWaysThatMeetThere) {
  EXPECT_EQ(laid_out(R"(
    mov.u32 %r, 0;
    head: @%p bra over; @%p bra odd; bra head; odd: mov.u32 %r, 1; bra head;
    over: ret;
  )"),
            (Stretches{{0, 1}, {2, 6}, {1, 2}, {6, 7}}));
}

TEST(Layout, PutsTheHeadBehindManyWaysBackThoughOthersLeadOut) {
  std::string text = "bra head; out: bra end; head: mov.u32 %r, 1;";
  for (int i = 0; i < 300; ++i) {
    const std::string next = "next" + std::to_string(i);
    text += "@%p bra " + next + "; @%p bra gone; bra head; " + next + ":";
  }
  EXPECT_EQ(laid_out(text + "bra out; gone: ret; end: ret;"),
            (Stretches{{0, 1}, {4, 903}, {2, 4}, {903, 904}, {1, 2}, {904, 906}}));
}

TEST(Layout, KeepsWhatNoWayLeadsTo) {
  EXPECT_EQ(laid_out("loop: @%p bra loop; ret; bra loop; mov.u32 %r, 1;"), (Stretches{{0, 4}}));
  EXPECT_EQ(laid_out("bra loop; over: ret; mov.u32 %r, 1; loop: @%p bra loop; bra over;"),
            (Stretches{{0, 1}, {2, 5}, {1, 2}}));
}

TEST(Layout, TakesEndlessLoopsAndTraps) {
  EXPECT_EQ(laid_out("loop: bra loop;"), (Stretches{{0, 1}}));
  EXPECT_EQ(laid_out("a: @%p bra b; trap; b: @%p bra a; c: bra c;"),
            (Stretches{{0, 1}, {2, 3}, {1, 2}, {3, 4}}));
}

// A function of `blocks` blocks, each with a branch or two to anywhere.
std::string by_chance(Random& random, std::uint64_t blocks) {
  std::string text;
  const auto label = [&] { return "b" + std::to_string(random.below(blocks)); };
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::string own = std::to_string(i);
    text += "b" + own + ": mov.u32 %r, " + own + ";\n";
    switch (random.below(7)) {
      case 0:
      case 1:
        text += "@%p bra " + label() + ";\n";
        break;
      case 2:
        text += "@%p bra " + label() + "; bra " + label() + ";\n";
        break;
      case 3:
        text += "bra " + label() + ";\n";
        break;
      case 4:
        text += "t" + own + ": .branchtargets " + label() + ", " + label() + ", " + label() +
                "; brx.idx %r, t" + own + ";\n";
        break;
      case 5:
        text += random.one_in(2) ? "@%p ret;\n" : random.one_in(2) ? "ret;\n" : "trap;\n";
        break;
    }
  }
  return text;
}

// Whether a way of at least one edge leads from one block to another and not through `without`.
std::vector<std::vector<bool>> ways(const FlowGraph& graph, std::uint32_t without) {
  std::vector<std::vector<bool>> found(graph.blocks(), std::vector<bool>(graph.blocks(), false));
  for (std::uint32_t from = 0; from < graph.blocks(); ++from) {
    std::vector<std::uint32_t> open = {from};
    while (!open.empty()) {
      const std::uint32_t block = open.back();
      open.pop_back();
      for (const std::uint32_t next : graph.after(block)) {
        if (next == without || found[from][next]) continue;
        found[from][next] = true;
        open.push_back(next);
      }
    }
  }
  return found;
}

class Check {
 public:
  explicit Check(const Code& code)
      : graph_(*FlowGraph::make(code)), all_(ways(graph_, kNoBlock)), rank_(graph_.blocks()) {
    std::vector<std::uint32_t> places(code.instructions.size() + 1, kNoBlock);
    std::uint32_t next = 0;
    for (const Stretch& stretch : lay_out(code)) {
      for (std::uint32_t i = stretch.first; i < stretch.end; ++i) places[i] = next++;
    }
    EXPECT_EQ(next, code.instructions.size());
    for (std::uint32_t i = 0; i < graph_.blocks(); ++i) rank_[i] = places[graph_.first(i)];
  }

  void loops() const {
    const std::uint32_t end = graph_.end();
    for (std::uint32_t a = 0; a < end; ++a) {
      for (std::uint32_t b = 0; b < end; ++b) {
        if (!all_[a][b] || all_[b][a]) continue;
        EXPECT_LT(rank_[a], rank_[b]) << a << " leads to " << b;
      }
    }
  }

  // Slow and sure: `meeting` is where ways from a block meet if none leads to the end without it.
  void meetings() const {
    const std::uint32_t end = graph_.end();
    for (std::uint32_t meeting = 0; meeting < end; ++meeting) {
      const auto without = ways(graph_, meeting);
      for (std::uint32_t block = 0; block < end; ++block) {
        const bool parts = graph_.after(block).size() > 1 && all_[block][end];
        if (!parts || block == meeting || without[block][end] || !nearest(block, meeting)) continue;
        for (const std::uint32_t next : graph_.after(block)) {
          if (next != meeting && all_[next][end]) before(next, meeting, without);
        }
      }
    }
  }

 private:
  // Whether no other place at which ways from `block` meet comes before `meeting`.
  bool nearest(std::uint32_t block, std::uint32_t meeting) const {
    for (std::uint32_t other = 0; other < graph_.end(); ++other) {
      if (other == meeting || other == block) continue;
      const auto without = ways(graph_, other);
      if (!without[block][graph_.end()] && !without[block][meeting]) return false;
    }
    return true;
  }

  void before(std::uint32_t first, std::uint32_t meeting,
              const std::vector<std::vector<bool>>& without) const {
    EXPECT_LT(rank_[first], rank_[meeting]);
    for (std::uint32_t block = 0; block < graph_.end(); ++block) {
      if (!without[first][block] || !all_[block][graph_.end()]) continue;
      EXPECT_LT(rank_[block], rank_[meeting]) << block << " is on a way to " << meeting;
    }
  }

  FlowGraph graph_;
  std::vector<std::vector<bool>> all_;
  std::vector<std::uint32_t> rank_;
};

TEST(Layout, OfWhateverFunctionLanesCanMeet) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int i = 0; i < 400 && !::testing::Test::HasFailure(); ++i) {
    const std::string text = by_chance(random, 2 + random.below(11));
    SCOPED_TRACE(text);
    const Check check(parsed(text));
    check.loops();
    check.meetings();
  }
}

// Blocks that mix a number and then go where it says, and what a thread makes of them.
struct Maze {
  struct Block {
    std::uint64_t kind = 0;
    std::array<std::size_t, 2> targets{};
  };
  static constexpr std::uint32_t kBlocksOfAWay = 90;

  explicit Maze(Random& random) : blocks(2 + random.below(12)) {
    for (Block& block : blocks) {
      block.kind = random.below(6);
      for (std::size_t& target : block.targets) target = random.below(blocks.size() + 1);
    }
  }

  std::string text() const {
    std::string made =
        ".version 8.6\n.target sm_90\n.address_size 64\n.entry k(.param .u64 out) {\n"
        ".reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %d<3>; ld.param.u64 %d0, [out];\n"
        "mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; mov.u32 %r1, 0;\n";
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::string a = "b" + std::to_string(blocks[i].targets[0]);
      const std::string b = "b" + std::to_string(blocks[i].targets[1]);
      const std::string end = "b" + std::to_string(blocks.size());
      made += "b" + std::to_string(i) + ": mad.lo.u32 %r0, %r0, 1664525, " + std::to_string(i) +
              "; add.u32 %r1, %r1, 1; setp.gt.u32 %p0, %r1, " + std::to_string(kBlocksOfAWay) +
              "; @%p0 bra " + end + ";\nshr.u32 %r2, %r0, 16; and.b32 %r2, %r2, 1; " +
              "setp.ne.u32 %p1, %r2, 0;\n";
      const std::string table = "t" + std::to_string(i);
      const std::array<std::string, 6> ways = {
          "",
          "bra " + a + ";",
          "@%p1 bra " + a + ";",
          "@%p1 bra " + a + "; pmevent 1;",
          "@!%p1 bra " + b + "; bra " + a + ";",
          table + ": .branchtargets " + b + ", " + a + "; brx.idx %r2, " + table + ";"};
      made += ways.at(blocks[i].kind) + "\n";
    }
    return made + "b" + std::to_string(blocks.size()) + ": st.global.u32 [%d0], %r0; ret;\n}\n";
  }

  std::uint32_t walk(std::uint32_t value) const {
    std::size_t at = 0;
    for (std::uint32_t count = 1; at < blocks.size(); ++count) {
      value = value * 1664525 + static_cast<std::uint32_t>(at);
      if (count > kBlocksOfAWay) break;
      const bool one = (value >> 16 & 1) != 0;
      const Block& block = blocks[at];
      const bool falls = block.kind == 0 || ((block.kind == 2 || block.kind == 3) && !one);
      const bool first = block.kind < 4 || one;
      at = falls ? at + 1 : block.targets[first ? 0 : 1];
    }
    return value;
  }

  std::vector<Block> blocks;
};

TEST(Layout, ChangesNothingThatAThreadComputes) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) {
    const Maze maze(random);
    SCOPED_TRACE(maze.text());
    TestDevice device(maze.text());
    ASSERT_EQ(device.error(), "");
    device.launch.block = {64, 1, 1};
    const auto out = device.allocate(64 * 4);
    ASSERT_FALSE(device.run("k", out).has_value());
    const auto values = device.get<std::uint32_t>(out, 64);
    for (std::uint32_t lane = 0; lane < 64; ++lane) EXPECT_EQ(values[lane], maze.walk(lane));
  }
}

TEST(Layout, IsQuickForManyBlocksAndGivesUpWhereLoopsAreNestedTooDeeply) {
  constexpr int kBlocks = 50'000;
  std::string chain;
  std::string heads;
  std::string ends;
  for (int i = 0; i < kBlocks; ++i) {
    const std::string own = std::to_string(i);
    chain += "bra in" + own + "; out" + own + ": bra next" + own + "; in" + own + ": @%p bra in" +
             own + "; bra out" + own + "; next" + own + ":\n";
    heads += "b" + own + ": mov.u32 %r, 1;\n";
    ends += "@%p bra b" + std::to_string(kBlocks - 1 - i) + ";\n";
  }
  const std::string nested = heads + ends;
  EXPECT_EQ(laid_out(chain).size(), std::size_t{3} * kBlocks);
  EXPECT_EQ(laid_out(nested), (Stretches{{0, 2 * kBlocks}}));
  EXPECT_EQ(laid_out("bra in; out: ret; in:\n" + nested + "bra out;"),
            (Stretches{{0, 2 * kBlocks + 3}}));
}

}  // namespace
}  // namespace flyt::ptx
