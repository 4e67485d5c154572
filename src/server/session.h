// Session: one client process, served by one server process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/log.h"
#include "cuda/types.h"
#include "driver/table.h"
#include "rpc/endpoint.h"
#include "server/exchange.h"
#include "server/faults/own_faults.h"
#include "server/gate.h"
#include "server/handles.h"
#include "server/lease/sm_grant.h"
#include "server/lease/usage_board.h"
#include "server/lease/use_meter.h"
#include "server/memory/regions.h"
#include "server/recovery/save_pace.h"
#include "server/request.h"
#include "server/streams/completion.h"
#include "server/workers.h"
#include "wire/hello.h"

namespace flyt::server {

class MemorySubjects;   // Arena, streams, deliveries, ...: server/memory_subjects.h.
struct HostBuffers;     // What copies go through: server/transfers/pinned_memory.h.
class CodeStore;        // Code on disk: server/code/code_store.h.
class CodeSubjects;     // Uploads, modules, links: server/code/code_subjects.h.
class ContextSubjects;  // Contexts and what hangs on them: server/context_subjects.h.
class Graphs;           // Graphs and captures: server/graphs/graphs.h.
class GraphMemory;      // What graphs allocate: server/graphs/graph_memory.h.
class Moves;            // Changes of multiprocessors: server/lease/moves.h.
class Marks;            // What is under way: server/recovery/marks.h.
class SessionFaults;    // Faults on a shared GPU: server/faults/session_faults.h.
class Recovery;         // What other processes can go on with: server/recovery/recovery.h.

struct HandlerRow;

// What a session works with; all of it outlives the session.
struct SessionParts {
  rpc::Endpoint& endpoint;
  const driver::Table& driver;
  HostBuffers& buffers;
  const Log& log;
  const Clock& clock = system_clock();
  std::vector<wire::Window> windows = {};  // Those told in the welcome.
  CodeStore* code_store = nullptr;         // Null where code is not kept.
  int exchange_door = -1;                  // Where sessions share things; -1: nowhere.
  std::uint32_t user = 0;                  // Whose session it is.
  SmGrant grant = {};                      // Of the first GPU; confines nobody unless set.
  bool movable = false;                    // It may become another one later.
  bool measured = false;                   // Somebody may ask how much it uses the GPU.
  Recovery* recovery = nullptr;            // Null: the session ends with its process.
  Marks* marks = nullptr;                  // Of what is under way; null: nobody asks.
  SessionFaults* faults = nullptr;         // Null: a fault is the session's alone.
};

// Commands are decoded and begun by the main thread in order of their sequence numbers; work that
// may take long goes to workers(), waits on the GPU go to completions().
class Session final : public rpc::CommandHandler {
 public:
  explicit Session(const SessionParts& parts);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Serves until the client leaves, is lost or breaks a rule; the calling thread is the main
  // thread. Returns the reason for the log.
  std::string run();
  Status on_command(const rpc::Command& command) override;

  rpc::Endpoint& endpoint() { return parts_.endpoint; }
  const driver::Table& driver() const { return parts_.driver; }
  const Log& log() const { return parts_.log; }
  const Clock& clock() const { return parts_.clock; }
  const std::vector<wire::Window>& windows() const { return parts_.windows; }
  CodeStore* code_store() const { return parts_.code_store; }
  HostBuffers& buffers() const { return parts_.buffers; }
  const SmGrant& first_grant() const { return parts_.grant; }
  bool movable() const { return parts_.movable; }
  SmGrant grant() const;  // The present one.
  Recovery* recovery() const { return parts_.recovery; }
  // What a command gets that ends what is not there, else `refusal`: a session that went on here
  // may have ended it when no process could hear that, and has not made it again.
  CUresult ended_before(CUresult refusal) const;
  SessionFaults* faults() const { return parts_.faults; }
  OwnFaults& own_faults() { return own_faults_; }
  Handles& handles() { return handles_; }
  Regions& regions() { return regions_; }
  Workers& workers() { return workers_; }
  Exchange& exchange() { return exchange_; }
  Completions& completions() { return completions_; }  // Main thread only.
  ContextSubjects& contexts() { return *contexts_; }
  CodeSubjects& code() { return *code_; }
  MemorySubjects& memory() { return *memory_; }
  Graphs& graphs() { return *graphs_; }
  GraphMemory& graph_memory() { return *graph_memory_; }
  Moves& moves() { return *moves_; }

  // Runs `work` on a worker with the request's context current. For what may take long. It does not
  // hold use().
  void run_slow(Request request, std::function<void(Request)> work);

  // For a posted command that is many operations, between two of them. True: its stream may stand
  // until the client is heard, which it is not before the command returns; so what is left of it,
  // behind the `begun` first operations, is executed later, and all that came behind it after that.
  // The request is gone then, and the handler returns CUDA_SUCCESS. Under use(); main thread.
  bool gives_way(Request& request, std::uint64_t begun);

  // Has the main thread do something soon, under use(); what is left when the session ends is not
  // done. Safe from any thread.
  void on_main(std::function<void()> work) EXCLUDES(main_work_mutex_);

  // Makes the context of a handle index current on the calling thread; cheap if it is already.
  // CUDA_ERROR_INVALID_CONTEXT if there is none. 0: no context is current, so that nothing is made
  // in one that it would not be known to belong to.
  CUresult enter(std::uint32_t context);
  // The same for what a command began earlier, in the context of that handle:
  // CUDA_ERROR_CONTEXT_IS_DESTROYED if that is gone, whichever has its index since. Under use().
  CUresult enter_again(std::uint64_t handle);
  // After a context was destroyed, got another native one, or was made current behind enter()'s
  // back.
  void forget_entered() { entered_.store(kNotKnown, std::memory_order_relaxed); }

  // A client may end an object while another of its commands works with it. So whoever looks
  // objects up and hands them to the driver holds use() meanwhile: the main thread for all it does,
  // workers for slow commands. Never twice in one thread.
  std::shared_lock<Gate> use() { return std::shared_lock(lives_); }
  // Whoever ends code or contexts holds endings() instead, takes them out of the tables under
  // alone(), and then lets the driver destroy them. By then nobody works with them, or ever will.
  // Waits for the GPU have no place under alone().
  Mutex& endings() RETURN_CAPABILITY(endings_) { return endings_; }
  std::unique_lock<Gate> alone() { return std::unique_lock(lives_); }
  // Whether nobody holds use() at this moment.
  bool nobody_inside() { return std::unique_lock(lives_, std::try_to_lock).owns_lock(); }

  // The stream that stands for CU_STREAM_PER_THREAD of one client thread in one context, made at
  // first use; null if the driver makes none.
  CUstream thread_stream(std::uint32_t context, std::uint32_t thread);

  // Ends the session: the peer broke a rule. Safe from any thread; the first reason stays.
  void end(std::string_view reason);

  // Subjects add what must reach the client before any reply does (finished copies, printed text).
  // Added while the session is built; called from any thread.
  void before_replies(std::function<void()> flush) { flushes_.push_back(std::move(flush)); }
  void flush_before_reply();

  SessionCounters counters() const { return counters_; }  // Main thread only.

 private:
  // What the main thread does until commands come: `look` is when the use meter looks next.
  struct Turn {
    Instant deadline{0};
    Instant look{0};
    bool handover = false;
  };
  bool in_a_burst() const;
  Turn begin_turn(int quiet_turns);
  void run_slow_command(Request&& request, void (*run)(Request));
  // The compiler's thread, when it has nothing to do: loads a library that may be asked for. False:
  // no more for now.
  bool look_ahead();
  bool look_after(bool quiet);  // True while waits are polled.
  // Where no command has come for long: gives back what copies have had, unless there is work.
  void give_buffers_back();
  // Work that was begun and not found done yet; then the main thread looks soon whether it is.
  bool unsettled() const;
  void look_whether_settled();
  // What another process needs that goes on, when all work is done; false: later.
  bool save();
  bool save_all();
  bool all_work_done();
  // Whether some stream, when queried, says something that `is`.
  bool any_stream(bool (*is)(CUresult));
  CUresult query(CUstream stream);
  // Looks how busy the GPU is, when it is time to. Under use().
  void measure();
  void do_main_work() EXCLUDES(main_work_mutex_);
  void begin(Request&& request, const HandlerRow& row);
  // Commands are put off while a stream that waits for a host function of the client is as full as
  // a driver may take: the next launch could wait, here, for a command that is not read yet.
  // The same while one works on a worker that may wait for the GPU and lets nobody else into the
  // driver meanwhile: loading code does both, on NVIDIA's.
  bool must_put_off();
  // The thread of the client's host functions makes copies for which streams stand: they are what
  // the others wait for.
  bool goes_ahead(const Request& request) const;
  bool driver_may_be_shut() const;
  // On the worker that may shut it, before it does: a host function is told to the client behind
  // what has been copied to the host, and that is looked for in the driver.
  void await_deliveries() const;
  // A command that names a block of a lane is put off, too, until the block has come. False: it has
  // not yet.
  bool fetch_block(Request& request);
  void catch_up();
  void reclaim();
  // Hears of a command that was checked.
  void take(Request&& request, const HandlerRow& row);
  // While the server is to be replaced, calls that a client waits for are not begun: once all other
  // work is done, nothing is lost when the process is killed, and the client makes them again.
  bool hold(const rpc::Command& command, const HandlerRow& row);
  void release_held();
  void look_whether_ready();

  SessionParts parts_;
  OwnFaults own_faults_{*this};
  Exchange exchange_;
  Handles handles_;
  Regions regions_;
  std::vector<std::function<void()>> flushes_;
  std::thread::id main_thread_;
  // What enter() made current on the main thread.
  static constexpr std::uint64_t kNotKnown = UINT64_MAX;  // No client can name it.
  std::atomic<std::uint64_t> entered_{kNotKnown};
  Gate lives_;
  Mutex endings_;
  SessionCounters counters_;
  std::deque<std::pair<const HandlerRow*, Request>> put_off_;  // Main thread only.
  std::deque<std::pair<const HandlerRow*, Request>> held_;     // The same.
  Instant heard_;                                              // When a command came last.
  std::uint64_t looked_after_ = 0;  // The last command when look_after() was called.
  Mutex main_work_mutex_;
  std::vector<std::function<void()>> main_work_ GUARDED_BY(main_work_mutex_);
  Duration settling_pause_{0};         // Main thread only.
  Duration reclaim_pause_{0};          // The same: the next one.
  SavePace save_pace_;                 // The same.
  bool worked_ = false;                // The same: since what work leaves was saved.
  std::atomic<unsigned> shutters_{0};  // Commands on workers that may shut the driver.
  std::uint32_t compiled_in_ = 0;      // The compiler's thread only: where code was loaded last.
  UseMeter use_meter_;                 // Main thread only.
  Completions completions_{*this};
  std::unique_ptr<ContextSubjects> contexts_;
  std::unique_ptr<CodeSubjects> code_;
  std::unique_ptr<Graphs> graphs_;
  std::unique_ptr<GraphMemory> graph_memory_;
  std::unique_ptr<MemorySubjects> memory_;
  std::unique_ptr<Moves> moves_;  // Ends before them: it has some of their events.
  // Last, so that their threads end before what they use.
  Workers workers_;
  Workers compiler_{1};
};

}  // namespace flyt::server
