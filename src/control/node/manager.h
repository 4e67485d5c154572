// Manager: one machine's GPUs and their leases: grants, starts, watches, ends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/result.h"
#include "base/room.h"
#include "base/wall_clock.h"
#include "control/node/config.h"
#include "control/node/control_watchdog.h"
#include "control/node/event_log.h"
#include "control/node/gpu_watch.h"
#include "control/node/lease.h"
#include "control/node/mps.h"
#include "control/node/planner.h"
#include "control/node/process.h"
#include "control/node/state.h"
#include "control/node/xid_watch.h"
#include "control/pki/expiry.h"
#include "transport/transport.h"

namespace flyt::node {

// What a lease's server says of itself; missing where it did not answer.
struct LeaseUse {
  std::uint64_t memory_bytes = 0;
  std::uint32_t sessions = 0;
  std::uint32_t behind = 0;  // Sessions that do not run in the groups yet,
  std::uint32_t fixed = 0;   // and contexts and graphs that never will.
  std::uint64_t moves = 0;   // Since its server started.
  Duration last_move{0};
  control::UseState work = {};       // Zeroes if its server does not measure.
  control::FaultsState faults = {};  // The same.
  control::TotalsState totals = {};  // The same.
};

// What leases of a GPU have done, those that are no more among them; all only grow, as long as this
// process lives.
struct GpuTotals {
  std::uint64_t launches = 0;
  std::uint64_t posted = 0;
  std::uint64_t waited = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t moves = 0;
  std::uint64_t returns = 0;
  std::uint64_t caused = 0;  // Faults, as in control::FaultsState.
  std::uint64_t suspected = 0;

  static GpuTotals of(const LeaseUse& use);
  // What a lease has added since it was `before`, which becomes the newer of both. `anew`: its
  // server may be another one, which began at 0.
  void add(const GpuTotals& now, GpuTotals& before, bool anew);
};

struct LeaseView {
  Lease lease;
  std::vector<std::string> urls;
  std::optional<LeaseUse> use;
};

struct GpuView {
  Gpu gpu;
  std::vector<std::string> holders;          // A lease of each group; empty: free.
  std::vector<std::uint32_t> holder_counts;  // How many have it.
  std::uint32_t sms_free = 0;                // Still given out.
  std::uint64_t quota_bytes = 0;
  std::uint64_t overhead_bytes = 0;  // With what is never leased.
  std::uint64_t free_bytes = 0;
  std::string mps;
  std::string failed;  // Why it is of no use any more; empty: it works.
  std::uint32_t leases = 0;
  std::uint32_t sessions_max = 0;  // 0: any number; then they are not counted here.
  Room::Count sessions = {};       // Those that count.
  std::uint64_t refused = 0;       // Sessions, for want of room, since the machine's start.
  GpuTotals totals = {};           // As leases() has counted them last.
  XidCounts xids = {};             // Since the manager's start.
};

struct NodeView {
  std::string name;
  std::string server;
  bool draining = false;
  std::vector<GpuView> gpus;
  std::uint64_t overhead_per_lease = 0;
  std::uint32_t sessions_per_lease = 0;
  std::uint32_t leases_max = 0;
  std::size_t leases = 0;
};

struct SessionView {
  std::string lease_id;
  std::string lease_name;
  control::SessionState session;
};

struct TokenView {
  std::string token;
  std::int64_t expires_at = 0;
  std::vector<std::string> urls;
  std::string lease_id;
};

// Counts since this process started.
struct Counters {
  std::uint64_t created = 0;
  std::uint64_t refused = 0;
  std::uint64_t resized = 0;
  std::uint64_t moved = 0;
  std::uint64_t released = 0;
  std::uint64_t expired = 0;
  std::uint64_t server_deaths = 0;
  std::uint64_t tokens = 0;
};

// Requests are safe from any thread; tick() belongs to one. A lease is named by its id or its name.
// What takes long is done without the lock, one thing at a time for each lease.
class Manager {
 public:
  Manager(Config config, const Log& log);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // Opens the state, finds the GPUs, takes over servers of an earlier run that still work, ends
  // those nobody knows, and has the others started again. One manager a state folder.
  Status start();
  // What is to do by now: servers that died, those to start again, leases that expired. Sleeps
  // until something happens, at most `patience`.
  void tick(Duration patience);
  // Ends a tick() that sleeps.
  void wake() const { wakeup_.signal(); }
  // Servers are replaced by what their program is now, each as soon as its programs have nothing
  // under way; they notice nothing. Returns before that.
  void upgrade();
  // `end_leases`: servers of leases end; leases stay, and get new servers at the next start.
  void stop(bool end_leases);

  NodeView describe();
  std::vector<LeaseView> leases();
  Result<LeaseView> lease(std::string_view name);
  Result<LeaseView> create(const LeaseRequest& request);
  Result<LeaseView> resize(std::string_view name, const ResizeRequest& request);
  // Moves leases whose groups lie apart to groups side by side, as far as there are some free. The
  // leases that have moved.
  std::vector<LeaseView> defragment();
  Result<LeaseView> release(std::string_view name);
  // An empty name: of all leases.
  Result<std::vector<SessionView>> sessions(std::string_view name);
  // 0 seconds: as configured.
  Result<TokenView> new_token(std::string_view name, std::uint32_t seconds);
  // The number of leases that are still there.
  Result<std::size_t> drain(bool on);
  // What is wrong now; empty: nothing.
  std::vector<std::string> problems();
  // The same, and certificates that end soon.
  std::vector<std::string> concerns();
  // A cluster manager asks that decides in this epoch; without either name: somebody else does.
  // kUnsupported: a newer one of the same cluster was here before.
  Status follow(const std::string& cluster, std::uint64_t epoch);
  // How many clusters' were known.
  Result<std::size_t> forget_leaders();
  Counters counters();
  EventLog& events() { return events_; }

 private:
  struct Held {
    Lease lease;
    std::optional<Process> process;
    std::shared_ptr<ControlLink> link;
    bool busy = false;      // Somebody changes it; others wait.
    unsigned failures = 0;  // To start its server, in a row.
    unsigned ends = 0;      // Of servers that had started well, in a row.
    Instant started;
    Instant restart_at;
    std::optional<Instant> upgrade_until;   // Its server is to be replaced, or else stays.
    std::optional<Process> keeper;          // Its server's; none: it has ended, or there is none.
    bool keeper_has_all = false;            // No program began before it.
    std::int32_t keeper_before = 0;         // The one that has ended,
    std::optional<Instant> keeper_verdict;  // of which it is not known yet what that means.
    std::uint64_t faults_seen = 0;          // The number of the last one, as its server counts.
    std::int64_t faults_told_ms = 0;        // Up to then the manager before this one has told.
    GpuTotals counted = {};                 // So much of it is in its GPU's,
    std::weak_ptr<ControlLink> counted_by = {};  // as this one told.
  };
  struct Mps {
    MpsDaemon daemon;
    unsigned failures = 0;
    Instant restart_at;
  };
  using Leases = std::map<std::string, Held>;

  // What happens is told in the database, in the log and to those who watch.
  Event event(std::string_view kind, const Lease* lease, std::string text) REQUIRES(mutex_);
  void publish(const Event& event) REQUIRES(mutex_);
  void note(std::string_view kind, const Lease* lease, std::string text) REQUIRES(mutex_);
  // Remembers that the state cannot be written, until it can.
  Status checked(Status status) REQUIRES(mutex_);
  std::vector<Lease> snapshot() const REQUIRES(mutex_);
  Leases::iterator find(std::string_view name) REQUIRES(mutex_);
  std::set<std::uint16_t> ports() const REQUIRES(mutex_);
  std::uint16_t free_port() EXCLUDES(mutex_);

  // The id of a lease that is the caller's alone until drop() or end_lease().
  Result<std::string> take(std::string_view name);
  void drop(const std::string& id);
  Result<Lease> begin(const LeaseRequest& request);
  Result<Lease> begin_at(std::uint16_t port, const LeaseRequest& request) REQUIRES(mutex_);
  Status commit_new(const std::string& id);
  Status run_server(const std::string& id);
  struct Applied {
    bool confined = false;
    std::uint32_t behind = 0;  // Sessions that have not moved.
    Duration took{0};
  };
  Result<Applied> apply(ControlLink& link, const Grant& grant) const;
  Result<Applied> move(ControlLink& link, const Grant& from, const Grant& to) const;
  Status end_lease(const std::string& id, std::string_view kind, std::string text);
  // Of a lease whose server could not do so.
  void end_keepers(const std::string& id) const;
  // What a lease is to be, by what others have; what a change is called.
  using Wanted = std::function<Result<Grant>(const Lease&, std::span<const Lease>)>;
  Status change(const std::string& id, std::string_view kind, const Wanted& wanted,
                const ResizeRequest& asked);
  Status shrink_later(const std::string& id, std::uint64_t bytes);
  // Tells a server that has just been given the whole quota.
  static void shrink_again(ControlLink& link, const Lease& lease);
  void shrink_due();
  LeaseView view(const Lease& lease, const std::shared_ptr<ControlLink>& link) const;
  void count(const LeaseView& view, const std::shared_ptr<ControlLink>& link) REQUIRES(mutex_);

  Status open_state();
  Status lock_folders();
  Status lock_folder(const std::string& folder, const std::string& setting);
  Status start_mps();
  Status start_mps_of(std::uint32_t gpu, const std::string& uuid);
  Status find_all_gpus();
  Result<Gpu> find_gpu(std::uint32_t index, const std::string& uuid);
  Status recover();
  bool fits_machine(Lease& lease) const REQUIRES(mutex_);
  void recover_lease(Held& held, const std::vector<ProcessFacts>& ours) REQUIRES(mutex_);
  bool adopt(Held& held, ProcessId id) REQUIRES(mutex_);
  void end_orphans(const std::vector<ProcessFacts>& ours) REQUIRES(mutex_);
  void remove_strays() REQUIRES(mutex_);

  Instant next_deadline(Instant now, Duration patience) REQUIRES(mutex_);
  void wait_for_something(Duration patience);
  void take_deaths();
  void restart_due();
  void restart(const std::string& id);
  void note_kept();
  void connect_again();
  void release_due();
  void watch_mps();
  // GPUs that have failed, and their leases, whose servers end.
  void note_failed_gpus();
  void fail(std::uint32_t gpu, const std::string& why) REQUIRES(mutex_);
  // What GPUs' drivers say of errors.
  void note_xids();
  void tell_xids(std::uint32_t gpu, const XidCounts& counts) REQUIRES(mutex_);
  // GPUs that an Xid has failed, for the next manager, should this one die.
  void keep_failed(std::uint32_t gpu, const std::string& why) REQUIRES(mutex_);
  void recall_failed() REQUIRES(mutex_);
  // What servers of a GPU say of sessions for which it had no room.
  void open_rooms();
  void look_for_refusals();
  void find_keeper(Held& held) const REQUIRES(mutex_);
  void watch_keepers();
  void look_for_unkept();
  // What leases' servers say of kernels that faulted.
  void look_for_faults();
  void note_faults(const std::string& id, std::uint64_t after, const control::FaultsState& told);
  Instant next_fault_look(Instant next) const REQUIRES(mutex_);
  void recall_faults(std::span<const Event> events) REQUIRES(mutex_);

  const Config config_;
  const Log own_log_;
  // Programs and VMs make events as often as they like.
  LogLimits lines_;
  const Log log_{own_log_.limited(lines_)};
  const pki::Expiry expiry_;
  ControlWatchdog watchdog_;
  transport::Wakeup wakeup_;
  EventLog events_;
  std::vector<Fd> folder_locks_;
  std::optional<Planner> planner_;       // Set by start(), not changed afterwards.
  std::unique_ptr<GpuWatch> gpu_watch_;  // The same.
  std::unique_ptr<XidWatch> xid_watch_;  // The same.
  // By GPU; the same. None where sessions are not counted.
  std::map<std::uint32_t, std::unique_ptr<Room>> rooms_;

  Mutex mutex_;
  Condition freed_;  // A lease is no longer busy.
  std::optional<State> state_ GUARDED_BY(mutex_);
  Leases held_ GUARDED_BY(mutex_);
  std::map<std::uint32_t, Mps> mps_ GUARDED_BY(mutex_);
  Counters counters_ GUARDED_BY(mutex_);
  std::map<std::uint32_t, GpuTotals> totals_ GUARDED_BY(mutex_);  // By GPU.
  Instant fault_look_ GUARDED_BY(mutex_){};
  Instant keeper_look_ GUARDED_BY(mutex_){};
  struct Refusals {
    std::uint64_t by_limit = 0;  // Of which it was told.
    std::uint64_t by_driver = 0;
    Instant next;  // When it may be told again.
  };
  std::map<std::uint32_t, Refusals> refusals_ GUARDED_BY(mutex_);  // By GPU.
  GpuFailures failed_ GUARDED_BY(mutex_);  // GPUs of which it was told that they have failed.
  struct Xids {
    std::uint64_t seen = 0;  // Since the start,
    std::uint64_t told = 0;  // and how many of them it has told of.
    Instant next = {};       // When it may do so again.
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, Xids> xids_
      GUARDED_BY(mutex_);                                                  // By GPU and number.
  std::map<std::string, std::int64_t> faults_told_ms_ GUARDED_BY(mutex_);  // At the start.
  std::string state_problem_ GUARDED_BY(mutex_);
  bool draining_ GUARDED_BY(mutex_) = false;
  std::map<std::string, std::uint64_t> leaders_
      GUARDED_BY(mutex_);                   // The newest epoch of each cluster.
  std::string deposed_ GUARDED_BY(mutex_);  // The last one that was refused.
  Instant deposed_at_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace flyt::node
