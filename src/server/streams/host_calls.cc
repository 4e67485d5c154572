// HostCalls: host functions and callbacks of the client, at their place in its streams.
#include "server/streams/host_calls.h"

#include <array>

#include "base/bytes.h"
#include "server/memory_subjects.h"
#include "server/session.h"
#include "wire/graphs.h"

namespace flyt::server {

HostCalls::HostCalls(Session& session)
    : driver_(session.driver()), shared_(std::make_shared<Shared>()) {
  const Lock lock(shared_->mutex);
  shared_->session = &session;
}

CUresult HostCalls::enqueue(CUstream stream, Kind kind, std::uint64_t token,
                            std::uint64_t sequence) {
  ever_.store(true, std::memory_order_relaxed);
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
  reached(*owned->shared, owned->token, owned->sequence, CUDA_SUCCESS);
}

void HostCalls::run_callback(CUstream, CUresult status, void* entry) {
  const std::unique_ptr<Entry> owned(static_cast<Entry*>(entry));
  reached(*owned->shared, owned->token, owned->sequence, status);
}

void* HostCalls::graph_function(std::uint64_t name) {
  if (name == 0) return nullptr;
  auto& function = functions_[name];
  if (function == nullptr) {
    if (functions_.size() > kGraphFunctionsMax) {
      functions_.erase(name);
      return nullptr;
    }
    function = std::make_unique<GraphFunction>(GraphFunction{shared_, name, 0});
    function_entries_.insert(function.get());
    in_graphs_.store(true, std::memory_order_relaxed);
    ever_.store(true, std::memory_order_relaxed);
  }
  return function.get();
}

std::uint64_t HostCalls::name_of(const void* graph_function) const {
  return function_entries_.contains(graph_function)
             ? static_cast<const GraphFunction*>(graph_function)->name
             : 0;
}

void HostCalls::run_graph_function(void* entry) {
  run_of_graph(*static_cast<const GraphFunction*>(entry), CUDA_SUCCESS);
}

void HostCalls::run_graph_callback(CUstream, CUresult status, void* entry) {
  run_of_graph(*static_cast<const GraphFunction*>(entry), status);
}

void HostCalls::run_of_graph(const GraphFunction& function, CUresult status) {
  Shared& shared = *function.shared;
  std::uint64_t run = 0;
  {
    const Lock lock(shared.mutex);
    run = wire::kGraphRun | ++shared.runs;
  }
  reached(shared, run, 0, status, function.name);
}

void* HostCalls::destructor(std::uint64_t function, std::uint64_t object) {
  return std::make_unique<GraphFunction>(GraphFunction{shared_, function, object}).release();
}

void HostCalls::release_destructor(void* entry) {
  const std::unique_ptr<GraphFunction> owned(static_cast<GraphFunction*>(entry));
}

void HostCalls::run_destructor(void* entry) {
  const std::unique_ptr<GraphFunction> owned(static_cast<GraphFunction*>(entry));
  const Lock lock(owned->shared->mutex);
  if (owned->shared->session == nullptr) return;
  Session& session = *owned->shared->session;
  session.handles().drop(wire::HandleKind::kUserObject, owned->object);
  session.workers().run([&session, name = owned->name] {
    tell_client(session, wire::kGraphRun, 0, CUDA_SUCCESS, name);
  });
}

void HostCalls::reached(Shared& shared, std::uint64_t token, std::uint64_t sequence,
                        CUresult status, std::uint64_t function) {
  const Lock lock(shared.mutex);
  if (shared.session != nullptr) {
    shared.calls[token] = true;
    Session& session = *shared.session;
    // The driver allows no call of its own in here, and copies that the client must see first are
    // looked for with such calls; so a worker does it.
    session.workers().run([&session, token, sequence, status, function] {
      tell_client(session, token, sequence, status, function);
    });
  }
  while (shared.session != nullptr && shared.calls.contains(token)) {
    shared.changed.wait(shared.mutex);
  }
}

void HostCalls::tell_client(Session& session, std::uint64_t token, std::uint64_t sequence,
                            CUresult status, std::uint64_t function) {
  session.flush_before_reply();
  session.memory().host_mirror.send_changes();
  std::array<std::byte, sizeof(std::uint32_t) + sizeof(std::uint64_t)> payload;
  Writer writer(payload);
  writer.write(static_cast<std::uint32_t>(status));
  if (function != 0) writer.write(function);
  session.endpoint().push_host_call(sequence, token, Bytes(payload).first(writer.used()));
}

bool HostCalls::done(std::uint64_t token) {
  const Lock lock(shared_->mutex);
  const auto found = shared_->calls.find(token);
  if (found == shared_->calls.end() || !found->second) return false;
  shared_->calls.erase(found);
  shared_->changed.notify_all();
  return true;
}

// A graph that has been launched may come to a function of the client's at any time.
bool HostCalls::any() const { return in_graphs_.load(std::memory_order_relaxed) || under_way(); }

bool HostCalls::under_way() const {
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
