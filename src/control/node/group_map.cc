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
  const std::uint64_t most = std::uint64_t{usual_count()} * percent_ / 100;
  std::uint64_t given = 0;
  for (std::size_t i = 0; i < usual_count(); ++i) given += holders_[i];
  return static_cast<std::uint32_t>(most > given ? most - given : 0);
}

std::uint32_t GroupMap::sms_of(const std::vector<std::uint32_t>& groups) const {
  std::uint32_t sum = 0;
  for (const std::uint32_t group : groups) sum += sizes_[group];
  return sum;
}

std::uint32_t GroupMap::sms_free() const {
  if (sizes_.empty()) return 0;
  return usual_free() * sizes_.front() + (odd_free() ? sizes_.back() : 0);
}

std::string GroupMap::free_text() const {
  if (sizes_.empty()) return "nothing";
  return std::to_string(usual_free()) + " groups of " + std::to_string(sizes_.front());
}

std::optional<GroupMap::Plan> GroupMap::plan(std::uint32_t sms) const {
  if (sizes_.empty() || sms == 0) return std::nullopt;
  const std::uint32_t size = sizes_.front();
  const std::uint32_t free = usual_free();
  const auto groups_for = [size](std::uint64_t wanted) {
    return static_cast<std::uint32_t>((wanted + size - 1) / size);
  };
  if (const std::uint32_t count = groups_for(sms); count <= usual_count()) {
    return count <= free ? std::optional(Plan{count, false}) : std::nullopt;
  }
  const auto all = static_cast<std::uint32_t>(usual_count());
  const std::uint64_t whole = std::uint64_t{all} * size + (has_odd() ? sizes_.back() : 0);
  if (free < all || !odd_free() || sms > whole) return std::nullopt;
  return Plan{all, true};
}

// The smallest gap that is large enough; where none is, the largest ones.
void GroupMap::add_side_by_side(std::uint32_t count, std::vector<bool> free,
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
    const std::size_t number = std::min<std::size_t>(count, chosen->size);
    for (std::size_t i = chosen->first; i < chosen->first + number; ++i) {
      free[i] = false;
      out.push_back(static_cast<std::uint32_t>(i));
    }
    count -= static_cast<std::uint32_t>(number);
  }
}

// Of those that are open, the ones that fewest hold.
void GroupMap::add_usual(std::uint32_t count, std::vector<bool> open,
                         std::vector<std::uint32_t>& out) const {
  for (std::uint32_t holders = 0; count > 0; ++holders) {
    std::vector<bool> level(open.size());
    for (std::size_t i = 0; i < open.size(); ++i) level[i] = open[i] && holders_[i] == holders;
    const auto there = static_cast<std::uint32_t>(std::count(level.begin(), level.end(), true));
    const std::uint32_t number = std::min(count, there);
    add_side_by_side(number, std::move(level), out);
    count -= number;
  }
}

std::optional<std::vector<std::uint32_t>> GroupMap::choose(std::uint32_t sms) const {
  return choose_again(sms, {});
}

std::optional<std::vector<std::uint32_t>> GroupMap::choose_again(
    std::uint32_t sms, const std::vector<std::uint32_t>& own) const {
  const std::optional<Plan> wanted = plan(sms);
  if (!wanted) return std::nullopt;
  std::vector<bool> open(usual_count(), true);
  std::vector<std::uint32_t> groups;
  for (const std::uint32_t group : own) {
    const bool may = percent_ > 100 || (group < open.size() && holders_[group] == 0);
    if (may && group < open.size() && open[group] && groups.size() < wanted->usual) {
      groups.push_back(group);
      open[group] = false;
    }
  }
  add_usual(wanted->usual - static_cast<std::uint32_t>(groups.size()), std::move(open), groups);
  if (wanted->odd) groups.push_back(static_cast<std::uint32_t>(sizes_.size() - 1));
  std::sort(groups.begin(), groups.end());
  return groups;
}

}  // namespace flyt::node
