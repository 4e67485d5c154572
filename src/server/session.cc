#include "server/session.h"

#include <algorithm>

#include "commands/context.h"
#include "commands/copy.h"
#include "commands/graph.h"
#include "commands/green.h"
#include "commands/launch.h"
#include "commands/library.h"
#include "commands/link.h"
#include "commands/memory.h"
#include "commands/module.h"
#include "commands/pinned.h"
#include "commands/stream.h"
#include "server/code/code_subjects.h"
#include "server/context_subjects.h"
#include "server/faults/session_faults.h"
#include "server/graphs/graph_memory.h"
#include "server/graphs/graphs.h"
#include "server/handlers.h"
#include "server/lease/moves.h"
#include "server/memory_subjects.h"
#include "server/recovery/recovery.h"
#include "server/recovery/variables.h"

namespace flyt::server {
namespace {

// How often an idle session looks after what it has put off.
constexpr Duration kIdleTurn = std::chrono::milliseconds(20);
constexpr Duration kQuietTurn = std::chrono::seconds(1);
// The same while it waits for the moment to move.
constexpr Duration kMoveTurn = std::chrono::milliseconds(1);
// Without commands for that long a session gives back what host memory its copies have had beyond
// the reserves: longer than programs rest between copies, as a rule, for the next copies register
// it anew.
constexpr Duration kBuffersKept = std::chrono::seconds(60);
// How long the GPU is left to itself where it has all that can be received into: at first, and when
// nothing has come back for long.
constexpr Duration kReclaimPauseMin = std::chrono::microseconds(20);
constexpr Duration kReclaimPauseMax = std::chrono::microseconds(500);
// After so many idle turns a session is quiet.
constexpr int kBusyTurns = 50;
// With so many commands it may go on without that, while nobody waits for it.
constexpr std::uint64_t kBurstCommands = 16;
// Where the client has no core of its own it cannot have sent the next one.
constexpr unsigned kCoresToGlance = 4;

// How soon, and at most how late, the main thread looks whether all work is done when no commands
// come: what is, is safe from whatever becomes of this process.
constexpr Duration kSettlingFirst = std::chrono::milliseconds(1);
constexpr Duration kSettlingLast = std::chrono::milliseconds(16);
// Looks for the use meter, as turns of an idle session.
constexpr int kLooksPerTurn = kIdleTurn / UseMeter::kPeriod;

bool begins_or_ends_contexts(std::uint16_t op) {
  return op == commands::DestroyContext::kOp || op == commands::RetainPrimary::kOp ||
         op == commands::ReleasePrimary::kOp || op == commands::ResetPrimary::kOp ||
         op == commands::DestroyGreenContext::kOp;
}

// These hold endings() instead of use().
bool ends_objects(std::uint16_t op) {
  return op == commands::UnloadModule::kOp || op == commands::UnloadLibrary::kOp ||
         begins_or_ends_contexts(op);
}

// That a host function has run is what streams wait for, and what it wrote in host memory comes
// before. They need no driver, and are never put off.
bool is_of_host_calls(std::uint16_t op) {
  return op == commands::HostCallDone::kOp || op == commands::WriteHost::kOp;
}

bool launches_graph(std::uint16_t op) {
  return op == commands::LaunchGraph::kOp || op == commands::TryLaunchGraph::kOp;
}

bool launches(std::uint16_t op) {
  return op == commands::LaunchKernel::kOp || op == commands::TryLaunchKernel::kOp ||
         launches_graph(op);
}

// These may run the driver's compiler. NVIDIA's keeps what it knows of an error by thread, and when
// calls come from changing threads, as no ordinary program's do, a text that it refuses has been
// seen to crash the process, and a link with a missing symbol to answer another error than
// natively. So one thread makes all of them.
bool compiles(std::uint16_t op) {
  return op == commands::LoadModule::kOp || op == commands::GetFunction::kOp ||
         op == commands::GetGlobal::kOp || op == commands::LoadLibrary::kOp ||
         op == commands::GetKernel::kOp || op == commands::GetKernelFunction::kOp ||
         op == commands::DescribeKernel::kOp || op == commands::LibraryKernelNames::kOp ||
         op == commands::GetLibraryModule::kOp || op == commands::GetLibraryGlobal::kOp ||
         op == commands::FindManaged::kOp || op == commands::CreateLink::kOp ||
         op == commands::AddLinkData::kOp || op == commands::CompleteLink::kOp ||
         op == commands::DestroyLink::kOp;
}

// How long what shuts the driver waits for copies to the host, whose streams may stand for a reason
// of the program's own, and how often it looks.
constexpr Duration kDeliveriesPatience = std::chrono::seconds(10);
constexpr Duration kDeliveriesPause = std::chrono::microseconds(100);

// A client that had a library loaded asks for a kernel of it next, and must not find the compiler's
// thread with another one.
constexpr Duration kAheadPause = std::chrono::microseconds(500);

// A session whose server is to be replaced is ready when it has heard nothing for so long: of a
// client that waits for an answer, which is held back, and of one that does not. How often it
// looks.
constexpr Duration kReadyHeld = std::chrono::milliseconds(2);
constexpr Duration kReadyQuiet = std::chrono::milliseconds(50);
constexpr Duration kReadyLook = std::chrono::milliseconds(1);

}  // namespace

Session::Session(const SessionParts& parts)
    : parts_(parts),
      exchange_(parts.exchange_door, parts.user),
      main_thread_(std::this_thread::get_id()) {
  moves_ = std::make_unique<Moves>(*this);
  contexts_ = std::make_unique<ContextSubjects>(*this);
  code_ = std::make_unique<CodeSubjects>(*this);
  graphs_ = std::make_unique<Graphs>(*this);
  graph_memory_ = std::make_unique<GraphMemory>(*this);
  memory_ = std::make_unique<MemorySubjects>(*this);
  compiler_.when_idle([this] { return look_ahead(); }, kAheadPause);
}

Session::~Session() {
  workers_.stop();
  compiler_.stop();
  // Requests that end unanswered have the subjects flush what they have: these must still be there.
  put_off_.clear();
  held_.clear();
  completions_.drop();
  const Lock lock(main_work_mutex_);
  main_work_.clear();
}

std::string Session::run() {
  main_thread_ = std::this_thread::get_id();
  int quiet_turns = 0;
  int looks = 0;
  bool ran = false;  // Commands, in the last turn.
  const bool glances = std::thread::hardware_concurrency() >= kCoresToGlance;
  while (true) {
    if (!put_off_.empty()) catch_up();
    // A glance tells whether a burst goes on.
    const bool goes_on = std::exchange(ran, false) && glances && in_a_burst();
    const Turn turn = goes_on ? Turn{} : begin_turn(quiet_turns);
    switch (endpoint().receive(*this, turn.deadline)) {
      case rpc::Received::kCommands:
        ran = true;
        quiet_turns = 0;
        reclaim_pause_ = kReclaimPauseMin;
        settling_pause_ = kSettlingFirst;
        break;
      case rpc::Received::kNothing:
        if (turn.handover) look_whether_ready();
        if (turn.deadline.ns != 0 && unsettled()) {
          look_whether_settled();
        } else if (turn.deadline.ns != 0 &&
                   (turn.deadline < turn.look || ++looks % kLooksPerTurn == 0)) {
          ++quiet_turns;
        }
        break;
      case rpc::Received::kWoken:
        break;
      case rpc::Received::kNoChunk:
        reclaim();
        break;
      case rpc::Received::kClosed:
        memory_->release_all();
        return endpoint().closed_in_order() ? std::string("client left")
                                            : endpoint().error().message;
    }
  }
}

// Whoever launches and waits has the next command here by now: nothing comes between the two.
bool Session::in_a_burst() const {
  return parts_.endpoint.last_sequence() - looked_after_ < kBurstCommands && put_off_.empty() &&
         !completions_.any() && !memory_->lookout.expecting();
}

Session::Turn Session::begin_turn(int quiet_turns) {
  const bool shut = driver_may_be_shut();
  bool polling = !put_off_.empty() && !memory_->lanes.awaited() && !shut;
  Instant now = clock().now();
  if (endpoint().last_sequence() != looked_after_) heard_ = now;
  if (recovery() != nullptr && recovery()->overdue(now)) {
    end("it was not made again within ten minutes");
  }
  if (!shut) {
    looked_after_ = endpoint().last_sequence();
    polling = look_after(quiet_turns == kBusyTurns) || polling;
    if (!polling && now - heard_ >= kBuffersKept) give_buffers_back();
    now = clock().now();
  }
  // After a while without commands nothing is left to look after.
  const Duration idle_turn = quiet_turns > kBusyTurns ? kQuietTurn : kIdleTurn;
  Duration length = moves_->pending() ? kMoveTurn : idle_turn;
  if (unsettled()) length = std::min(length, settling_pause_);
  Turn turn;
  turn.handover = !held_.empty() || own_usage().handover();
  if (turn.handover) length = std::min(length, kReadyLook);
  const Instant deadline = polling ? Instant{0} : now + length;
  turn.look = parts_.measured ? use_meter_.next(now) : deadline;
  turn.deadline = std::min(deadline, turn.look);
  return turn;
}

bool Session::look_after(bool quiet) {
  bool polling = false;
  own_usage().count(counters_);
  {
    const auto using_objects = use();
    if (parts_.measured) measure();
    do_main_work();
    memory_->heed_shortages(quiet);
    polling = completions_.poll();
    memory_->poll();
    graphs_->poll();
    graph_memory_->poll();
    moves_->poll();
  }
  return memory_->lookout.poll() || polling;
}

void Session::give_buffers_back() {
  if (!memory_->keeps_buffers() || memory_->deliveries.pending() != 0) return;
  const auto using_objects = use();
  // A query would end a capture.
  if (graphs_->capturing()) return;
  if (any_stream([](CUresult result) { return result == CUDA_ERROR_NOT_READY; })) return;
  memory_->give_buffers_back();
}

bool Session::unsettled() const { return parts_.marks != nullptr && parts_.marks->unsettled(); }

void Session::look_whether_settled() {
  const auto using_objects = use();
  if (save_pace_.due(clock().now()) && all_work_done() && (parts_.recovery == nullptr || save())) {
    parts_.marks->settle();
  } else {
    settling_pause_ = std::min(settling_pause_ * 2, kSettlingLast);
  }
}

bool Session::save() {
  const Instant begun = clock().now();
  const bool saved = save_all();
  save_pace_.saved(begun, clock().now());
  return saved;
}

bool Session::save_all() {
  // What the GPU wrote to its client's memory has arrived there, or the client finds out that it
  // has not.
  if (!parts_.marks->spoilt_for_good()) memory_->host_mirror.send_changes();
  worked_ = parts_.marks->take_changed() || worked_;
  if (!memory_->saved_arrays.save(worked_)) return false;
  code_->variables().save(std::exchange(worked_, false));
  graphs_->records().save();
  return true;
}

bool Session::all_work_done() {
  // A query would end a capture.
  if (graphs_->capturing()) return false;
  // What failed is not done, and the client does not know.
  if (endpoint().owes_an_error()) return false;
  return put_off_.empty() && !memory_->host_calls.under_way() &&
         memory_->deliveries.pending() == 0 && moves_->left_behind().empty() &&
         memory_->ended_streams.all_done() &&
         !any_stream([](CUresult result) { return result != CUDA_SUCCESS; });
}

void Session::measure() {
  const Instant begun = clock().now();
  if (use_meter_.next(begun) > begun) return;
  UseMeter::Seen seen;
  // A query would end a capture.
  if (!graphs_->capturing()) {
    seen.busy = any_stream([](CUresult result) { return result == CUDA_ERROR_NOT_READY; });
    seen.queued = seen.busy && memory_->depths.queued();
  }
  use_meter_.looked(begun, clock().now(), seen);
  counters_.busy_ns = static_cast<std::uint64_t>(use_meter_.busy().count());
  counters_.queued_ns = static_cast<std::uint64_t>(use_meter_.queued().count());
  own_usage().count(counters_);
}

bool Session::any_stream(bool (*is)(CUresult)) {
  for (const Handles::Entry& entry : handles_.all(wire::HandleKind::kContext)) {
    const std::uint32_t context = wire::Handle{entry.handle}.index();
    if (const CUresult entered = enter(context); entered != CUDA_SUCCESS) {
      if (is(entered)) return true;
      continue;
    }
    std::vector<CUstream> streams = contexts_->thread_streams(context);
    streams.push_back(CU_STREAM_LEGACY);
    for (const Handles::Entry& stream : handles_.all(wire::HandleKind::kStream)) {
      const auto* owner = dynamic_cast<StreamOwner*>(stream.attachment.get());
      if (owner != nullptr && owner->context() == context) streams.push_back(owner->stream());
    }
    for (CUstream stream : streams) {
      if (is(query(stream))) return true;
    }
  }
  return false;
}

CUresult Session::query(CUstream stream) {
  const CUresult result = driver().cuStreamQuery(stream);
  if (parts_.faults != nullptr) parts_.faults->see(result);
  return result;
}

void Session::on_main(std::function<void()> work) {
  {
    const Lock lock(main_work_mutex_);
    main_work_.push_back(std::move(work));
  }
  endpoint().wake();
}

void Session::do_main_work() {
  std::vector<std::function<void()>> present;
  {
    const Lock lock(main_work_mutex_);
    present.swap(main_work_);
  }
  for (const auto& work : present) work();
}

void Session::reclaim() {
  {
    const auto using_objects = use();
    memory_->reclaim();
  }
  clock().sleep_for(reclaim_pause_);
  reclaim_pause_ = std::clamp(reclaim_pause_ * 2, kReclaimPauseMin, kReclaimPauseMax);
}

Status Session::on_command(const rpc::Command& command) {
  const HandlerRow* row = find_handler(command.header.op);
  if (row == nullptr || row->run == nullptr) {
    return Error{ErrorCode::kInvalid, "unknown command " + std::to_string(command.header.op)};
  }
  if (row->waits != command.wants_reply()) {
    return Error{ErrorCode::kInvalid, std::string(row->name) + " with the wrong kind of answer"};
  }
  counters_.received_bytes += sizeof(wire::CommandHeader) + command.payload.size();
  if (parts_.recovery != nullptr && hold(command, *row)) return {};
  take(Request(*this, command), *row);
  return {};
}

void Session::take(Request&& request, const HandlerRow& row) {
  ++(row.waits ? counters_.waited : counters_.posted);
  if (launches(request.op())) {
    ++counters_.launches;
    use_meter_.launched();
  }
  if (launches_graph(request.op())) memory_->saved_arrays.touch_all();
  if (parts_.faults != nullptr) parts_.faults->before(request.sequence());
  if (parts_.marks != nullptr) parts_.marks->begin(request.sequence(), request.op());
  if (!is_of_host_calls(request.op()) && !goes_ahead(request) &&
      (must_put_off() || !fetch_block(request))) {
    endpoint().withhold(request.payload().size());
    put_off_.emplace_back(&row, std::move(request));
    return;
  }
  begin(std::move(request), row);
}

bool Session::hold(const rpc::Command& command, const HandlerRow& row) {
  const UsageSlot usage = own_usage();
  if (!usage.handover()) {
    release_held();
    return false;
  }
  // The process is killed, or is given back.
  while (!usage.busy_again()) clock().sleep_for(kReadyLook);
  if (row.waits && put_off_.empty()) {
    endpoint().withhold(command.payload.size());
    held_.emplace_back(&row, Request(*this, command));
    return true;
  }
  // Another thread of the client goes on, and the order of its commands must be kept.
  release_held();
  return false;
}

void Session::release_held() {
  while (!held_.empty()) {
    auto [row, request] = std::move(held_.front());
    held_.pop_front();
    const std::uint64_t bytes = request.payload().size();
    take(std::move(request), *row);
    // Behind that: it may be put off.
    endpoint().release(1, bytes);
  }
}

void Session::look_whether_ready() {
  const UsageSlot usage = own_usage();
  if (!usage.handover()) return release_held();
  // Else it might wait for a word in its own memory, and nobody would know.
  endpoint().demand_replies();
  const Duration quiet = held_.empty() ? kReadyQuiet : kReadyHeld;
  const Recovery* const recovery = parts_.recovery;
  if (recovery == nullptr || !recovery->may_go_on() || !put_off_.empty() || unsettled() ||
      clock().now() - heard_ < quiet) {
    return;
  }
  // In a process with another parent variables may be elsewhere.
  const auto using_objects = use();
  if (code_->variables().may_move()) usage.ready();
}

void Session::begin(Request&& request, const HandlerRow& row) {
  // As a rule handing this one on takes longer than to answer it.
  const bool quick = request.op() == commands::MemInfo::kOp && memory_->arena.settled() &&
                     !own_usage().others_leave(clock().now());
  if (row.slow && !quick) return run_slow_command(std::move(request), row.run);
  // Whoever is in the driver may be waiting for it.
  if (is_of_host_calls(request.op())) return row.run(std::move(request));
  const auto using_objects = use();
  const CUresult entered = enter(request.context());
  if (entered != CUDA_SUCCESS) {
    request.reply(entered);
  } else {
    row.run(std::move(request));
  }
}

bool Session::must_put_off() {
  return !put_off_.empty() || driver_may_be_shut() ||
         (memory_->depths.full() && memory_->host_calls.any());
}

bool Session::goes_ahead(const Request& request) const {
  return request.thread() == wire::kHostCallThread && !driver_may_be_shut() &&
         request.op() != commands::CopyBlockToDevice::kOp &&
         std::none_of(put_off_.begin(), put_off_.end(), [](const auto& item) {
           return item.second.thread() == wire::kHostCallThread;
         });
}

bool Session::driver_may_be_shut() const {
  return shutters_.load(std::memory_order_acquire) != 0 && memory_->host_calls.any();
}

void Session::await_deliveries() const {
  const Instant until = clock().now() + kDeliveriesPatience;
  while (memory_->host_calls.any() && memory_->deliveries.pending() != 0 &&
         !parts_.endpoint.closed() && clock().now() < until) {
    clock().sleep_for(kDeliveriesPause);
  }
}

bool Session::fetch_block(Request& request) {
  if (request.op() != commands::CopyBlockToDevice::kOp) return true;
  commands::CopyBlockToDevice command;
  // The handler ends the session of who sends something else, or names what will never be there.
  if (!wire::decode(request.payload(), command)) return true;
  rpc::ChunkRef block;
  const Lane::Found found = memory_->lanes.take(command.lane, command.block, command.bytes, block);
  request.set_block(std::move(block));
  return found != Lane::Found::kNotYet;
}

void Session::catch_up() {
  while (!put_off_.empty()) {
    if (driver_may_be_shut()) return;
    if (memory_->depths.full() && memory_->host_calls.any()) return;
    if (!fetch_block(put_off_.front().second)) return;
    auto [row, request] = std::move(put_off_.front());
    put_off_.pop_front();
    const std::uint64_t bytes = request.payload().size();
    begin(std::move(request), *row);
    endpoint().release(1, bytes);
  }
}

bool Session::gives_way(Request& request, std::uint64_t begun) {
  if (begun == request.begun()) return false;  // It would never get on.
  // What a host function waits for is never put off.
  if (request.thread() == wire::kHostCallThread || !memory_->depths.full_inside()) return false;
  static_cast<void>(enter(request.context()));
  if (!memory_->host_calls.any()) return false;
  const HandlerRow* const row = find_handler(request.op());
  request.set_begun(begun);
  endpoint().withhold(request.payload().size());
  put_off_.emplace_front(row, std::move(request));
  return true;
}

void Session::run_slow_command(Request&& request, void (*run)(Request)) {
  const bool ends = ends_objects(request.op());
  // Unloading waits for the GPU, but lets others into NVIDIA's driver meanwhile.
  const bool shuts = begins_or_ends_contexts(request.op()) || compiles(request.op());
  Workers& workers = compiles(request.op()) ? compiler_ : workers_;
  auto shared = std::make_shared<Request>(std::move(request));
  if (shuts) shutters_.fetch_add(1, std::memory_order_release);
  // Nobody waits for a posted one, so nothing else bounds how many wait for a worker.
  const bool posted = !shared->waits();
  const std::uint64_t bytes = shared->payload().size();
  if (posted) endpoint().withhold(bytes);
  workers.run([this, shared, run, ends, shuts, posted, bytes] {
    if (shuts) await_deliveries();
    // Natively what a program had that has ended is free.
    if (shared->op() == commands::MemInfo::kOp) MemorySubjects::await_leaving();
    {
      // Who ends objects has endings() instead.
      const auto using_objects = ends ? std::shared_lock<Gate>() : use();
      const CUresult entered = enter(shared->context());
      if (entered != CUDA_SUCCESS) {
        shared->reply(entered);
      } else {
        if (!ends && shuts) compiled_in_ = shared->context();
        run(std::move(*shared));
      }
    }
    if (posted) on_main([this, bytes] { endpoint().release(1, bytes); });
    if (!shuts) return;
    shutters_.fetch_sub(1, std::memory_order_release);
    endpoint().wake();
  });
}

bool Session::look_ahead() {
  // It may shut the driver, which is not worth it where host functions may need it.
  if (memory_->host_calls.ever()) return false;
  shutters_.fetch_add(1, std::memory_order_release);
  bool more = false;
  {
    const auto using_objects = use();
    more = enter(compiled_in_) == CUDA_SUCCESS && code_->foresight().step();
  }
  shutters_.fetch_sub(1, std::memory_order_release);
  endpoint().wake();
  return more;
}

void Session::run_slow(Request request, std::function<void(Request)> work) {
  auto shared = std::make_shared<Request>(std::move(request));
  workers_.run([this, shared, work = std::move(work)] {
    const CUresult entered = enter(shared->context());
    if (entered != CUDA_SUCCESS) {
      shared->reply(entered);
    } else {
      work(std::move(*shared));
    }
  });
}

CUresult Session::enter(std::uint32_t context) {
  const bool main = std::this_thread::get_id() == main_thread_;
  if (main && entered_.load(std::memory_order_relaxed) == context) return CUDA_SUCCESS;
  void* native = handles_.find_index(wire::HandleKind::kContext, context);
  if (native == nullptr && context != 0) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = driver().cuCtxSetCurrent(static_cast<CUcontext>(native));
  if (main) entered_.store(result == CUDA_SUCCESS ? context : kNotKnown);
  return result;
}

CUresult Session::enter_again(std::uint64_t handle) {
  const std::uint32_t context = wire::Handle{handle}.index();
  if (handles_.handle_at(wire::HandleKind::kContext, context) != handle) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return enter(context);
}

SmGrant Session::grant() const { return moves_->grant(); }

CUresult Session::ended_before(CUresult refusal) const {
  return parts_.recovery != nullptr && parts_.recovery->before() ? CUDA_SUCCESS : refusal;
}

CUstream Session::thread_stream(std::uint32_t context, std::uint32_t thread) {
  return contexts_->thread_stream(context, thread);
}

void Session::end(std::string_view reason) {
  endpoint().end(wire::EndedCode::kProtocolViolation, reason);
}

void Session::flush_before_reply() {
  for (const auto& flush : flushes_) flush();
}

}  // namespace flyt::server
