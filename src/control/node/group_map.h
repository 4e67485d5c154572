// GroupMap: how often groups of multiprocessors of one GPU are taken, and which to take next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flyt::node {

// Groups are of one size, but for the last, which may be what the chip had left: only whoever takes
// the whole GPU gets that. So many percent of the groups are given out; beyond 100 some have
// several holders. Deterministic; not thread-safe.
class GroupMap {
 public:
  explicit GroupMap(std::vector<std::uint32_t> sizes, std::uint32_t percent = 100)
      : sizes_(std::move(sizes)), percent_(percent), holders_(sizes_.size(), 0) {}

  // For one more holder. False, and nothing is taken, if one does not exist or is named twice. What
  // is there is there, even if it is more than is given out.
  bool take(const std::vector<std::uint32_t>& groups);

  // Groups with at least `sms` multiprocessors in sum: as few as possible, those with the fewest
  // holders first, side by side in the smallest gap that holds them. None if there are too few.
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
  struct Plan {
    std::uint32_t usual = 0;  // How many groups of the usual size.
    bool odd = false;         // And the odd one.
  };
  bool has_odd() const { return sizes_.size() > 1 && sizes_.back() != sizes_.front(); }
  std::size_t usual_count() const { return sizes_.size() - (has_odd() ? 1 : 0); }
  std::optional<Plan> plan(std::uint32_t sms) const;
  std::uint32_t usual_free() const;
  bool odd_free() const { return has_odd() && holders_.back() < percent_ / 100; }
  static void add_side_by_side(std::uint32_t count, std::vector<bool> free,
                               std::vector<std::uint32_t>& out);
  void add_usual(std::uint32_t count, std::vector<bool> open,
                 std::vector<std::uint32_t>& out) const;

  std::vector<std::uint32_t> sizes_;
  std::uint32_t percent_;
  std::vector<std::uint32_t> holders_;
};

}  // namespace flyt::node
