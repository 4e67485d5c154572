// SmCut: into which groups a chip's multiprocessors are cut, and which of them a wish takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace flyt {

// Some groups of a cut.
struct SmShare {
  std::uint32_t groups = 0;  // Of the usual size.
  bool rest = false;         // And the rest.
  friend bool operator==(const SmShare&, const SmShare&) = default;
};

// Groups of one size, numbered from 0, and the rest, which comes last. Servers, nodes and clusters
// count alike, so that one grants what another has counted on. Pure.
struct SmCut {
  std::uint32_t group = 0;   // Multiprocessors of a group; 0: there are no groups.
  std::uint32_t groups = 0;  // Of that size.
  std::uint32_t rest = 0;    // Multiprocessors that are left over; 0: none.
  // The rest is one more group. It goes only with another one: what is left over may stand so far
  // apart that a cluster of blocks fits nowhere in it. False: whoever has everything has it.
  bool rest_is_group = false;

  std::uint32_t sms() const { return group * groups + rest; }
  std::uint32_t sms_of(const SmShare& share) const {
    return share.groups * group + (share.rest ? rest : 0);
  }

  // Of so many free groups, and the rest if that is free, those with the least sum that is at least
  // `sms`; of equals the ones without the rest. None if there are too few, or for 0.
  std::optional<SmShare> share(std::uint64_t sms, std::uint32_t groups_free, bool rest_free) const;
  // The same of an empty chip.
  std::optional<SmShare> share(std::uint64_t sms) const { return share(sms, groups, true); }
  // The least with the rest, and without it.
  std::optional<SmShare> share_with_rest(std::uint64_t sms, std::uint32_t groups_free) const;
  std::optional<SmShare> share_without_rest(std::uint64_t sms, std::uint32_t groups_free) const;

  friend bool operator==(const SmCut&, const SmCut&) = default;
};

// Of a list of the groups' sizes. An odd last one is a rest; with `rest_is_group` the last one is,
// whatever its size.
SmCut cut_of(std::span<const std::uint32_t> sizes, bool rest_is_group);

}  // namespace flyt
