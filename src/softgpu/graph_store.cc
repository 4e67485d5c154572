#include "softgpu/graph_store.h"

#include "softgpu/capture.h"
#include "softgpu/graph.h"
#include "softgpu/graph_exec.h"
#include "softgpu/user_object.h"

namespace flyt::softgpu {

GraphStore::GraphStore()
    : graphs_(HandleKind::kGraph),
      nodes_(HandleKind::kGraphNode),
      execs_(HandleKind::kGraphExec),
      objects_(HandleKind::kUserObject) {}

void GraphStore::remove(const Capture* capture) {
  std::erase_if(captures_, [capture](const auto& each) { return each.get() == capture; });
  capturing_.store(captures_.size(), std::memory_order_release);
}

}  // namespace flyt::softgpu
