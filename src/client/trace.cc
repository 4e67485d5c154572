#include "client/trace.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"
#include "commands/ops.h"
#include "trace/recording.h"

namespace flyt::client {
namespace {

using trace::add_to;
using trace::Kind;

// Getting credits takes this long at least when it is worth telling.
constexpr std::int64_t kHeldNsMin = 10'000;

// What the calling thread's present call has done so far.
struct ThisCall {
  std::uint32_t depth = 0;
  Export which{};
  std::uint32_t thread = 0;
  std::uint64_t start_ns = 0;
  std::uint64_t sequence = 0;
  std::uint64_t commands = 0;
  std::uint64_t waits = 0;
  std::uint64_t wait_ns = 0;
  std::uint64_t held_ns = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};

constinit thread_local ThisCall this_call;
// Never taken away from threads that may be using it, but by fork(), whose child has none.
constinit std::atomic<trace::Recording*> recording{nullptr};
constinit std::atomic<bool> watches_forks{false};

std::uint64_t now_ns() { return static_cast<std::uint64_t>(system_clock().now().ns); }

std::size_t background_call() { return export_facts().size(); }

// Adds what commands have done since to the counters of one call.
void add_up(trace::CallCounters& counters, const ThisCall& done) {
  if (done.commands == 0 && done.waits == 0 && done.bytes_received == 0) return;
  add_to(counters.waits, done.waits);
  add_to(counters.wait_ns, done.wait_ns);
  trace::raise_to(counters.wait_ns_max, done.wait_ns);
  add_to(counters.held_ns, done.held_ns);
  add_to(counters.bytes_sent, done.bytes_sent);
  add_to(counters.bytes_received, done.bytes_received);
}

// Outside of the program's calls: helper threads, and functions of private tables.
void add_to_background(const ThisCall& done) {
  trace::Recording* file = recording.load(std::memory_order_acquire);
  if (file == nullptr) return;
  trace::CallCounters& counters = file->call(background_call());
  add_up(counters, done);
  if (done.commands != 0) {
    add_to(counters.kinds[static_cast<std::size_t>(Kind::kPosted)], done.commands);
  }
}

class Observer final : public rpc::CommandObserver {
 public:
  void on_command(std::uint16_t op, std::uint64_t sequence, std::size_t bytes,
                  Duration held) override {
    const auto held_ns = held.count() < kHeldNsMin ? 0 : static_cast<std::uint64_t>(held.count());
    note({.commands = 1, .held_ns = held_ns, .bytes_sent = bytes});
    if (this_call.depth != 0) this_call.sequence = sequence;
    if (trace::CommandCounters* counters = counters_of(op)) {
      add_to(counters->sent, 1);
      add_to(counters->bytes_sent, bytes);
    }
  }
  void on_answer(std::uint16_t op, std::size_t bytes, Duration waited) override {
    const auto wait_ns = static_cast<std::uint64_t>(waited.count());
    note({.waits = 1, .wait_ns = wait_ns, .bytes_received = bytes});
    if (trace::CommandCounters* counters = counters_of(op)) {
      add_to(counters->waits, 1);
      add_to(counters->wait_ns, wait_ns);
      trace::raise_to(counters->wait_ns_max, wait_ns);
      add_to(counters->bytes_received, bytes);
    }
  }
  void on_lane(std::uint64_t bytes) override { note({.bytes_sent = bytes}); }
  void on_expected(std::uint64_t bytes) override { note({.bytes_received = bytes}); }

 private:
  static void note(const ThisCall& more) {
    ThisCall& call = this_call;
    if (call.depth == 0) return add_to_background(more);
    call.commands += more.commands;
    call.waits += more.waits;
    call.wait_ns += more.wait_ns;
    call.held_ns += more.held_ns;
    call.bytes_sent += more.bytes_sent;
    call.bytes_received += more.bytes_received;
  }
  static trace::CommandCounters* counters_of(std::uint16_t op) {
    trace::Recording* file = recording.load(std::memory_order_acquire);
    return file == nullptr || op >= file->command_count() ? nullptr : &file->command(op);
  }
};

// The parent's recording stays the parent's; this process makes its own if it calls CUDA at all.
void after_fork() {
  this_call = {};
  if (trace::Recording* file = recording.exchange(nullptr)) file->abandon();
  trace_state.store(TraceState::kUnknown);
}

std::uint64_t events_wished() {
  const char* text = ::getenv("FLYT_TRACE_EVENTS");
  const std::string_view value = text == nullptr ? "" : text;
  std::uint64_t events = 0;
  std::from_chars(value.data(), value.data() + value.size(), events);
  return std::min(events, trace::kEventsMax);
}

void fill_in_names(trace::Recording& file) {
  const std::span<const ExportFacts> exports = export_facts();
  for (std::size_t i = 0; i < exports.size(); ++i) {
    trace::set_text(file.call_name(i).text, exports[i].name);
    file.call_name(i).flags = exports[i].sync_point ? trace::kSyncPoint : 0;
  }
  trace::set_text(file.call_name(exports.size()).text, "(outside of calls)");
  for (std::size_t op = 0; op < file.command_count(); ++op) {
    const auto number = static_cast<std::uint16_t>(op);
    trace::set_text(file.command_name(op).text, commands::command_name(number));
  }
}

// Null where nobody asks for it, or where it cannot be made.
trace::Recording* open_recording() {
  const char* path = ::getenv("FLYT_TRACE");
  if (path == nullptr || *path == '\0') return nullptr;
  auto file = std::make_unique<trace::Recording>();
  const auto calls = static_cast<std::uint32_t>(export_facts().size() + 1);
  const Status opened = file->open(path, {calls, commands::kOpMax + 1U, events_wished()});
  if (!opened) {
    const char* level = ::getenv("FLYT_LOG");
    Log("flyt", log_level_of(level == nullptr ? "" : level, LogLevel::kWarn))
        .warn("calls are not traced", {{"why", opened.error().message}});
    return nullptr;
  }
  fill_in_names(*file);
  trace::set_text(file->header().program, ::program_invocation_short_name);
  file->header().started_ns = file->header().ended_ns = now_ns();
  // Last: who reads before that takes it for what it is, an unfinished file.
  file->header().magic = trace::kMagic;
  return file.release();
}

// Looks at the environment, once; other threads wait meanwhile.
void find_out() {
  TraceState state = TraceState::kUnknown;
  if (!trace_state.compare_exchange_strong(state, TraceState::kOpening)) {
    while (trace_state.load() == TraceState::kOpening) trace_state.wait(TraceState::kOpening);
    return;
  }
  if (!watches_forks.exchange(true)) ::pthread_atfork(nullptr, nullptr, &after_fork);
  trace::Recording* file = open_recording();
  recording.store(file, std::memory_order_release);
  trace_state.store(file == nullptr ? TraceState::kOff : TraceState::kOn);
  trace_state.notify_all();
}

Kind kind_of(const ThisCall& call, CUresult result) {
  if (call.waits != 0) return Kind::kWaited;
  if (call.commands != 0) return Kind::kPosted;
  return result == CUDA_ERROR_NOT_SUPPORTED ? Kind::kRefused : Kind::kLocal;
}

}  // namespace

constinit std::atomic<TraceState> trace_state{TraceState::kUnknown};

TracedCall::TracedCall(Export which) {
  if (trace_state.load(std::memory_order_acquire) != TraceState::kOn) find_out();
  trace::Recording* file = recording.load(std::memory_order_acquire);
  if (file == nullptr) return;
  counted_ = true;
  if (this_call.depth++ != 0) return;
  add_to(file->call(static_cast<std::uint16_t>(which)).begun, 1);
  const std::uint32_t thread = this_call.thread;
  this_call = {.depth = 1, .which = which, .thread = thread, .start_ns = now_ns()};
  if (thread == 0) this_call.thread = static_cast<std::uint32_t>(::gettid());
}

CUresult TracedCall::end(CUresult result) {
  // A child that a call has forked begins again, at depth 0.
  if (!counted_ || this_call.depth == 0) return result;
  trace::Recording* file = recording.load(std::memory_order_acquire);
  if (--this_call.depth != 0 || file == nullptr) return result;
  const ThisCall& call = this_call;
  const std::uint64_t end_ns = now_ns();
  const std::uint64_t call_ns = end_ns - call.start_ns;
  const Kind kind = kind_of(call, result);
  const auto number = static_cast<std::uint16_t>(call.which);
  trace::CallCounters& counters = file->call(number);
  add_to(counters.kinds[static_cast<std::size_t>(kind)], 1);
  add_to(counters.call_ns, call_ns);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) add_to(counters.failed, 1);
  add_up(counters, call);
  trace::raise_to(file->header().ended_ns, end_ns);
  file->add({.start_ns = call.start_ns,
             .call_ns = call_ns,
             .wait_ns = std::min(call.wait_ns, call_ns),
             .sequence = call.sequence,
             .bytes_sent = call.bytes_sent,
             .bytes_received = call.bytes_received,
             .thread = call.thread,
             .call = number,
             .kind = kind,
             .waits = static_cast<std::uint32_t>(call.waits),
             .result = static_cast<std::int32_t>(result)});
  return result;
}

rpc::CommandObserver* trace_observer() {
  if (recording.load() == nullptr) return nullptr;
  static rpc::CommandObserver* const observer = std::make_unique<Observer>().release();
  return observer;
}

}  // namespace flyt::client
