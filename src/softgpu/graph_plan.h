// GraphPlan: a graph made ready to run: what each step does, and what it waits for.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "softgpu/graph.h"

namespace flyt::softgpu {

// Immutable: a launch keeps the one it began with, whatever becomes of the executable graph.
// Children are flattened into it; bodies of conditional nodes are plans of their own.
class GraphPlan {
 public:
  struct Step {
    Work work;
    bool enabled = true;
    std::uint32_t waits_for = 0;         // How many steps.
    std::vector<std::uint32_t> unlocks;  // Steps that wait for it.
    std::vector<std::shared_ptr<const GraphPlan>> bodies;
  };

  // The graph has no cycles.
  static std::shared_ptr<const GraphPlan> make(const Graph& graph);

  const std::vector<Step>& steps() const { return steps_; }
  const std::map<std::uint64_t, Conditional>& conditionals() const { return conditionals_; }
  // Contexts that its steps run in, those of bodies too.
  const std::vector<std::uint64_t>& contexts() const { return contexts_; }
  // What its steps allocate, those of bodies too.
  const std::vector<std::shared_ptr<GraphAllocation>>& allocations() const { return allocations_; }
  // Addresses that its steps free.
  const std::vector<std::uint64_t>& frees() const { return frees_; }

 private:
  struct Ends {
    std::vector<std::uint32_t> first;
    std::vector<std::uint32_t> last;
  };
  Ends add(const Graph& graph);
  std::uint32_t add_step(const Work& work, bool enabled);
  void link(std::uint32_t from, std::uint32_t to);
  void note_context(std::uint64_t context);

  std::vector<Step> steps_;  // In an order in which they could run one after the other.
  std::map<std::uint64_t, Conditional> conditionals_;
  std::vector<std::uint64_t> contexts_;
  std::vector<std::shared_ptr<GraphAllocation>> allocations_;
  std::vector<std::uint64_t> frees_;
};

// One launch of a plan. Made by the launching call, run by the stream.
class GraphRun {
 public:
  // Events that the graph records count as recorded from now on, and not as reached; waits are
  // for what was recorded before. `contexts`: those that the plan names.
  GraphRun(Driver& driver, std::shared_ptr<const GraphPlan> plan, std::shared_ptr<Context> stream,
           std::map<std::uint64_t, std::shared_ptr<Context>> contexts);
  // `what` lives until the launch is done.
  void keep(std::shared_ptr<const void> what) { kept_ = std::move(what); }
  // Is freed before anything is done.
  void free_first(std::vector<std::uint64_t> addresses) { free_first_ = std::move(addresses); }

  // Runs all of it; comes back when everything is done. After an error of a context only what
  // others rely on happens there.
  void run();

  const GraphPlan& plan() const { return *plan_; }

 private:
  struct Progress;

  void run_plan(const GraphPlan& plan);
  void work(const std::shared_ptr<Progress>& progress, std::uint32_t index);
  void run_step(const GraphPlan& plan, std::uint32_t index);
  void run_conditional(const GraphPlan::Step& step, const ConditionalWork& work);
  Context& context_of(std::uint64_t handle) const;
  bool well(std::uint64_t context) const;
  void run_kernel(const KernelWork& work);
  void run_host(const HostWork& work) const;
  void run_alloc(const AllocWork& work) const;
  void run_free(const FreeWork& work) const;
  bool set_conditional(std::uint64_t handle, std::uint32_t value);

  Driver& driver_;
  const std::shared_ptr<const GraphPlan> plan_;
  const std::shared_ptr<Context> context_;  // The launching stream's.
  const std::map<std::uint64_t, std::shared_ptr<Context>> contexts_;
  std::map<std::uint64_t, std::atomic<std::uint32_t>> conditionals_;  // Fixed keys.
  std::map<std::uint32_t, std::shared_ptr<Recording>> records_;       // By step of the plan.
  std::map<std::uint32_t, std::shared_ptr<Recording>> waits_;
  std::shared_ptr<const void> kept_;
  std::vector<std::uint64_t> free_first_;
};

}  // namespace flyt::softgpu
