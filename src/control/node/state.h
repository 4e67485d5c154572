// State: what a node remembers, on disk.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/node/event.h"
#include "control/node/lease.h"
#include "control/sqlite/sqlite.h"

namespace flyt::node {

using control::Database;

// Every change is one transaction, on disk when the call returns. The database itself refuses two
// leases in one group, unless groups may be shared. A call that failed changed nothing. Not
// thread-safe.
class State {
 public:
  static constexpr std::int64_t kSchemaVersion = 4;

  // Makes what is not there, unless one of these folders has something of leases that it would not
  // know. A file that is damaged, empty, of a newer version or none of ours is refused with what to
  // do, and left as it is. At most `events_max` events are kept.
  static Result<State> open(const std::string& path, std::uint64_t events_max,
                            const std::vector<std::string>& lease_folders);

  // A group may have several leases; not before this was called.
  Status share_groups(bool on);

  // kInvalid: a row has what no lease can have.
  Result<std::vector<Lease>> leases();
  Status add(const Lease& lease, const Event& event);
  // Whatever may change: grant, asked multiprocessors, server, restarts, a quota that waits.
  Status update(const Lease& lease, const Event& event);
  Status remove(const std::string& id, const Event& event);

  Status append(const Event& event);
  Result<std::vector<Event>> events();

  Result<bool> draining();
  Status set_draining(bool draining, const Event& event);

  // The newest leader of each cluster, by its epoch.
  Result<std::map<std::string, std::uint64_t>> leaders();
  Status set_leader(const std::string& cluster, std::uint64_t epoch, const Event& event);
  Status forget_leaders(const Event& event);

  // Processes that are no leases' servers, by name; pid 0 for none.
  Result<ProcessId> recall(const std::string& name);
  Status remember(const std::string& name, ProcessId id);

  // Why GPUs have failed, by their UUIDs, as long as the machine has not been started again: `boot`
  // tells one start from another.
  Result<std::map<std::string, std::string>> failed(const std::string& boot);
  Status keep_failed(const std::string& uuid, const std::string& boot, const std::string& why);
  Status forget_failed();

  // For tests: the file may not grow beyond so many pages, as on a full disk.
  Status limit_pages(std::int64_t pages);

 private:
  State(Database database, std::uint64_t events_max)
      : database_(std::move(database)), events_max_(events_max) {}
  Status migrate(std::int64_t version);
  Status write_groups(const Lease& lease);
  Status write_event(const Event& event);
  Status read_lists(std::vector<Lease>& leases);

  Database database_;
  bool share_groups_ = false;
  std::uint64_t events_max_;
};

}  // namespace flyt::node
