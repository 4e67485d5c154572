#include "softgpu/interpreter/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

#include "softgpu/interpreter/flow_graph.h"

namespace flyt::ptx {
namespace {

// Visits for each block and edge of a function: each loop around a block costs one.
constexpr std::uint64_t kVisitsEach = 64;
// Blocks that lead to the entry of a loop. Where there are more it is a loop around a switch, and
// not a loop for each of them.
constexpr std::uint32_t kWaysBackMax = 16;

// Of each block the nearest one at which ways meet that parted before it: lanes may wait there for
// those that are in this block. kNoBlock: none.
class Waiting {
 public:
  Waiting(const FlowGraph& graph, const std::vector<std::uint32_t>& meetings)
      : graph_(graph),
        meetings_(meetings),
        waiting_(graph.blocks(), kNoBlock),
        known_(graph.blocks()) {
    std::iota(known_.begin(), known_.end(), 0u);
  }

  std::vector<std::uint32_t> find() {
    // Inner meetings come first. Whatever is known to lie before one need not be walked again: an
    // outer meeting's walk goes on there.
    for (const auto& [depth, meeting, branch] : branches()) {
      for (const std::uint32_t next : graph_.after(branch)) mark(next, meeting);
      while (!open_.empty()) {
        const std::uint32_t block = open_.back();
        open_.pop_back();
        for (const std::uint32_t next : graph_.after(block)) mark(next, meeting);
      }
    }
    return std::move(waiting_);
  }

 private:
  struct Branch {
    std::uint32_t depth = 0;
    std::uint32_t meeting = 0;
    std::uint32_t block = 0;
  };

  bool ends(std::uint32_t block) const { return meetings_[block] != kNoBlock; }

  std::vector<Branch> branches() const {
    const std::vector<std::uint32_t> depths = find_depths();
    std::vector<Branch> found;
    for (std::uint32_t block = 0; block < graph_.end(); ++block) {
      const auto after = graph_.after(block);
      const auto ways = std::count_if(after.begin(), after.end(),
                                      [this](std::uint32_t next) { return ends(next); });
      if (ways > 1) found.push_back({depths[meetings_[block]], meetings_[block], block});
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Branch& a, const Branch& b) { return a.depth > b.depth; });
    return found;
  }

  // How many meetings lie between a block and the end.
  std::vector<std::uint32_t> find_depths() const {
    std::vector<std::uint32_t> depths(graph_.blocks(), kNoBlock);
    depths[graph_.end()] = 0;
    std::vector<std::uint32_t> chain;
    for (std::uint32_t block = 0; block < graph_.end(); ++block) {
      std::uint32_t at = block;
      for (; ends(at) && depths[at] == kNoBlock; at = meetings_[at]) chain.push_back(at);
      if (!ends(at)) continue;
      for (std::uint32_t depth = depths[at]; !chain.empty(); chain.pop_back()) {
        depths[chain.back()] = ++depth;
      }
    }
    return depths;
  }

  // The first block on the way over known meetings that is not known to lie before one.
  std::uint32_t beyond(std::uint32_t block) {
    while (known_[block] != block) block = known_[block] = known_[known_[block]];
    return block;
  }

  void mark(std::uint32_t block, std::uint32_t meeting) {
    if (!ends(block)) return;
    block = beyond(block);
    if (block == meeting) return;
    waiting_[block] = known_[block] = meeting;
    open_.push_back(block);
  }

  const FlowGraph& graph_;
  const std::vector<std::uint32_t>& meetings_;
  std::vector<std::uint32_t> waiting_;
  std::vector<std::uint32_t> known_;
  std::vector<std::uint32_t> open_;
};

using Set = std::vector<std::uint32_t>;  // Blocks, ascending.

// Puts the blocks of a graph in order. A loop is cut at one of its blocks, which comes last, and
// the rest of it is put in order as if it were a function.
class Ordering {
 public:
  Ordering(const FlowGraph& graph, const std::vector<std::uint32_t>& waiting, Effort& effort)
      : graph_(graph),
        waiting_(waiting),
        effort_(effort),
        set_of_(graph.blocks(), 0),
        number_(graph.blocks(), 0),
        lowest_(graph.blocks(), 0) {}

  // Nothing where it is too much effort.
  std::optional<std::vector<std::uint32_t>> run() {
    Set all(graph_.blocks());
    std::iota(all.begin(), all.end(), 0u);
    if (!divide(all)) return std::nullopt;
    std::vector<std::uint32_t> order;
    while (!open_.empty()) {
      Set set = std::move(open_.back());
      open_.pop_back();
      if (set.size() == 1) {
        order.push_back(set[0]);
        continue;
      }
      const std::uint32_t last = cut(set);
      set.erase(std::lower_bound(set.begin(), set.end(), last));
      set_of_[last] = ++sets_;
      open_.push_back({last});
      if (!divide(set)) return std::nullopt;
    }
    return order;
  }

 private:
  struct Visit {
    std::uint32_t block = 0;
    std::size_t next = 0;
  };

  bool inside(std::uint32_t block, std::uint32_t set) const { return set_of_[block] == set; }

  // Lanes come into a loop at its entries.
  bool is_entry(std::uint32_t block, std::uint32_t set) const {
    const auto before = graph_.before(block);
    return block == 0 || std::any_of(before.begin(), before.end(),
                                     [&](std::uint32_t other) { return !inside(other, set); });
  }

  // Whether lanes of a loop may wait at another block of it for those in this one.
  bool awaited(std::uint32_t block, std::uint32_t set) const {
    return waiting_[block] != kNoBlock && inside(waiting_[block], set);
  }

  // The block of a loop behind which its next round begins; it is never awaited. The last one in
  // the text is it, unless that is in the midst of the loop.
  std::uint32_t cut(const Set& set) {
    const std::uint32_t id = set_of_[set[0]];
    const auto found = std::find_if(set.begin(), set.end(), [&](std::uint32_t block) {
      return !awaited(block, id) && is_entry(block, id);
    });
    const std::uint32_t entry = found == set.end() ? kNoBlock : *found;
    std::vector<std::uint32_t> ends;
    if (entry != kNoBlock) ends = ways_back(entry, id);
    const bool many = ends.size() > kWaysBackMax;
    if (!many && !awaited(set.back(), id) && closes(set.back(), id)) return set.back();
    if (entry == kNoBlock) {
      return *std::find_if(set.rbegin(), set.rend(),
                           [&](std::uint32_t block) { return !awaited(block, id); });
    }
    // Where only one block leads to the entry that one is last. Where there are several they meet.
    return ends.size() == 1 && !awaited(ends[0], id) ? ends[0] : entry;
  }

  // The blocks of a loop that lead to one of it.
  std::vector<std::uint32_t> ways_back(std::uint32_t to, std::uint32_t set) {
    std::vector<std::uint32_t> ends;
    effort_.spend(graph_.before(to).size());  // divide() asks what is left.
    for (const std::uint32_t block : graph_.before(to)) {
      if (inside(block, set)) ends.push_back(block);
    }
    return ends;
  }

  bool closes(std::uint32_t block, std::uint32_t set) const {
    const auto after = graph_.after(block);
    return is_entry(block, set) || std::any_of(after.begin(), after.end(), [&](std::uint32_t next) {
             return inside(next, set) && is_entry(next, set);
           });
  }

  // Divides a set into loops and single blocks; the first one is then the last of open_.
  bool divide(const Set& set) {
    const std::uint32_t before = sets_;
    for (const std::uint32_t block : set) number_[block] = 0;
    const std::uint32_t id = set_of_[set[0]];
    found_.clear();
    for (const std::uint32_t block : set) {
      if (number_[block] == 0 && inside(block, id) && !find_loops(block, id)) return false;
    }
    sort_parts(before + 1);
    return true;
  }

  // Tarjan's strongly connected components: those that can be reached from `root` are added to
  // found_, and become sets of their own.
  bool find_loops(std::uint32_t root, std::uint32_t id) {
    const auto enter = [this](std::uint32_t block) {
      number_[block] = lowest_[block] = ++counter_;
      waiting_stack_.push_back(block);
      visits_.push_back({block, 0});
    };
    enter(root);
    while (!visits_.empty()) {
      Visit& visit = visits_.back();
      const std::uint32_t block = visit.block;
      const auto after = graph_.after(block);
      if (visit.next < after.size()) {
        const std::uint32_t next = after[visit.next++];
        if (!inside(next, id)) continue;
        if (number_[next] == 0) {
          enter(next);
        } else {
          lowest_[block] = std::min(lowest_[block], number_[next]);
        }
        continue;
      }
      visits_.pop_back();
      if (!effort_.spend(1 + after.size())) return false;
      if (!visits_.empty()) {
        std::uint32_t& outer = lowest_[visits_.back().block];
        outer = std::min(outer, lowest_[block]);
      }
      if (lowest_[block] == number_[block]) close(block);
    }
    return true;
  }

  void close(std::uint32_t block) {
    ++sets_;
    Set& set = found_.emplace_back();
    std::uint32_t top = kNoBlock;
    while (top != block) {
      top = waiting_stack_.back();
      waiting_stack_.pop_back();
      set_of_[top] = sets_;
      set.push_back(top);
    }
    std::sort(set.begin(), set.end());
  }

  // Of the parts found, numbered from `first` on, the one that stands first in the text and before
  // which all came that lead to it is next.
  void sort_parts(std::uint32_t first) {
    const auto part_of = [&](std::uint32_t block) { return set_of_[block] - first; };
    std::vector<std::uint32_t> missing(found_.size(), 0);
    const auto for_later = [&](std::uint32_t part, auto&& each) {
      for (const std::uint32_t block : found_[part]) {
        for (const std::uint32_t next : graph_.after(block)) {
          const std::uint32_t other = part_of(next);
          if (other < found_.size() && other != part) each(other);
        }
      }
    };
    for (std::uint32_t part = 0; part < found_.size(); ++part) {
      for_later(part, [&](std::uint32_t other) { ++missing[other]; });
    }
    using Place = std::pair<std::uint32_t, std::uint32_t>;  // The first block of a part, the part.
    std::priority_queue<Place, std::vector<Place>, std::greater<>> ready;
    const auto add = [&](std::uint32_t part) { ready.emplace(found_[part][0], part); };
    for (std::uint32_t part = 0; part < found_.size(); ++part) {
      if (missing[part] == 0) add(part);
    }
    std::vector<std::uint32_t> order;
    while (!ready.empty()) {
      const std::uint32_t part = ready.top().second;
      ready.pop();
      order.push_back(part);
      for_later(part, [&](std::uint32_t other) {
        if (--missing[other] == 0) add(other);
      });
    }
    for (std::size_t i = order.size(); i-- > 0;) open_.push_back(std::move(found_[order[i]]));
  }

  const FlowGraph& graph_;
  const std::vector<std::uint32_t>& waiting_;
  Effort& effort_;
  std::vector<std::uint32_t> set_of_;  // Each loop or single block that was found has a number.
  std::uint32_t sets_ = 0;
  std::vector<Set> open_;  // What is not yet in order; the last one comes first.
  // Of find_loops().
  std::vector<std::uint32_t> number_;  // 0: not yet seen.
  std::vector<std::uint32_t> lowest_;
  std::uint32_t counter_ = 0;
  std::vector<Visit> visits_;
  std::vector<std::uint32_t> waiting_stack_;
  std::vector<Set> found_;
};

std::optional<std::vector<std::uint32_t>> order_of(const FlowGraph& graph) {
  Effort effort(kVisitsEach * (graph.blocks() + graph.edges()));
  const auto meetings = find_meetings(graph, effort);
  if (!meetings.has_value()) return std::nullopt;
  const std::vector<std::uint32_t> waiting = Waiting(graph, *meetings).find();
  return Ordering(graph, waiting, effort).run();
}

}  // namespace

std::vector<Stretch> lay_out(const Code& code) {
  std::vector<Stretch> text = {{0, static_cast<std::uint32_t>(code.instructions.size())}};
  if (!has_loops(code)) return text;
  const auto graph = FlowGraph::make(code);
  if (!graph.has_value()) return text;
  const auto order = order_of(*graph);
  if (!order.has_value()) return text;
  std::vector<Stretch> stretches;
  for (const std::uint32_t block : *order) {
    if (block == graph->end()) continue;
    const Stretch next{graph->first(block), graph->first(block + 1)};
    if (!stretches.empty() && stretches.back().end == next.first) {
      stretches.back().end = next.end;
    } else {
      stretches.push_back(next);
    }
  }
  return stretches;
}

}  // namespace flyt::ptx
