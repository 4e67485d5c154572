// HostCallBook: the program's host functions and callbacks, and which of them are due.
#include "client/streams/host_call_book.h"

#include "base/assert.h"

namespace flyt::client {

std::uint64_t HostCallBook::add(Body body, unsigned times) {
  waiting_.emplace(next_, Call{.body = std::move(body), .times = times});
  return next_++;
}

std::uint64_t HostCallBook::add_of_graphs(Body body, bool once) {
  of_graphs_.emplace(next_, Call{.body = std::move(body), .once = once});
  return next_++;
}

HostCallBook::Call* HostCallBook::find(const Ready& ready) {
  auto& calls = ready.name != 0 ? of_graphs_ : waiting_;
  const auto found = calls.find(ready.name != 0 ? ready.name : ready.token);
  return found == calls.end() ? nullptr : &found->second;
}

bool HostCallBook::reached(const Ready& ready) {
  Call* const call = find(ready);
  if (call == nullptr) return true;
  const bool comes_once = ready.name == 0 || call->once;
  if (comes_once && std::exchange(call->reached, true)) return true;
  if (due_.size() >= wire::kHostCallsMax) return false;
  due_.push_back(ready);
  return true;
}

std::pair<HostCallBook::Ready, HostCallBook::Call> HostCallBook::take() {
  FLYT_ASSERT(any_due());
  const Ready ready = due_.front();
  due_.pop_front();
  Call* const found = find(ready);
  if (found == nullptr) return {ready, {}};
  if (ready.name != 0 && !found->once) return {ready, *found};
  Call call = std::move(*found);
  if (ready.name != 0) {
    of_graphs_.erase(ready.name);
  } else {
    waiting_.erase(ready.token);
  }
  return {ready, std::move(call)};
}

std::size_t HostCallBook::forget_all() {
  due_.clear();
  for (auto& [name, call] : of_graphs_) call.reached = false;
  const std::size_t waited = waiting_.size();
  waiting_.clear();
  return waited;
}

}  // namespace flyt::client
