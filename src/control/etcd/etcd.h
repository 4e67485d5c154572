// Etcd: the few things that are asked of a cluster of etcd.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace flyt::control {

struct EtcdEntry {
  std::string key;
  std::string value;
  std::uint64_t created = 0;  // Revisions.
  std::uint64_t modified = 0;
};

struct EtcdEntries {
  std::vector<EtcdEntry> entries;  // In order.
  std::uint64_t revision = 0;      // As they were then.
};

// That the key was made, or last written, by this revision; 0: there is no such key.
struct EtcdCompare {
  enum class What : std::uint8_t { kCreated, kModified };
  std::string key;
  What what = What::kModified;
  std::uint64_t revision = 0;
};

struct EtcdChange {
  std::string key;
  std::optional<std::string> value;  // None: the key goes.
  std::uint64_t lease = 0;           // The key goes with it; 0: none.
};

struct EtcdOutcome {
  bool done = false;  // All compares held, and all is changed; or nothing is.
  std::uint64_t revision = 0;
};

struct EtcdLease {
  std::uint64_t id = 0;
  std::uint32_t seconds = 0;
};

// What one etcd takes at once, as it is set unless told otherwise.
inline constexpr std::size_t kEtcdOperationsMax = 128;
inline constexpr std::size_t kEtcdRequestBytesMax = 1 << 20;

// Every call is bounded. kLost: nobody knows whether it was done; any other error: it was not.
// Safe from any thread.
class Etcd {
 public:
  virtual ~Etcd() = default;
  // All whose keys begin so, as they were at one moment.
  virtual Result<EtcdEntries> list(std::string_view prefix) = 0;
  virtual Result<EtcdOutcome> commit(const std::vector<EtcdCompare>& compares,
                                     const std::vector<EtcdChange>& changes) = 0;
  // For at least so long, unless it is kept.
  virtual Result<EtcdLease> grant(std::uint32_t seconds) = 0;
  // kNotFound: it has ended.
  virtual Status keep(std::uint64_t lease) = 0;
  virtual Status revoke(std::uint64_t lease) = 0;
  // What is changed after `revision`, until `take` is false, or until it fails: kNotFound: etcd has
  // forgotten that revision; read all again. An entry without a revision of its making is gone.
  virtual Status watch(std::string_view prefix, std::uint64_t revision,
                       const std::function<bool(const std::vector<EtcdEntry>&)>& take) = 0;
  // Ends every watch, for ever.
  virtual void stop() = 0;
};

}  // namespace flyt::control
