// HostCalls: host functions and callbacks of the client, at their place in its streams.
#include "server/host_calls.h"

#include <array>

#include "base/bytes.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server {

HostCalls::HostCalls(Session& session)
    : driver_(session.driver()), shared_(std::make_shared<Shared>()) {
  const Lock lock(shared_->mutex);
  shared_->session = &session;
}

CUresult HostCalls::enqueue(CUstream stream, Kind kind, std::uint64_t token,
                            std::uint64_t sequence) {
  {
    const Lock lock(shared_->mutex);
    if (shared_->calls.size() >= kCallsMax) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!shared_->calls.emplace(token, false).second) return CUDA_ERROR_INVALID_HANDLE;
  }
  auto entry = std::make_unique<Entry>(Entry{shared_, token, sequence});
  const CUresult result = kind == Kind::kFunction
                              ? driver_.cuLaunchHostFunc(stream, &run_function, entry.get())
                              : driver_.cuStreamAddCallback(stream, &run_callback, entry.get(), 0);
  if (result == CUDA_SUCCESS) {
    static_cast<void>(entry.release());
    return result;
  }
  const Lock lock(shared_->mutex);
  shared_->calls.erase(token);
  return result;
}

void HostCalls::run_function(void* entry) {
  const std::unique_ptr<Entry> owned(static_cast<Entry*>(entry));
  reached(*owned, CUDA_SUCCESS);
}

void HostCalls::run_callback(CUstream, CUresult status, void* entry) {
  const std::unique_ptr<Entry> owned(static_cast<Entry*>(entry));
  reached(*owned, status);
}

void HostCalls::reached(const Entry& entry, CUresult status) {
  Shared& shared = *entry.shared;
  const std::uint64_t token = entry.token;
  const Lock lock(shared.mutex);
  if (shared.session != nullptr) {
    shared.calls[token] = true;
    Session& session = *shared.session;
    // The driver allows no call of its own in here, and copies that the client must see first are
    // looked for with such calls; so a worker does it.
    session.workers().run([&session, token, sequence = entry.sequence, status] {
      tell_client(session, token, sequence, status);
    });
  }
  while (shared.session != nullptr && shared.calls.contains(token)) {
    shared.changed.wait(shared.mutex);
  }
}

void HostCalls::tell_client(Session& session, std::uint64_t token, std::uint64_t sequence,
                            CUresult status) {
  session.flush_before_reply();
  session.memory().host_mirror.send_changes();
  std::array<std::byte, sizeof(std::uint32_t)> payload;
  Writer writer(payload);
  writer.write(static_cast<std::uint32_t>(status));
  session.endpoint().push_host_call(sequence, token, payload);
}

bool HostCalls::done(std::uint64_t token) {
  const Lock lock(shared_->mutex);
  const auto found = shared_->calls.find(token);
  if (found == shared_->calls.end() || !found->second) return false;
  shared_->calls.erase(found);
  shared_->changed.notify_all();
  return true;
}

bool HostCalls::any() const {
  const Lock lock(shared_->mutex);
  return !shared_->calls.empty();
}

void HostCalls::release_all() {
  const Lock lock(shared_->mutex);
  shared_->session = nullptr;
  shared_->calls.clear();
  shared_->changed.notify_all();
}

}  // namespace flyt::server
