// FlowGraph: the basic blocks of a function, which may follow which, and where ways meet again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "softgpu/ptx/code.h"

namespace flyt::ptx {

inline constexpr std::uint32_t kNoBlock = ~std::uint32_t{0};
// Of one function. Compilers emit two a block, and some more where a switch becomes a table.
inline constexpr std::size_t kFlowEdgesMax = std::size_t{1} << 20;

// Whether lanes may go on behind an instruction.
bool goes_on(const Instruction& instruction);
// Whether an instruction may branch to itself or to an earlier one.
bool has_loops(const Code& code);

// Blocks are numbered as they stand in the text. The last one is the end, which has no instruction
// and comes after all that return; what leads to a trap alone comes before nothing.
class FlowGraph {
 public:
  // Nothing where there are more edges than the limit.
  static std::optional<FlowGraph> make(const Code& code);

  std::uint32_t blocks() const { return static_cast<std::uint32_t>(first_.size()); }
  std::uint32_t end() const { return blocks() - 1; }
  std::size_t edges() const { return successors_.to.size(); }
  // The first instruction of a block; that of the end is the number of instructions.
  std::uint32_t first(std::uint32_t block) const { return first_[block]; }
  // Each once. Blocks that no way from the first one leads to have none, and are nobody's.
  std::span<const std::uint32_t> after(std::uint32_t block) const { return successors_.of(block); }
  std::span<const std::uint32_t> before(std::uint32_t block) const {
    return predecessors_.of(block);
  }

 private:
  struct Edges {
    std::vector<std::uint32_t> start;  // Of each block in `to`, and where the last one's end.
    std::vector<std::uint32_t> to;
    std::span<const std::uint32_t> of(std::uint32_t block) const {
      return std::span(to).subspan(start[block], start[block + 1] - start[block]);
    }
  };

  FlowGraph() = default;
  void find_blocks(const Code& code);
  bool find_successors(const Code& code);
  void add_targets(const Code& code, const Instruction& last, std::vector<std::uint32_t>& into);
  void drop_unreachable();
  void find_predecessors();

  std::vector<std::uint32_t> first_;
  Edges successors_;
  Edges predecessors_;
};

// How much an analysis may look at before it is given up.
class Effort {
 public:
  explicit Effort(std::uint64_t visits) : left_(visits) {}
  bool spend(std::uint64_t visits) {
    left_ = left_ > visits ? left_ - visits : 0;
    return left_ != 0;
  }

 private:
  std::uint64_t left_;
};

// Of each block the nearest one that all ways from it to the end lead through: its immediate
// post-dominator. kNoBlock where no way leads to the end. Nothing where it is too much effort.
std::optional<std::vector<std::uint32_t>> find_meetings(const FlowGraph& graph, Effort& effort);

}  // namespace flyt::ptx
