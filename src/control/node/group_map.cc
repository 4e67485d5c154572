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
  std::vector<bool> taken = taken_;
  for (const std::uint32_t group : groups) {
    if (group >= taken.size() || taken[group]) return false;
    taken[group] = true;
  }
  taken_ = std::move(taken);
  return true;
}

std::uint32_t GroupMap::sms_of(const std::vector<std::uint32_t>& groups) const {
  std::uint32_t sum = 0;
  for (const std::uint32_t group : groups) sum += sizes_[group];
  return sum;
}

std::uint32_t GroupMap::sms_free() const {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < sizes_.size(); ++i) sum += taken_[i] ? 0 : sizes_[i];
  return sum;
}

std::string GroupMap::free_text() const {
  if (sizes_.empty()) return "nothing";
  const auto free = std::count(taken_.begin(), taken_.begin() + usual_count(), false);
  return std::to_string(free) + " groups of " + std::to_string(sizes_.front());
}

std::optional<GroupMap::Plan> GroupMap::plan(std::uint32_t sms) const {
  if (sizes_.empty() || sms == 0) return std::nullopt;
  const std::uint32_t size = sizes_.front();
  const auto free =
      static_cast<std::uint32_t>(std::count(taken_.begin(), taken_.begin() + usual_count(), false));
  const auto groups_for = [size](std::uint64_t wanted) {
    return static_cast<std::uint32_t>((wanted + size - 1) / size);
  };
  if (const std::uint32_t count = groups_for(sms); count <= usual_count()) {
    return count <= free ? std::optional(Plan{count, false}) : std::nullopt;
  }
  const bool all_free = free == usual_count() && has_odd() && !taken_.back();
  if (!all_free || sms > sms_free()) return std::nullopt;
  return Plan{free, true};
}

// The smallest gap that is large enough; where none is, the largest ones.
void GroupMap::add_usual(std::uint32_t count, std::vector<bool> free,
                         std::vector<std::uint32_t>& out) const {
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

std::optional<std::vector<std::uint32_t>> GroupMap::choose(std::uint32_t sms) const {
  return choose_again(sms, {});
}

std::optional<std::vector<std::uint32_t>> GroupMap::choose_again(
    std::uint32_t sms, const std::vector<std::uint32_t>& own) const {
  const std::optional<Plan> wanted = plan(sms);
  if (!wanted) return std::nullopt;
  std::vector<bool> free(usual_count());
  for (std::size_t i = 0; i < free.size(); ++i) free[i] = !taken_[i];
  std::vector<std::uint32_t> groups;
  for (const std::uint32_t group : own) {
    if (group < free.size() && free[group] && groups.size() < wanted->usual) {
      groups.push_back(group);
      free[group] = false;
    }
  }
  add_usual(wanted->usual - static_cast<std::uint32_t>(groups.size()), std::move(free), groups);
  if (wanted->odd) groups.push_back(static_cast<std::uint32_t>(sizes_.size() - 1));
  std::sort(groups.begin(), groups.end());
  return groups;
}

}  // namespace flyt::node
