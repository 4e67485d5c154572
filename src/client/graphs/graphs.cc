#include "client/graphs/graphs.h"

#include <algorithm>
#include <iterator>

#include "client/call.h"
#include "client/memory_state.h"
#include "client/session.h"
#include "client/streams/host_call_scope.h"

namespace flyt::client {

std::uint64_t LentRows::end() const {
  return first + (slices - 1) * slice_pitch + (rows - 1) * pitch + width;
}

bool LentRows::meet(const LentRows& other) const {
  // As a rule: row by row it may take long.
  if (end() <= other.first || other.end() <= first) return false;
  for (std::uint64_t i = 0; i < slices * rows; ++i) {
    const std::uint64_t begin = first + i / rows * slice_pitch + i % rows * pitch;
    for (std::uint64_t slice = 0; slice < other.slices; ++slice) {
      const std::uint64_t base = other.first + slice * other.slice_pitch;
      if (begin + width <= base) continue;
      // The last row that begins before the end of this one.
      const std::uint64_t before = begin + width - 1 - base;
      const std::uint64_t row =
          other.pitch == 0 ? 0 : std::min(before / other.pitch, other.rows - 1);
      if (base + row * other.pitch + other.width > begin) return true;
    }
  }
  return false;
}

LentMemory::~LentMemory() { mirror_.give_back(loan_); }

Graphs::Graphs(Session& session)
    : execs(wire::HandleKind::kGraphExec),
      user_objects(wire::HandleKind::kUserObject),
      session_(session) {}

std::uint64_t Graphs::root(std::uint64_t graph) const {
  for (auto found = around_.find(graph); found != around_.end(); found = around_.find(graph)) {
    graph = found->second;
  }
  return graph;
}

void Graphs::put_within(std::uint64_t graph, std::uint64_t around) {
  const Lock lock(mutex_);
  const std::uint64_t outer = root(around);
  if (graph == outer || around_.contains(graph)) return;
  around_[graph] = outer;
  Graph& whole = graphs_[outer];
  whole.within.insert(graph);
  // It may have been one of its own before.
  const auto own = graphs_.find(graph);
  if (own == graphs_.end()) return;
  whole.lent.merge(own->second.lent);
  whole.told.merge(own->second.told);
  whole.within.merge(own->second.within);
  graphs_.erase(own);
}

void Graphs::forget_graph(std::uint64_t graph) {
  Graph gone;  // Ends without the lock: memory that is given back waits for the server.
  const Lock lock(mutex_);
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return;
  gone = std::move(found->second);
  graphs_.erase(found);
  for (const std::uint64_t inner : gone.within) around_.erase(inner);
}

LentMemories Graphs::lent_to(std::uint64_t graph) {
  const Lock lock(mutex_);
  const auto found = graphs_.find(root(graph));
  return found == graphs_.end() ? LentMemories{} : found->second.lent;
}

std::optional<LentOrigin> Graphs::origin_of(std::uint64_t graph, std::uint64_t first) {
  for (const auto& memory : lent_to(graph)) {
    if (memory->first() == first) return memory->origin();
  }
  return std::nullopt;
}

CUresult Graphs::check_clash(const char* call, std::uint64_t graph, const LentMemories& more) {
  if (more.empty()) return CUDA_SUCCESS;
  const LentMemories there = lent_to(graph);
  for (const auto& each : more) {
    const bool clash = std::any_of(there.begin(), there.end(),
                                   [&](const auto& other) { return each->clashes(*other); });
    if (clash) {
      return refused(call,
                     "a graph writes pageable memory that another of its copies has a part of");
    }
  }
  return CUDA_SUCCESS;
}

void Graphs::lend(std::uint64_t graph, const LentMemories& memories) {
  if (memories.empty()) return;
  const Lock lock(mutex_);
  graphs_[root(graph)].lent.insert(memories.begin(), memories.end());
}

void Graphs::lend_to_exec(ExecState& exec, const LentMemories& memories) {
  if (memories.empty()) return;
  const Lock lock(mutex_);
  exec.lent.insert(memories.begin(), memories.end());
}

LentMemories Graphs::take_back(ExecState& exec) {
  const Lock lock(mutex_);
  return std::exchange(exec.lent, {});
}

void Graphs::on_context_destroyed(const ContextState& context) {
  execs.for_each([&context](std::uint64_t, ExecState& exec) {
    if (exec.accepted.load() == &context) exec.accepted.store(nullptr);
  });
}

void Graphs::note_ended(std::uint64_t exec) {
  const Lock lock(mutex_);
  if (ended_.size() == kEndedMax) ended_.pop_front();
  ended_.push_back(exec);
}

std::vector<std::uint64_t> Graphs::ended_execs() {
  const Lock lock(mutex_);
  return {ended_.begin(), ended_.end()};
}

ToldNode& Graphs::keep(std::uint64_t graph, std::uint64_t node, std::unique_ptr<ToldNode> told) {
  const Lock lock(mutex_);
  auto& kept = graphs_[root(graph)].told[node];
  const bool alike =
      kept != nullptr && kept->data == told->data && kept->function == told->function;
  if (!alike) kept = std::move(told);
  return *kept;
}

ToldFrontier& Graphs::keep(CUstream stream, std::unique_ptr<ToldFrontier> told) {
  const void* thread = stream == CU_STREAM_PER_THREAD ? &thread_state() : nullptr;
  const Lock lock(mutex_);
  auto& kept = frontiers_[{stream, thread}];
  kept = std::move(told);
  return *kept;
}

std::uint64_t Graphs::name_of(CUhostFn function, void* data) {
  const Lock lock(mutex_);
  auto& name = names_[{function, data}];
  if (name != 0) return name;
  name = session_.memory().host_calls().add_of_graphs([function, data](CUresult) {
    const HostCallScope scope(HostCall::kFunction);
    function(data);
  });
  functions_[name] = {function, data};
  return name;
}

std::pair<CUhostFn, void*> Graphs::function_of(std::uint64_t name) {
  const Lock lock(mutex_);
  const auto found = functions_.find(name);
  if (found == functions_.end()) return {nullptr, nullptr};
  return {found->second.function, found->second.data};
}

// A callback is captured with the stream that it is told of.
std::uint64_t Graphs::name_of(CUstreamCallback callback, CUstream stream, void* data) {
  return session_.memory().host_calls().add_of_graphs([=](CUresult status) {
    const HostCallScope scope(HostCall::kCallback);
    callback(stream, status, data);
  });
}

CUresult Graphs::add_memory(std::uint64_t address, std::uint64_t bytes, CUdevice device) {
  const Lock lock(mutex_);
  MemoryMap& map = session_.memory().map();
  // Where the driver gives an address again, what had it is gone.
  auto at = memory_.lower_bound(address);
  if (at != memory_.begin() && std::prev(at)->first + std::prev(at)->second > address) --at;
  while (at != memory_.end() && at->first < address + bytes) {
    static_cast<void>(map.remove(at->first, MemoryKind::kGraph));
    pages_.unmap(at->first, at->second);
    at = memory_.erase(at);
  }
  if (!pages_.map(address, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Memory memory;
  memory.kind = MemoryKind::kGraph;
  memory.base = address;
  memory.bytes = bytes;
  memory.device = device;
  if (!map.add(memory)) {
    pages_.unmap(address, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memory_[address] = bytes;
  return CUDA_SUCCESS;
}

}  // namespace flyt::client
