// GroupMap: which groups of multiprocessors of one GPU are taken, and which to take next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flyt::node {

// Groups are of one size, but for the last, which may be what the chip had left: only whoever takes
// the whole GPU gets that. Deterministic; not thread-safe.
class GroupMap {
 public:
  explicit GroupMap(std::vector<std::uint32_t> sizes)
      : sizes_(std::move(sizes)), taken_(sizes_.size(), false) {}

  // False, and nothing is taken, if one does not exist or is taken already.
  bool take(const std::vector<std::uint32_t>& groups);

  // Free groups with at least `sms` multiprocessors in sum: as few groups as possible, side by
  // side in the smallest gap that holds them. None if there are too few.
  std::optional<std::vector<std::uint32_t>> choose(std::uint32_t sms) const;

  // The same for somebody who has `own` of them (marked free here): keeps as many as possible.
  std::optional<std::vector<std::uint32_t>> choose_again(
      std::uint32_t sms, const std::vector<std::uint32_t>& own) const;

  std::uint32_t sms_of(const std::vector<std::uint32_t>& groups) const;
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
  void add_usual(std::uint32_t count, std::vector<bool> free,
                 std::vector<std::uint32_t>& out) const;

  std::vector<std::uint32_t> sizes_;
  std::vector<bool> taken_;
};

}  // namespace flyt::node
