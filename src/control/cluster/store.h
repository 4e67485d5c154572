// Store: what a cluster manager remembers: keys with values that change together or not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace flyt::cluster {

struct StoreEntry {
  std::string key;
  std::string value;
  std::uint64_t revision = 0;  // Of the commit that wrote it.
};

// That the key's value was written by this commit; 0: that there is no such key.
struct StoreCondition {
  std::string key;
  std::uint64_t revision = 0;
};

struct StoreChange {
  std::string key;
  std::optional<std::string> value;  // None: the key goes.
};

// No more than etcd can do, so that several managers can share one. Not thread-safe, but for
// mine().
class Store {
 public:
  virtual ~Store() = default;
  // Those whose keys begin so, in order.
  virtual Result<std::vector<StoreEntry>> list(std::string_view prefix) = 0;
  // All of it or nothing, and on disk when it returns; the new revision, which is larger than any
  // before. kDenied: a condition does not hold. kLost: nobody knows whether it was done, and
  // nothing more can be.
  virtual Result<std::uint64_t> commit(std::span<const StoreCondition> conditions,
                                       std::span<const StoreChange> changes) = 0;
  // How many changes one commit has at best: with more it takes several steps.
  virtual std::size_t changes_at_once() const { return 3000; }
  // False: somebody else may write now, and does what is to be done.
  virtual bool mine() const { return true; }
};

}  // namespace flyt::cluster
