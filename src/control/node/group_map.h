// GroupMap: how often groups of multiprocessors of one GPU are taken, and which to take next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/sm_cut.h"

namespace flyt::node {

// Groups as a GPU is cut (SmCut). So many percent of them are given out; beyond 100 some have
// several holders. Deterministic; not thread-safe.
class GroupMap {
 public:
  explicit GroupMap(std::vector<std::uint32_t> sizes, std::uint32_t percent = 100,
                    bool rest_is_group = false)
      : sizes_(std::move(sizes)),
        cut_(cut_of(sizes_, rest_is_group)),
        percent_(percent),
        holders_(sizes_.size(), 0) {}

  // From now on only whoever takes all groups gets what the chip has left over.
  void keep_rest() { cut_.rest_is_group = false; }

  // For one more holder. False, and nothing is taken, if one does not exist or is named twice. What
  // is there is there, even if it is more than is given out.
  bool take(const std::vector<std::uint32_t>& groups);

  // Groups with at least `sms` multiprocessors in sum, and no more than need be: those with the
  // fewest holders first, side by side in the smallest gap that holds them. None if there are too
  // few.
  std::optional<std::vector<std::uint32_t>> choose(std::uint32_t sms) const;

  // The same for somebody who has `own` of them (not counted here): keeps as many as possible.
  std::optional<std::vector<std::uint32_t>> choose_again(
      std::uint32_t sms, const std::vector<std::uint32_t>& own) const;

  std::uint32_t sms_of(const std::vector<std::uint32_t>& groups) const;
  // What can still be given out; beyond 100 percent it may be more than the GPU has.
  std::uint32_t sms_free() const;
  // "3 groups of 8", for people: what anybody can get.
  std::string free_text() const;

 private:
  std::uint32_t usual_free() const;
  bool rest_free() const { return cut_.rest != 0 && holders_.back() < percent_ / 100; }
  std::vector<std::uint32_t> take_up(const SmShare& share,
                                     const std::vector<std::uint32_t>& own) const;
  std::uint32_t most_holders(const std::vector<std::uint32_t>& groups) const;
  static void add_side_by_side(std::uint32_t count, bool at_the_end, std::vector<bool> free,
                               std::vector<std::uint32_t>& out);
  void add_usual(std::uint32_t count, bool at_the_end, std::vector<bool> open,
                 std::vector<std::uint32_t>& out) const;

  std::vector<std::uint32_t> sizes_;
  SmCut cut_;
  std::uint32_t percent_;
  std::vector<std::uint32_t> holders_;
};

}  // namespace flyt::node
