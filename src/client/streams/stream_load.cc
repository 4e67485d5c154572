#include "client/streams/stream_load.h"

#include <algorithm>

#include "base/clock.h"
#include "client/call.h"
#include "client/memory_state.h"
#include "client/session.h"
#include "commands/stream.h"
#include "rpc/channel.h"

namespace flyt::client {
namespace {

// How often somebody who waits looks: in proportion to how long he has waited. There is work for
// the GPU left while he sleeps.
constexpr Duration kPauseMin = std::chrono::microseconds(20);
constexpr Duration kPauseMax = std::chrono::microseconds(500);
constexpr int kPausesInTime = 16;

}  // namespace

void StreamLoad::note_done(std::uint64_t given) {
  std::uint64_t done = done_.load(std::memory_order_relaxed);
  while (done < given && !done_.compare_exchange_weak(done, given, std::memory_order_relaxed)) {
  }
}

void StreamLoad::reset() {
  const Lock lock(mutex_);
  token_ = 0;
  note_done(given());
}

bool StreamLoads::passed(std::uint64_t token) {
  session_.channel().take_in();
  const Lock lock(mutex_);
  return std::find(pending_.begin(), pending_.end(), token) == pending_.end();
}

bool StreamLoads::on_completed(std::uint64_t token) {
  if (token < kFirstToken) return false;
  const Lock lock(mutex_);
  std::replace(pending_.begin(), pending_.end(), token, std::uint64_t{0});
  return true;
}

void StreamLoads::forget_all() {
  const Lock lock(mutex_);
  pending_.fill(0);
}

// What ends the session or the context ends the wait, and is told by what the thread sends next.
void StreamLoads::wait_for(std::uint64_t token) {
  const Instant since = system_clock().now();
  const ContextState& home = *context().home;
  while (!passed(token) && !session_.channel().lost() && home.sticky.load() == 0 &&
         home.live.load() != 0) {
    const Duration waited = system_clock().now() - since;
    system_clock().sleep_for(std::clamp<Duration>(waited / kPausesInTime, kPauseMin, kPauseMax));
  }
  session_.channel().note_wait(commands::MarkStream::kOp, since);
}

StreamLoad& StreamLoads::of_thread() {
  ThreadState& thread = thread_state();
  const std::uint64_t in_context = context().handle;
  OwnLoad& own = thread.own_load;
  if (own.loads == this && own.context == in_context) return *own.load;
  const Lock lock(mutex_);
  // Those of contexts that are gone among them.
  std::erase_if(of_threads_, [&](const auto& item) {
    return item.first.first == &thread && item.second->outstanding() == 0;
  });
  std::unique_ptr<StreamLoad>& load = of_threads_[{&thread, in_context}];
  if (load == nullptr) load = std::make_unique<StreamLoad>();
  own = {.loads = this, .context = in_context, .load = load.get()};
  return *load;
}

void StreamLoads::on_thread_ends(const void* thread) {
  thread_state().own_load = {};
  const Lock lock(mutex_);
  std::erase_if(of_threads_, [&](const auto& item) { return item.first.first == thread; });
}

void StreamLoads::on_context_destroyed(std::uint64_t context) {
  const Lock lock(mutex_);
  for (const auto& [owner, load] : of_threads_) {
    if (owner.second == context) load->note_done(load->given());
  }
}

// What is wrong with it is told by what the thread sends next.
void StreamLoads::wait_for_all(CUstream stream, StreamLoad& load) {
  const std::uint64_t given = load.given();
  commands::StreamSynchronize::Reply reply;
  rpc::Reply answer;
  static_cast<void>(session_.ask(commands::StreamSynchronize{.stream = stream}, reply, answer));
  load.note_done(given);
}

void StreamLoads::put_mark(CUstream stream, StreamLoad& load) {
  {
    const Lock lock(mutex_);
    const auto free = std::find(pending_.begin(), pending_.end(), 0);
    if (free == pending_.end()) return;
    *free = load.token_ = next_++;
  }
  load.marked_ = load.given();
  if (session_.post(commands::MarkStream{.stream = stream, .token = load.token_}) != CUDA_SUCCESS) {
    on_completed(load.token_);
  }
}

void StreamLoads::limit(CUstream stream, StreamLoad& load) {
  load.due_.store(load.given() + StreamLoad::kLookEvery, std::memory_order_relaxed);
  if (load.outstanding() < StreamLoad::kMarked) return;
  // Whoever sends for the program's host functions is who streams stand for; what is captured does
  // not wait in its stream.
  if (rpc::KeptCredits::used() || session_.captures().any() ||
      session_.channel().welcome().highest_op < commands::MarkStream::kOp) {
    return;
  }
  // Others who add to this stream wait with this thread.
  const Lock lock(load.mutex_);
  if (load.token_ != 0) {
    if (!passed(load.token_)) {
      if (load.outstanding() < StreamLoad::kMost) return;
      wait_for(load.token_);
    }
    load.note_done(load.marked_);
    load.token_ = 0;
  }
  if (load.outstanding() < StreamLoad::kMarked) return;
  put_mark(stream, load);
  if (load.token_ == 0 && load.outstanding() >= StreamLoad::kMost) wait_for_all(stream, load);
}

void give_work(CUstream stream) {
  StreamLoad* const load = load_of(stream);
  if (load != nullptr && load->add()) session().memory().loads().limit(stream, *load);
}

StreamLoad* load_of(CUstream stream) {
  if (stream == CU_STREAM_LEGACY) return &context().home->legacy_load;
  if (stream == CU_STREAM_PER_THREAD) return &session().memory().loads().of_thread();
  StreamState* const state = session().memory().streams.find(address_of(stream));
  return state == nullptr ? nullptr : &state->load;
}

}  // namespace flyt::client
