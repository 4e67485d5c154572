// GraphStore: the graphs of the process, what was made of them, and the captures that go on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "softgpu/handle_table.h"

namespace flyt::softgpu {

class Graph;
class GraphExec;
class UserObject;
struct Capture;
struct GraphNode;

// Graphs are not safe from several threads, as CUDA says. One lock around every call that touches
// one keeps careless programs harmless; nothing waits and no code of the program runs under it.
class GraphStore {
 public:
  GraphStore();

  Mutex& mutex() RETURN_CAPABILITY(mutex_) { return mutex_; }

  HandleTable<Graph>& graphs() { return graphs_; }
  HandleTable<GraphNode>& nodes() { return nodes_; }
  HandleTable<GraphExec>& execs() { return execs_; }
  HandleTable<UserObject>& objects() { return objects_; }

  // Does any capture go on? Most calls ask nothing else.
  bool capturing() const { return capturing_.load(std::memory_order_acquire) != 0; }
  const std::vector<std::shared_ptr<Capture>>& captures() const REQUIRES(mutex_) {
    return captures_;
  }
  void add(std::shared_ptr<Capture> capture) REQUIRES(mutex_) {
    captures_.push_back(std::move(capture));
    capturing_.store(captures_.size(), std::memory_order_release);
  }
  void remove(const Capture* capture) REQUIRES(mutex_);
  std::uint64_t next_capture() REQUIRES(mutex_) { return ++last_capture_; }
  // Inside with_graph(), where clang does not see that the mutex is held.
  std::uint64_t next_conditional_inside() NO_THREAD_SAFETY_ANALYSIS { return next_conditional(); }
  std::uint64_t next_conditional() REQUIRES(mutex_) { return ++last_conditional_; }

 private:
  Mutex mutex_;
  HandleTable<Graph> graphs_;
  HandleTable<GraphNode> nodes_;
  HandleTable<GraphExec> execs_;
  HandleTable<UserObject> objects_;
  std::vector<std::shared_ptr<Capture>> captures_ GUARDED_BY(mutex_);
  std::atomic<std::size_t> capturing_{0};
  std::uint64_t last_capture_ GUARDED_BY(mutex_) = 0;
  std::uint64_t last_conditional_ GUARDED_BY(mutex_) = 0;
};

}  // namespace flyt::softgpu
