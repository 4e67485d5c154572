#include "client/current.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "client/context.h"
#include "client/provision.h"
#include "client/session.h"
#include "client/settings.h"
#include "client/trace.h"
#include "rpc/futex.h"

namespace flyt::client {
namespace {

// Native waits spin too, until what they wait for has come. To be woken takes 100 us and more.
constexpr Duration kReplySpin = std::chrono::milliseconds(20);

constinit std::atomic<Session*> process_session{nullptr};
// A child of fork() cannot use CUDA if its parent did, as natively.
constinit std::atomic<bool> forked{false};
// Held while a session is opened.
constinit std::atomic_flag opening = ATOMIC_FLAG_INIT;
constinit std::atomic<bool> watches_forks{false};

constinit thread_local ThreadState this_thread;
constinit thread_local Session* scoped_session = nullptr;

// Runs in the child, where no other thread exists: none opens a session any more, and this one is
// in no host function that it could return from.
void after_fork() {
  opening.clear();
  scoped_session = nullptr;
  Session* session = process_session.exchange(nullptr);
  if (session == nullptr) return;
  forked.store(true);
  session->abandon_after_fork();
}

// One line of JSON behind what FLYT_STATS names: how often this process posted and waited.
void write_statistics() {
  Session* session = process_session.load();
  if (session == nullptr) return;
  const rpc::ChannelCounters counters = session->channel().counters();
  const std::string line = "{\"posted\":" + std::to_string(counters.commands - counters.calls) +
                           ",\"waited\":" + std::to_string(counters.calls) + "}\n";
  const Fd file(::open(::getenv("FLYT_STATS"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  // Nobody can be told at exit.
  [[maybe_unused]] const ssize_t written = ::write(file.get(), line.data(), line.size());
}

CUresult error_of_refusal(ErrorCode why) {
  if (why == ErrorCode::kUnsupported) return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  // As natively where MPS has no room for another process.
  return why == ErrorCode::kLimit ? CUDA_ERROR_MPS_MAX_CLIENTS_REACHED
                                  : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

CUresult open_session() {
  const LogLevel level = log_level();
  const Log log("flyt", level);
  auto provision = find_provision(log);
  if (!provision) {
    const ErrorCode code = provision.error().code;
    return code == ErrorCode::kNotFound || code == ErrorCode::kDenied
               ? CUDA_ERROR_NO_DEVICE
               : CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  if (!watches_forks.exchange(true)) ::pthread_atfork(nullptr, nullptr, &after_fork);
  SessionOptions options;
  options.connect_timeout = connect_timeout();
  options.recovery_patience = recovery_patience();
  options.log_level = level;
  options.fence_patience = fence_patience(rpc::spin_on(4, kReplySpin));
  options.channel.reply_spin = kReplySpin;
  options.channel.observer = trace_observer();
  const auto open = [&]() -> Result<std::unique_ptr<Session>> {
    options.url = provision->url;
    options.credential = provision->credential;
    return Session::open(options);
  };
  auto session = open();
  while (!session && find_anew(*provision, session.error(), log)) session = open();
  if (!session) {
    log.warn("no session with the GPU server",
             {{"url", provision->url}, {"why", session.error().message}});
    return error_of_refusal(session.error().code);
  }
  const CUresult result =
      session.value()->devices().count() == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return result;
  session.value()->keep(std::move(provision->desk));
  process_session.store(session.value().release());
  if (!environment("FLYT_STATS").empty()) std::atexit(&write_statistics);
  return result;
}

}  // namespace

Session* current_session() {
  Session* scoped = scoped_session;
  return scoped != nullptr ? scoped : process_session.load(std::memory_order_acquire);
}

CUresult start_session() {
  if (Session* session = current_session(); session != nullptr) {
    // In a host function nobody may wait until a session goes on.
    return this_thread.host_call == HostCall::kNone ? session->health() : CUDA_SUCCESS;
  }
  if (forked.load()) return CUDA_ERROR_NOT_INITIALIZED;
  while (opening.test_and_set(std::memory_order_acquire)) opening.wait(true);
  const CUresult result = current_session() != nullptr ? CUDA_SUCCESS : open_session();
  opening.clear(std::memory_order_release);
  opening.notify_one();
  return result;
}

SessionScope::SessionScope(Session* session) : before_(scoped_session) { scoped_session = session; }

SessionScope::~SessionScope() { scoped_session = before_; }

ThreadState& thread_state() { return this_thread; }

}  // namespace flyt::client
