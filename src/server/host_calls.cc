// HostCalls: host functions and callbacks of the client, at their place in its streams.
#include "server/host_calls.h"

#include <array>
#include <utility>

#include "base/bytes.h"
#include "server/session.h"

namespace flyt::server {

CUresult HostCalls::enqueue(CUstream stream, Kind kind, std::uint64_t token,
                            std::uint64_t sequence) {
  Entry* entry = nullptr;
  {
    const Lock lock(mutex_);
    const auto [at, inserted] = entries_.emplace(token, std::make_unique<Entry>());
    if (!inserted) return CUDA_ERROR_INVALID_HANDLE;
    entry = at->second.get();
    *entry = Entry{this, token, sequence};
  }
  const CUresult result =
      kind == Kind::kFunction
          ? session_.driver().cuLaunchHostFunc(stream, &run_function, entry)
          : session_.driver().cuStreamAddCallback(stream, &run_callback, entry, 0);
  if (result == CUDA_SUCCESS) return result;
  const Lock lock(mutex_);
  entries_.erase(token);
  return result;
}

void HostCalls::run_function(void* entry) {
  Entry& reached = *static_cast<Entry*>(entry);
  reached.owner->reached(reached);
}

void HostCalls::run_callback(CUstream, CUresult status, void* entry) {
  Entry& reached = *static_cast<Entry*>(entry);
  reached.status = status;
  reached.owner->reached(reached);
}

void HostCalls::reached(Entry& entry) {
  const Lock lock(mutex_);
  if (!released_) {
    entry.running = true;
    // The driver allows no call of its own in here, and copies that the client must see first are
    // looked for with such calls; so a worker does it.
    session_.workers().run([this, token = entry.token, sequence = entry.sequence,
                            status = entry.status] { tell_client(token, sequence, status); });
  }
  while (!entry.done && !released_) changed_.wait(mutex_);
  entries_.erase(entry.token);
}

void HostCalls::tell_client(std::uint64_t token, std::uint64_t sequence, CUresult status) {
  session_.flush_before_reply();
  std::array<std::byte, sizeof(std::uint32_t)> payload;
  Writer writer(payload);
  writer.write(static_cast<std::uint32_t>(status));
  session_.endpoint().push_host_call(sequence, token, payload);
}

bool HostCalls::done(std::uint64_t token) {
  const Lock lock(mutex_);
  const auto found = entries_.find(token);
  if (found == entries_.end() || !found->second->running) return false;
  found->second->done = true;
  changed_.notify_all();
  return true;
}

bool HostCalls::any() const {
  const Lock lock(mutex_);
  return !entries_.empty();
}

void HostCalls::release_all() {
  const Lock lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

}  // namespace flyt::server
