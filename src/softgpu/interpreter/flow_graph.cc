#include "softgpu/interpreter/flow_graph.h"

#include <algorithm>

namespace flyt::ptx {
namespace {

using namespace literals;

bool is_branch(const Instruction& instruction) {
  return instruction.opcode.hash == "bra"_n || instruction.opcode.hash == "brx"_n;
}

// Calls each(instruction) for where a branch may go to. A malformed one, which is refused later,
// goes nowhere.
template <class F>
void for_targets(const Code& code, const Instruction& branch, F&& each) {
  const auto operand = [&](std::uint32_t i) { return code.operands[branch.first_operand + i]; };
  if (branch.opcode.hash == "bra"_n) {
    if (branch.operand_count < 1 || operand(0).kind != Operand::Kind::kLabel) return;
    each(code.labels[operand(0).index]);
  } else {
    if (branch.operand_count < 2 || operand(1).kind != Operand::Kind::kTable) return;
    for (const std::uint32_t label : code.tables[operand(1).index]) each(code.labels[label]);
  }
}

// The blocks from which the end can be reached, each behind those that come before it, the end
// last.
std::vector<std::uint32_t> ways_from_end(const FlowGraph& graph) {
  struct Visit {
    std::uint32_t block = 0;
    std::size_t next = 0;
  };
  std::vector<bool> seen(graph.blocks(), false);
  std::vector<std::uint32_t> order;
  std::vector<Visit> visits = {{graph.end(), 0}};
  seen[graph.end()] = true;
  while (!visits.empty()) {
    Visit& visit = visits.back();
    const auto before = graph.before(visit.block);
    if (visit.next == before.size()) {
      order.push_back(visit.block);
      visits.pop_back();
      continue;
    }
    const std::uint32_t block = before[visit.next++];
    if (seen[block]) continue;
    seen[block] = true;
    visits.push_back({block, 0});
  }
  return order;
}

}  // namespace

bool goes_on(const Instruction& instruction) {
  if (instruction.guard >= 0) return true;
  switch (instruction.opcode.hash) {
    case "bra"_n:
    case "brx"_n:
    case "ret"_n:
    case "exit"_n:
    case "trap"_n:
      return false;
  }
  return true;
}

bool has_loops(const Code& code) {
  bool found = false;
  std::vector<std::uint32_t> earliest(code.tables.size(), kNoBlock);
  for (std::uint32_t i = 0; i < earliest.size(); ++i) {
    for (const std::uint32_t label : code.tables[i]) {
      earliest[i] = std::min(earliest[i], code.labels[label]);
    }
  }
  for (std::uint32_t i = 0; i < code.instructions.size() && !found; ++i) {
    const Instruction& each = code.instructions[i];
    if (each.opcode.hash == "bra"_n) {
      for_targets(code, each, [&](std::uint32_t target) { found |= target <= i; });
    } else if (each.opcode.hash == "brx"_n && each.operand_count >= 2) {
      const Operand& table = code.operands[each.first_operand + 1];
      found |= table.kind == Operand::Kind::kTable && earliest[table.index] <= i;
    }
  }
  return found;
}

std::optional<FlowGraph> FlowGraph::make(const Code& code) {
  FlowGraph graph;
  graph.find_blocks(code);
  if (!graph.find_successors(code)) return std::nullopt;
  graph.drop_unreachable();
  graph.find_predecessors();
  return graph;
}

void FlowGraph::find_blocks(const Code& code) {
  const std::size_t count = code.instructions.size();
  std::vector<bool> begins(count + 1, false);
  begins[0] = true;
  begins[count] = true;
  for (const auto& table : code.tables) {
    for (const std::uint32_t label : table) begins[code.labels[label]] = true;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Instruction& each = code.instructions[i];
    if (!goes_on(each) || is_branch(each)) begins[i + 1] = true;
    if (each.opcode.hash != "bra"_n) continue;
    for_targets(code, each, [&](std::uint32_t target) { begins[target] = true; });
  }
  for (std::uint32_t i = 0; i <= count; ++i) {
    if (begins[i]) first_.push_back(i);
  }
}

void FlowGraph::add_targets(const Code& code, const Instruction& last,
                            std::vector<std::uint32_t>& into) {
  for_targets(code, last, [&](std::uint32_t target) {
    const auto found = std::lower_bound(first_.begin(), first_.end(), target);
    into.push_back(static_cast<std::uint32_t>(found - first_.begin()));
  });
}

bool FlowGraph::find_successors(const Code& code) {
  successors_.start.push_back(0);
  auto& to = successors_.to;
  for (std::uint32_t block = 0; block < end(); ++block) {
    const Instruction& last = code.instructions[first_[block + 1] - 1];
    if (is_branch(last)) add_targets(code, last, to);
    if (goes_on(last)) to.push_back(block + 1);
    // Lanes that return under a guard are not waited for, so that those edges do not count.
    if (!goes_on(last) && (last.opcode.hash == "ret"_n || last.opcode.hash == "exit"_n)) {
      to.push_back(end());
    }
    const auto own = to.begin() + successors_.start.back();
    std::sort(own, to.end());
    to.erase(std::unique(own, to.end()), to.end());
    if (to.size() > kFlowEdgesMax) return false;
    successors_.start.push_back(static_cast<std::uint32_t>(to.size()));
  }
  successors_.start.push_back(static_cast<std::uint32_t>(to.size()));
  return true;
}

void FlowGraph::drop_unreachable() {
  std::vector<bool> reached(blocks(), false);
  std::vector<std::uint32_t> open = {0};
  reached[0] = true;
  while (!open.empty()) {
    const std::uint32_t block = open.back();
    open.pop_back();
    for (const std::uint32_t next : after(block)) {
      if (reached[next]) continue;
      reached[next] = true;
      open.push_back(next);
    }
  }
  Edges kept;
  kept.start.push_back(0);
  for (std::uint32_t block = 0; block < blocks(); ++block) {
    if (reached[block]) kept.to.insert(kept.to.end(), after(block).begin(), after(block).end());
    kept.start.push_back(static_cast<std::uint32_t>(kept.to.size()));
  }
  successors_ = std::move(kept);
}

void FlowGraph::find_predecessors() {
  predecessors_.start.assign(blocks() + 1, 0);
  predecessors_.to.resize(edges());
  for (const std::uint32_t next : successors_.to) ++predecessors_.start[next + 1];
  for (std::uint32_t i = 0; i < blocks(); ++i) predecessors_.start[i + 1] += predecessors_.start[i];
  std::vector<std::uint32_t> free = predecessors_.start;
  for (std::uint32_t block = 0; block < blocks(); ++block) {
    for (const std::uint32_t next : after(block)) predecessors_.to[free[next]++] = block;
  }
}

// After Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", on the edges reversed.
std::optional<std::vector<std::uint32_t>> find_meetings(const FlowGraph& graph, Effort& effort) {
  const std::vector<std::uint32_t> order = ways_from_end(graph);
  std::vector<std::uint32_t> place(graph.blocks(), kNoBlock);
  for (std::uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  std::vector<std::uint32_t> meeting(graph.blocks(), kNoBlock);
  meeting[graph.end()] = graph.end();
  bool changed = true;
  while (changed) {
    changed = false;
    for (std::size_t i = order.size() - 1; i-- > 0;) {
      const std::uint32_t block = order[i];
      std::uint32_t found = kNoBlock;
      std::uint64_t visits = 1;
      for (std::uint32_t next : graph.after(block)) {
        ++visits;
        if (meeting[next] == kNoBlock) continue;
        if (found == kNoBlock) found = next;
        while (next != found) {
          ++visits;
          std::uint32_t& lower = place[next] < place[found] ? next : found;
          lower = meeting[lower];
        }
      }
      if (!effort.spend(visits)) return std::nullopt;
      changed |= meeting[block] != found;
      meeting[block] = found;
    }
  }
  return meeting;
}

}  // namespace flyt::ptx
