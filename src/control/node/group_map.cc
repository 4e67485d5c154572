#include "control/node/group_map.h"

#include <algorithm>

namespace flyt::node {
namespace {

struct Gap {
  std::size_t first = 0;
  std::size_t size = 0;
};

std::vector<Gap> gaps_in(const std::vector<bool>& free) {
  std::vector<Gap> gaps;
  for (std::size_t i = 0; i < free.size(); ++i) {
    if (!free[i]) continue;
    if (i > 0 && free[i - 1]) {
      ++gaps.back().size;
    } else {
      gaps.push_back({i, 1});
    }
  }
  return gaps;
}

}  // namespace

bool GroupMap::take(const std::vector<std::uint32_t>& groups) {
  std::vector<bool> named(sizes_.size(), false);
  for (const std::uint32_t group : groups) {
    if (group >= named.size() || named[group]) return false;
    named[group] = true;
  }
  for (const std::uint32_t group : groups) ++holders_[group];
  return true;
}

std::uint32_t GroupMap::usual_free() const {
  const std::uint64_t most = std::uint64_t{cut_.groups} * percent_ / 100;
  std::uint64_t given = 0;
  for (std::size_t i = 0; i < cut_.groups; ++i) given += holders_[i];
  return static_cast<std::uint32_t>(most > given ? most - given : 0);
}

std::uint32_t GroupMap::sms_of(const std::vector<std::uint32_t>& groups) const {
  std::uint32_t sum = 0;
  for (const std::uint32_t group : groups) sum += sizes_[group];
  return sum;
}

std::uint32_t GroupMap::sms_free() const {
  return usual_free() * cut_.group + (rest_free() ? cut_.rest : 0);
}

std::string GroupMap::free_text() const {
  if (sizes_.empty()) return "nothing";
  std::string text = std::to_string(usual_free()) + " groups of " + std::to_string(cut_.group);
  if (cut_.rest_is_group && rest_free()) text += " and one of " + std::to_string(cut_.rest);
  return text;
}

std::uint32_t GroupMap::most_holders(const std::vector<std::uint32_t>& groups) const {
  std::uint32_t most = 0;
  for (const std::uint32_t group : groups) most = std::max(most, holders_[group]);
  return most;
}

// The smallest gap that is large enough, or the last one if it ends at the end and that is wished;
// where none is, the largest ones.
void GroupMap::add_side_by_side(std::uint32_t count, bool at_the_end, std::vector<bool> free,
                                std::vector<std::uint32_t>& out) {
  while (count > 0) {
    const std::vector<Gap> gaps = gaps_in(free);
    const Gap* chosen = &gaps.front();
    for (const Gap& gap : gaps) {
      const bool fits = gap.size >= count;
      const bool chosen_fits = chosen->size >= count;
      if (fits != chosen_fits ? fits : (fits ? gap.size < chosen->size : gap.size > chosen->size)) {
        chosen = &gap;
      }
    }
    std::size_t first = chosen->first;
    if (at_the_end && free.back() && gaps.back().size >= count) first = free.size() - count;
    const std::size_t number = std::min<std::size_t>(count, chosen->size);
    for (std::size_t i = first; i < first + number; ++i) {
      free[i] = false;
      out.push_back(static_cast<std::uint32_t>(i));
    }
    count -= static_cast<std::uint32_t>(number);
  }
}

// Of those that are open, the ones that fewest hold.
void GroupMap::add_usual(std::uint32_t count, bool at_the_end, std::vector<bool> open,
                         std::vector<std::uint32_t>& out) const {
  for (std::uint32_t holders = 0; count > 0; ++holders) {
    std::vector<bool> level(open.size());
    for (std::size_t i = 0; i < open.size(); ++i) level[i] = open[i] && holders_[i] == holders;
    const auto there = static_cast<std::uint32_t>(std::count(level.begin(), level.end(), true));
    const std::uint32_t number = std::min(count, there);
    add_side_by_side(number, at_the_end, std::move(level), out);
    count -= number;
  }
}

std::vector<std::uint32_t> GroupMap::take_up(const SmShare& share,
                                             const std::vector<std::uint32_t>& own) const {
  std::vector<bool> open(cut_.groups, true);
  std::vector<std::uint32_t> groups;
  for (const std::uint32_t group : own) {
    const bool may = percent_ > 100 || (group < open.size() && holders_[group] == 0);
    if (may && group < open.size() && open[group] && groups.size() < share.groups) {
      groups.push_back(group);
      open[group] = false;
    }
  }
  // Beside the rest, which comes last.
  add_usual(share.groups - static_cast<std::uint32_t>(groups.size()), share.rest, std::move(open),
            groups);
  if (share.rest) groups.push_back(cut_.groups);
  std::sort(groups.begin(), groups.end());
  return groups;
}

std::optional<std::vector<std::uint32_t>> GroupMap::choose(std::uint32_t sms) const {
  return choose_again(sms, {});
}

std::optional<std::vector<std::uint32_t>> GroupMap::choose_again(
    std::uint32_t sms, const std::vector<std::uint32_t>& own) const {
  const auto share = cut_.share(sms, usual_free(), rest_free());
  if (!share) return std::nullopt;
  std::vector<std::uint32_t> groups = take_up(*share, own);
  // Where groups may have several holders, a few multiprocessors more cost less than company.
  const auto other =
      share->rest || !rest_free() ? std::nullopt : cut_.share_with_rest(sms, usual_free());
  if (!other) return groups;
  std::vector<std::uint32_t> with_rest = take_up(*other, own);
  return most_holders(with_rest) < most_holders(groups) ? with_rest : groups;
}

}  // namespace flyt::node
