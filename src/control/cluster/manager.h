// Manager: a cluster's nodes, VMs and virtual GPUs: who has what, who waits, what is to be done.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "control/cluster.pb.h"
#include "control/cluster/config.h"
#include "control/cluster/enrol_tokens.h"
#include "control/cluster/gathering.h"
#include "control/cluster/ledger.h"
#include "control/cluster/node_calls.h"
#include "control/cluster/placement/scheduler.h"
#include "control/cluster/places.h"
#include "control/cluster/requirements/requirement.h"
#include "control/cluster/roles.h"
#include "control/cluster/scaling/scaler.h"
#include "control/cluster_state.pb.h"
#include "control/pki/expiry.h"

namespace flyt::cluster {

// Something to ask of a node; whoever runs it may wait for long.
struct Job {
  enum class Kind : std::uint8_t {
    kCreate,  // Make the lease of a grant.
    kEnd,     // Release the lease of an ending.
    kCheck,   // Is a grant's lease still there?
    kRetire,  // Take a grant back if no program uses it.
    kScale,   // Give a grant more or fewer multiprocessors.
  };
  Kind kind = Kind::kCreate;
  std::string id;  // The grant's, or the ending's.
};

// Counts since this process started.
struct ClusterCounters {
  std::uint64_t reports = 0;
  std::uint64_t requests = 0;
  std::uint64_t placed = 0;
  std::uint64_t refused = 0;  // By nodes.
  std::uint64_t released = 0;
  std::uint64_t freed = 0;  // Unused.
  std::uint64_t nodes_lost = 0;
  std::uint64_t scaled = 0;  // By use.
  std::uint64_t requirements_read = 0;
  std::uint64_t requirements_failed = 0;  // The database could not be read.
};

// A VM has at most one grant that is its own; a grant that is no longer any VM's is an ending until
// its node has said that the lease is gone. Both are on disk before a node is asked, so that no
// crash forgets a lease. Safe from any thread; nodes are asked without the lock.
class Manager {
 public:
  Manager(Config config, const Log& log, std::unique_ptr<Store> store, NodeCalls& calls,
          const Clock& clock);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // Reads the store. kInvalid: it is damaged. Without `decides` it is to be read only, and nothing
  // is written.
  Status start(bool decides = true);
  // What time brings: nodes that are lost, grants that nobody uses, wishes that nobody renews.
  void tick();
  // The next thing to do; none within `patience`, or after stop().
  std::optional<Job> next_job(Duration patience);
  void run(const Job& job);
  // Nobody waits from now on.
  void stop();
  // The same, and it is not written down: somebody else may decide now.
  void retire();
  // False: what it tells may be old, and it changes nothing.
  bool decides();
  // Why the last change could not be written; empty: it could.
  std::string problem();

  // For nodes.
  Result<v1::NodeReply> report(const v1::NodeReport& report);

  // For VMs, named by name or address.
  Result<v1::VirtualGpu> request(const v1::GpuRequest& request);
  Result<v1::VirtualGpu> gpu_of(const std::string& vm);
  Result<v1::VirtualGpu> release(const std::string& vm, const std::string& why);
  // While somebody watches, the VM's wish is kept.
  Status watch(const std::string& vm, bool begin);

  // For operators. An empty name: all.
  v1::ClusterDescription describe();
  Result<v1::ListNodesResponse> nodes(const std::string& node);
  Result<v1::ListVmsResponse> vms(const std::string& vm);
  Result<v1::ListClusterLeasesResponse> leases(const std::string& vm, const std::string& node);
  Result<v1::ListClusterSessionsResponse> sessions(const std::string& vm, const std::string& node);
  Result<v1::Explanation> explain(const std::string& vm);
  Result<v1::ListVmsResponse> set_vms(const v1::SetVmsRequest& request);
  Result<v1::Vm> remove_vm(const std::string& vm, bool force);
  Result<v1::Vm> resize(const v1::ResizeVmRequest& request);
  Result<v1::Node> set_node(const v1::SetNodeRequest& request);
  Result<v1::Node> remove_node(const std::string& node);
  std::vector<std::string> problems();
  // The last change could be written.
  bool writable();
  std::vector<v1::ClusterEvent> events(std::uint64_t after);
  std::vector<v1::AuditEntry> audits(std::uint64_t after);
  Status audit(v1::AuditEntry entry);
  ClusterCounters counters();

  // For machines without a certificate. The token that is made has "ID.SECRET".
  Result<v1::EnrolToken> new_enrol_token(const v1::CreateEnrolTokenRequest& request,
                                         const std::string& by);
  v1::ListEnrolTokensResponse enrol_tokens();
  Result<v1::EnrolToken> revoke_enrol_token(const std::string& id);
  // Whether the claim would be granted now, and for what.
  Result<v1::EnrolToken> look_at(const EnrolClaim& claim);
  // It is, for the certificate with this number, and never again.
  Status spend(const EnrolClaim& claim, const std::string& serial, const std::string& from);

  // For who reads a database of VMs' requirements. Makes, changes and removes VMs until they are as
  // it says; who is gone from it keeps a virtual GPU that he has. Rows that make no VM are told.
  Result<std::vector<requirements::Skipped>> take_requirements(const requirements::Answer& answer);
  // What there is to say of the last reading: why it failed, or empty; and the rows that were
  // skipped.
  void note_requirements(const std::string& problem, std::vector<std::string> skipped);
  // Until it is to be read again: after `period`, or before that if a VM that nobody knows was
  // asked for. False: never again.
  bool await_requirements(Duration period);
  // Why the database could not be read last; empty: it could, or there is none.
  std::string requirements_problem();

  // Grows with every change of what is listed. Waits, up to `patience`, for one beyond `revision`.
  std::uint64_t wait_for_change(std::uint64_t revision, Duration patience);
  bool stopping();

 private:
  struct Vm {
    v1::VmSpec spec;
    std::optional<state::Grant> grant;
    bool absent = false;   // The grant's node is lost, or does not have the lease any more.
    Instant made;          // When the node said so.
    Instant used;          // Last seen in use, or asked for.
    Instant tried;         // When its node was last asked about it.
    bool resized = false;  // Since its node's last report, which may have been on its way.
    std::optional<state::Wish> wish;
    std::string wish_id;  // The grant's that it will become.
    Instant wish_until;
    std::optional<std::string> machine;  // Whose Unix sockets its programs reach, if it has said.
    std::uint32_t watchers = 0;
    std::uint64_t generation = 0;
    std::string reason;
    std::map<std::string, Instant> avoid;  // Nodes that have refused, until then.
    scaling::Scaler scaler;
    scaling::Decision scale;  // What was decided last, done or not.
    std::string scaled;       // What became of it.
  };
  struct NodeEntry {
    state::NodeRecord record;
    v1::NodeReport report;
    bool heard = false;  // Since this manager started.
    bool lost = false;
    Instant last;
    std::int64_t last_ms = 0;
    std::set<std::string> foreign;  // Leases that are not the cluster's, as placement calls them.
    unsigned calls = 0;             // Under way to it.
    std::deque<Job> later;          // What is to be asked of it when some have ended.
  };
  struct EndingEntry {
    state::Ending ending;
    unsigned failures = 0;
    Instant retry_at;
    std::string trouble;  // Why it is not over, as its node, or the store, says.
  };

  // manager_start.cc
  Status load_identity() REQUIRES(mutex_);
  Status load_nodes() REQUIRES(mutex_);
  Status load_vms() REQUIRES(mutex_);
  Status load_grants() REQUIRES(mutex_);
  Status load_wishes() REQUIRES(mutex_);
  Status load_endings() REQUIRES(mutex_);
  Status load_enrol_tokens() REQUIRES(mutex_);
  Status begin_epoch() REQUIRES(mutex_);

  // manager_nodes.cc
  placement::NodeState placement_state(const NodeEntry& node) const;
  v1::NodeState state_of(const NodeEntry& node) const;
  Status check_place(const v1::NodeReport& report) REQUIRES(mutex_);
  Status refuse_place(const v1::NodeReport& report, std::string why) REQUIRES(mutex_);
  Status take_record(NodeEntry& node, const v1::NodeReport& report) REQUIRES(mutex_);
  void take_leases(NodeEntry& node) REQUIRES(mutex_);
  void take_own(NodeEntry& node, const std::string& id, const node::v1::Lease& lease)
      REQUIRES(mutex_);
  void take_unknown(NodeEntry& node, const std::string& id, const node::v1::Lease& lease)
      REQUIRES(mutex_);
  void take_foreign(NodeEntry& node) REQUIRES(mutex_);
  void ask_for_missing(NodeEntry& node, const std::set<std::string>& seen) REQUIRES(mutex_);
  void hold(const Vm& vm) REQUIRES(mutex_);
  void lose_due() REQUIRES(mutex_);
  void lose(NodeEntry& node) REQUIRES(mutex_);

  // manager_work.cc
  struct Planned {
    Vm* vm = nullptr;
    state::Grant grant;
    std::optional<state::Ending> old;  // The grant that it replaces.
  };
  // A VM's request, and what comes of it.
  struct Asking {
    const v1::GpuRequest& request;
    Status status;
    v1::VirtualGpu gpu;
    std::string address;  // Of the node of what is ready, and the lease there.
    std::string lease;
  };
  // What a node has made of a grant.
  struct Created {
    const std::string& node;
    const std::string& id;
    const Result<node::v1::Lease>& lease;
  };
  void place() REQUIRES(mutex_);
  Status commit_placed(std::span<const placement::Placement> placed) REQUIRES(mutex_);
  Planned plan(const placement::Placement& placed, Batch& batch) REQUIRES(mutex_);
  void undo(std::span<const placement::Placement> placed) REQUIRES(mutex_);
  Status begin_wish(Vm& vm, std::string_view why, Batch batch) REQUIRES(mutex_);
  // A wish that is granted at once is never written.
  void ask_for(Vm& vm, Asking& asking) REQUIRES(mutex_);
  void learn_machine(Vm& vm, const v1::GpuRequest& request) REQUIRES(mutex_);
  // One commit for all of them.
  void answer(const std::vector<Asking*>& all) REQUIRES(mutex_);
  void show_answer(Asking& asking, const Status& written) REQUIRES(mutex_);
  Status write_wishes(const std::vector<Vm*>& fresh) REQUIRES(mutex_);
  void forget_wish(Vm& vm) REQUIRES(mutex_);
  state::Wish new_wish(const Vm& vm, const std::string& reason) REQUIRES(mutex_);
  Status enter_queue(Vm& vm) REQUIRES(mutex_);
  void queue_again(Vm& vm) REQUIRES(mutex_);
  void drop_wish(Vm& vm) REQUIRES(mutex_);
  // Wishes that no node fulfils any more; after a node has changed.
  void drop_out_of_reach() REQUIRES(mutex_);
  state::Ending ending_of(const state::Grant& grant, std::string_view reason) const;
  void begin_ending(const state::Ending& ending) REQUIRES(mutex_);
  void forget_grant(Vm& vm) REQUIRES(mutex_);
  Status end_grant(Vm& vm, std::string_view kind, const std::string& why, Batch batch)
      REQUIRES(mutex_);
  void push(Job job) REQUIRES(mutex_);
  // Where its node is asked; empty: not now, or not at all.
  std::string begin_call(const std::string& node, const Job& job) REQUIRES(mutex_);
  void end_call(const std::string& node, const std::string& id) REQUIRES(mutex_);
  // The same of a call for a VM's grant: null if that was given back meanwhile, and is to end now.
  Vm* end_vms_call(const std::string& node, const std::string& id) REQUIRES(mutex_);
  void create(const std::string& id);
  void created(const std::string& node, const std::string& id,
               const Result<node::v1::Lease>& lease);
  void take_created(const std::vector<Created*>& all) REQUIRES(mutex_);
  void take_made(Vm& vm, const node::v1::Lease& lease, Batch& batch) REQUIRES(mutex_);
  void take_refusal(Vm& vm, const Error& error) REQUIRES(mutex_);
  void end(const std::string& id);
  void check(const std::string& id, bool retire);
  void lose_lease(Vm& vm, const std::string& why) REQUIRES(mutex_);
  bool unused(const Vm& vm) REQUIRES(mutex_);
  void grants_due() REQUIRES(mutex_);
  void wishes_due() REQUIRES(mutex_);
  void endings_due() REQUIRES(mutex_);

  // manager_scaling.cc
  bool scales(const Vm& vm) const;
  void measure(Vm& vm, const node::v1::Lease& lease) REQUIRES(mutex_);
  std::optional<scaling::Size> size_of(const Vm& vm) const REQUIRES(mutex_);
  void scales_due() REQUIRES(mutex_);
  void scale(const std::string& id);
  Result<node::v1::ResizeLeaseRequest> begin_scale(Vm& vm) REQUIRES(mutex_);
  void scaled(const std::string& node, const std::string& id, const Result<node::v1::Lease>& lease);
  void not_scaled(Vm& vm, const std::string& why) REQUIRES(mutex_);
  void explain_scaling(const Vm& vm, v1::Explanation& out) const REQUIRES(mutex_);

  // manager_requirements.cc
  bool listed(const Vm& vm) const;
  Status check_listed(const Vm& vm, const v1::VmSpec& spec) const;
  Result<v1::VmSpec> spec_of(const requirements::Requirement& wanted) REQUIRES(mutex_);
  Status set_required(std::span<const requirements::Requirement> wanted,
                      std::vector<requirements::Skipped>& refused) REQUIRES(mutex_);
  Status drop_required(std::span<const std::string> names) REQUIRES(mutex_);
  void add_requirements_problems(std::vector<std::string>& problems) const REQUIRES(mutex_);

  // Who says so, to a node that is to change something.
  node::v1::Leader as_leader() const REQUIRES(mutex_);
  Vm* find_vm(std::string_view name) REQUIRES(mutex_);
  Result<Vm*> need_vm(std::string_view name) REQUIRES(mutex_);
  Status need_node(const std::string& name) REQUIRES(mutex_);
  Vm* vm_of_grant(const std::string& id) REQUIRES(mutex_);
  NodeEntry* find_node(std::string_view name) REQUIRES(mutex_);
  const NodeEntry* find_node(std::string_view name) const REQUIRES(mutex_);
  placement::Request request_for(const Vm& vm, const std::string& id) const;
  // Why its programs would reach no node that could ever take it; empty: they would, or there is
  // none.
  std::string out_of_reach(const Vm& vm) const REQUIRES(mutex_);
  bool ready(const Vm& vm) const;
  v1::VirtualGpu view(const Vm& vm) const REQUIRES(mutex_);
  v1::Vm view_of_vm(const Vm& vm) const REQUIRES(mutex_);
  v1::Node view_of_node(const NodeEntry& node) const REQUIRES(mutex_);
  v1::ClusterLease view_of_grant(const Vm& vm) const REQUIRES(mutex_);
  Result<v1::VmSpec> spec_after(const v1::VmSpec& wanted, const v1::SetVmsRequest& request)
      REQUIRES(mutex_);
  // That it has a name and an address that are no other VM's.
  Status check_names(const v1::VmSpec& spec) const REQUIRES(mutex_);
  void set_spec(const v1::VmSpec& spec) REQUIRES(mutex_);
  static void plan_removal(const Vm& vm, std::string text, Batch& batch);
  void forget_vm(const std::string& name) REQUIRES(mutex_);
  Result<v1::Vm> resize_waiting(Vm& vm, const v1::VmSpec& after) REQUIRES(mutex_);
  Result<std::string> begin_resize(const std::string& name, const v1::VmSpec& after)
      REQUIRES(mutex_);
  Result<v1::Vm> end_resize(const std::string& id, const v1::VmSpec& after,
                            const Result<node::v1::Lease>& lease);
  // What its node has made of a lease; the spec is written with it.
  Status keep_resized(Vm& vm, const node::v1::Lease& lease, const v1::VmSpec& spec,
                      std::string_view kind, std::string text) REQUIRES(mutex_);
  void note(std::string_view kind, std::string_view node, std::string_view vm, std::string text)
      REQUIRES(mutex_);
  void changed() REQUIRES(mutex_);

  // A node that is refused because it says it is where another one is.
  struct Misplaced {
    std::string why;
    Instant last;
  };

  // Of a database of requirements.
  struct Requirements {
    std::string problem;
    std::vector<std::string> skipped;
    std::set<std::string, std::less<>> gone;  // VMs that it does not have any more.
    bool asked = false;                       // For a VM that nobody knows.
  };

  const Config config_;
  const scaling::Rules rules_;
  const Log log_;
  const pki::Expiry expiry_;
  NodeCalls& calls_;
  const Clock& clock_;

  Gathering<Asking> asked_;
  Gathering<Created> created_;

  Mutex mutex_;
  Condition changed_;
  Condition work_;
  Condition idle_;  // Something is no longer busy.
  Ledger ledger_ GUARDED_BY(mutex_);
  placement::Scheduler scheduler_ GUARDED_BY(mutex_);
  std::map<std::string, Vm, std::less<>> vms_ GUARDED_BY(mutex_);
  std::map<std::string, std::string, std::less<>> addresses_ GUARDED_BY(mutex_);
  std::map<std::string, NodeEntry, std::less<>> nodes_ GUARDED_BY(mutex_);
  Places places_ GUARDED_BY(mutex_);
  std::map<std::string, Misplaced> misplaced_ GUARDED_BY(mutex_);
  std::map<std::string, EndingEntry> endings_ GUARDED_BY(mutex_);
  std::map<std::string, std::string> vm_of_id_ GUARDED_BY(mutex_);  // Of grants and wishes.
  std::map<std::string, Instant> ended_ GUARDED_BY(mutex_);         // Not to be taken for new ones.
  EnrolTokens enrol_tokens_ GUARDED_BY(mutex_);
  std::set<std::string> busy_ GUARDED_BY(mutex_);  // Grants and endings whose node is being asked.
  std::deque<Job> jobs_ GUARDED_BY(mutex_);
  std::string cluster_ GUARDED_BY(mutex_);
  std::uint64_t epoch_ GUARDED_BY(mutex_) = 0;  // Of this manager; 0: it does not decide.
  std::uint64_t next_sequence_ GUARDED_BY(mutex_) = 1;
  std::uint64_t revision_ GUARDED_BY(mutex_) = 1;
  bool place_again_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  ClusterCounters counters_ GUARDED_BY(mutex_);
  Requirements requirements_ GUARDED_BY(mutex_);
};

}  // namespace flyt::cluster
