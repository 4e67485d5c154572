#include "base/sm_cut.h"

#include <algorithm>

namespace flyt {

std::optional<SmShare> SmCut::share_without_rest(std::uint64_t sms,
                                                 std::uint32_t groups_free) const {
  if (group == 0 || sms == 0) return std::nullopt;
  const std::uint64_t count = sms / group + (sms % group != 0 ? 1 : 0);
  if (count > std::min(groups, groups_free)) return std::nullopt;
  return SmShare{static_cast<std::uint32_t>(count), false};
}

std::optional<SmShare> SmCut::share_with_rest(std::uint64_t sms, std::uint32_t groups_free) const {
  if (group == 0 || rest == 0 || sms == 0) return std::nullopt;
  const std::uint64_t others = sms > rest ? sms - rest : 0;
  std::uint64_t count = std::max<std::uint64_t>(others / group + (others % group != 0 ? 1 : 0), 1);
  if (!rest_is_group) {
    // Whom the groups suffice gets no more.
    if (share_without_rest(sms, groups)) return std::nullopt;
    count = std::max<std::uint64_t>(count, groups);
  }
  if (count > std::min(groups, groups_free)) return std::nullopt;
  return SmShare{static_cast<std::uint32_t>(count), true};
}

std::optional<SmShare> SmCut::share(std::uint64_t sms, std::uint32_t groups_free,
                                    bool rest_free) const {
  const auto without = share_without_rest(sms, groups_free);
  const auto with = rest_free ? share_with_rest(sms, groups_free) : std::nullopt;
  if (!with || (without && sms_of(*without) <= sms_of(*with))) return without;
  return with;
}

SmCut cut_of(std::span<const std::uint32_t> sizes, bool rest_is_group) {
  if (sizes.empty()) return {};
  const auto count = static_cast<std::uint32_t>(sizes.size());
  const bool rest = count > 1 && (rest_is_group || sizes.back() != sizes.front());
  return {.group = sizes.front(),
          .groups = count - (rest ? 1 : 0),
          .rest = rest ? sizes.back() : 0,
          .rest_is_group = rest && rest_is_group};
}

}  // namespace flyt
