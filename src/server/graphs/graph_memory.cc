#include "server/graphs/graph_memory.h"

#include <algorithm>
#include <iterator>

#include "server/graphs/graphs.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server {
namespace {

constexpr Duration kCountAgain = std::chrono::milliseconds(100);

}  // namespace

CUresult GraphMemory::reserve(CUdevice device, std::uint64_t bytes, UsedMemory& charge) {
  // Without a quota what the driver has reserved is told, and no more.
  if (own_usage().quota().limit == 0) {
    charge = UsedMemory(device, 0);
    return CUDA_SUCCESS;
  }
  if (charge.reserve(device, bytes)) return CUDA_SUCCESS;
  session_.memory().drop_idle(device);
  return charge.reserve(device, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void GraphMemory::add(std::uint64_t address, std::uint64_t bytes, std::uint64_t graph,
                      UsedMemory charge) {
  const CUdevice device = charge.device();
  session_.graphs().note_memory_node();
  {
    const Lock lock(mutex_);
    reserved_.try_emplace(device, device, 0);
  }
  // What the driver gives out again was free.
  auto at = ranges_.lower_bound(address);
  if (at != ranges_.begin() && std::prev(at)->first + std::prev(at)->second.bytes > address) --at;
  while (at != ranges_.end() && at->first < address + bytes) {
    session_.regions().remove(at->first);
    at = ranges_.erase(at);
  }
  ranges_[address] = {bytes, graph, {}, std::move(charge)};
  session_.regions().add({address, bytes, Regions::Kind::kDevice});
  note_charges();
}

void GraphMemory::add_exec(std::uint64_t graph, std::uint64_t exec) {
  const std::uint64_t root = session_.graphs().root(graph);
  for (auto& [address, range] : ranges_) {
    if (session_.graphs().root(range.graph) == root) range.execs.insert(exec);
  }
}

bool GraphMemory::in_use(const Range& range) const {
  if (session_.graphs().graph(range.graph) != nullptr) return true;
  return std::any_of(range.execs.begin(), range.execs.end(), [this](std::uint64_t exec) {
    return session_.handles().find(wire::HandleKind::kGraphExec, exec) != nullptr;
  });
}

// What the last launch has left allocated is the program's still: the driver knows it.
void GraphMemory::sweep() {
  std::set<CUdevice> freed;
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    unsigned int type = 0;
    const bool kept = in_use(at->second) ||
                      (session_.driver().cuPointerGetAttribute(
                           &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at->first) == CUDA_SUCCESS &&
                       type == CU_MEMORYTYPE_DEVICE);
    if (kept) {
      ++at;
      continue;
    }
    session_.regions().remove(at->first);
    freed.insert(at->second.charge.device());
    at = ranges_.erase(at);
  }
  note_charges();
  // The driver would keep the memory for graphs to come, where the lease does not count it.
  if (own_usage().quota().limit != 0 && session_.driver().cuDeviceGraphMemTrim != nullptr) {
    for (const CUdevice device : freed) session_.driver().cuDeviceGraphMemTrim(device);
  }
  if (session_.graphs().has_memory_nodes()) count();
}

void GraphMemory::note_charges() {
  const Lock lock(mutex_);
  charged_.clear();
  for (const auto& [address, range] : ranges_) {
    charged_[range.charge.device()] += range.charge.bytes();
  }
}

// Nodes have been charged for what they allocate; the driver may have reserved more.
void GraphMemory::count() {
  const Lock lock(mutex_);
  const driver::Table& driver = session_.driver();
  if (driver.cuDeviceGetGraphMemAttribute == nullptr) return;
  for (auto& [device, memory] : reserved_) {
    cuuint64_t bytes = 0;
    const CUresult result =
        driver.cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
    if (result == CUDA_SUCCESS)
      memory.resize(bytes - std::min<cuuint64_t>(bytes, charged_[device]));
  }
}

void GraphMemory::poll() {
  if (!session_.graphs().has_memory_nodes()) return;
  const Instant now = session_.clock().now();
  if (now - counted_ < kCountAgain) return;
  counted_ = now;
  count();
}

}  // namespace flyt::server
