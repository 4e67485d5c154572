#include "softgpu/graph_plan.h"

#include <algorithm>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "softgpu/current.h"

namespace flyt::softgpu {
std::shared_ptr<const GraphPlan> GraphPlan::make(const Graph& graph) {
  const auto plan = std::make_shared<GraphPlan>();
  plan->add(graph);
  return plan;
}

std::uint32_t GraphPlan::add_step(const Work& work, bool enabled) {
  Step step;
  step.work = work;
  step.enabled = enabled;
  note_context(context_of_work(work));
  if (const auto* alloc = std::get_if<AllocWork>(&work)) allocations_.push_back(alloc->allocation);
  if (const auto* free = std::get_if<FreeWork>(&work)) frees_.push_back(free->address);
  if (auto* conditional = std::get_if<ConditionalWork>(&step.work)) {
    for (const auto& body : conditional->bodies) {
      auto plan = make(*body);
      for (const std::uint64_t context : plan->contexts()) note_context(context);
      allocations_.insert(allocations_.end(), plan->allocations().begin(),
                          plan->allocations().end());
      conditionals_.insert(plan->conditionals().begin(), plan->conditionals().end());
      step.bodies.push_back(std::move(plan));
    }
    conditional->bodies.clear();
  }
  steps_.push_back(std::move(step));
  return static_cast<std::uint32_t>(steps_.size() - 1);
}

void GraphPlan::link(std::uint32_t from, std::uint32_t to) {
  steps_[from].unlocks.push_back(to);
  ++steps_[to].waits_for;
}

void GraphPlan::note_context(std::uint64_t context) {
  if (context == 0 || std::count(contexts_.begin(), contexts_.end(), context) != 0) return;
  contexts_.push_back(context);
}

GraphPlan::Ends GraphPlan::add(const Graph& graph) {
  conditionals_.insert(graph.conditionals().begin(), graph.conditionals().end());
  Ends ends;
  // The first and the last step of each node: a child's stand between an entry and an exit.
  std::unordered_map<const GraphNode*, std::pair<std::uint32_t, std::uint32_t>> steps;
  for (const GraphNode* node : graph.order()) {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    if (const auto* child = std::get_if<ChildWork>(&node->work)) {
      first = add_step(EmptyWork{}, true);
      const Ends inner = add(*child->graph);
      last = add_step(EmptyWork{}, true);
      for (const std::uint32_t step : inner.first) link(first, step);
      for (const std::uint32_t step : inner.last) link(step, last);
      if (inner.first.empty()) link(first, last);
    } else {
      first = last = add_step(node->work, node->enabled);
    }
    steps[node] = {first, last};
    for (const Edge& edge : node->dependencies) link(steps[edge.node].second, first);
    if (node->dependencies.empty()) ends.first.push_back(first);
    if (node->dependents.empty()) ends.last.push_back(last);
  }
  return ends;
}

// How far a plan has come. Shared by the threads that work on it.
struct GraphRun::Progress {
  explicit Progress(const GraphPlan& of) : plan(of), waiting(of.steps().size()) {
    for (std::size_t i = 0; i < waiting.size(); ++i) waiting[i].store(of.steps()[i].waits_for);
    left.store(waiting.size());
  }
  const GraphPlan& plan;
  std::vector<std::atomic<std::uint32_t>> waiting;
  std::atomic<std::size_t> left;
  Timeline done;  // Reaches 1.
};

GraphRun::GraphRun(Driver& driver, std::shared_ptr<const GraphPlan> plan,
                   std::shared_ptr<Context> stream,
                   std::map<std::uint64_t, std::shared_ptr<Context>> contexts)
    : driver_(driver),
      plan_(std::move(plan)),
      context_(std::move(stream)),
      contexts_(std::move(contexts)) {
  for (const auto& [handle, conditional] : plan_->conditionals()) {
    conditionals_[handle].store(conditional.assign ? conditional.value : 0);
  }
  const auto& steps = plan_->steps();
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    if (const auto* record = std::get_if<RecordWork>(&steps[i].work)) {
      auto recording = std::make_shared<Recording>();
      recording->ticket = {std::make_shared<Timeline>(), 1};
      record->event->set_recording(recording);
      records_[i] = std::move(recording);
    } else if (const auto* wait = std::get_if<WaitWork>(&steps[i].work)) {
      waits_[i] = wait->event->recording();
    }
  }
}

void GraphRun::run() {
  for (const std::uint64_t address : free_first_) driver_.release_graph_memory(address);
  run_plan(*plan_);
  for (const auto& each : plan_->allocations()) each->memory().end_launch({each});
}

void GraphRun::run_plan(const GraphPlan& plan) {
  if (plan.steps().empty()) return;
  const auto progress = std::make_shared<Progress>(plan);
  std::vector<std::uint32_t> ready;
  for (std::uint32_t i = 0; i < plan.steps().size(); ++i) {
    if (plan.steps()[i].waits_for == 0) ready.push_back(i);
  }
  for (std::size_t i = 1; i < ready.size(); ++i) {
    driver_.workers().run([this, progress, index = ready[i]] { work(progress, index); });
  }
  work(progress, ready[0]);
  progress->done.wait(1);
}

// The step and, as long as it unlocks some, one of the next; others get threads of their own.
// Behind the count of what is left, nothing but `progress` may be touched.
void GraphRun::work(const std::shared_ptr<Progress>& progress, std::uint32_t index) {
  const GraphPlan& plan = progress->plan;
  for (;;) {
    run_step(plan, index);
    bool more = false;
    std::uint32_t next = 0;
    for (const std::uint32_t unlocked : plan.steps()[index].unlocks) {
      if (progress->waiting[unlocked].fetch_sub(1) != 1) continue;
      if (!std::exchange(more, true)) {
        next = unlocked;
        continue;
      }
      driver_.workers().run([this, progress, unlocked] { work(progress, unlocked); });
    }
    if (progress->left.fetch_sub(1) == 1) progress->done.complete(1);
    if (!more) return;
    index = next;
  }
}

Context& GraphRun::context_of(std::uint64_t handle) const {
  const auto found = contexts_.find(handle);
  return found == contexts_.end() ? *context_ : *found->second;
}

bool GraphRun::well(std::uint64_t context) const {
  const Fate& fate = *context_of(context).fate();
  return !fate.ended() && fate.error() == CUDA_SUCCESS && !context_->fate()->ended() &&
         context_->fate()->error() == CUDA_SUCCESS;
}

void GraphRun::run_step(const GraphPlan& plan, std::uint32_t index) {
  const GraphPlan::Step& step = plan.steps()[index];
  const bool go = step.enabled && well(context_of_work(step.work));
  std::visit(
      [&](const auto& work) {
        using Kind = std::decay_t<decltype(work)>;
        Regions& regions = driver_.regions();
        if constexpr (std::is_same_v<Kind, RecordWork>) {
          // Who waits for the event must not wait for ever.
          const auto found = records_.find(index);
          if (&plan != plan_.get() || found == records_.end()) return;
          found->second->reached_ns.store(system_clock().now().ns);
          found->second->ticket.timeline->complete(1);
        } else if constexpr (std::is_same_v<Kind, FreeWork>) {
          run_free(work);
        } else if (!go) {
          return;
        } else if constexpr (std::is_same_v<Kind, KernelWork>) {
          run_kernel(work);
        } else if constexpr (std::is_same_v<Kind, CopyWork>) {
          run_copy(regions, *context_of(work.context).fate(), work.request);
        } else if constexpr (std::is_same_v<Kind, FillWork>) {
          run_fill(regions, *context_of(work.context).fate(), work.request);
        } else if constexpr (std::is_same_v<Kind, HostWork>) {
          run_host(work);
        } else if constexpr (std::is_same_v<Kind, WaitWork>) {
          const auto found = waits_.find(index);
          if (&plan != plan_.get() || found == waits_.end() || found->second == nullptr) return;
          found->second->ticket.wait();
        } else if constexpr (std::is_same_v<Kind, WordsWork>) {
          for (const MemoryWord& word : work.words) {
            run_word(*context_of(work.context).fate(), regions, word);
          }
        } else if constexpr (std::is_same_v<Kind, AllocWork>) {
          run_alloc(work);
        } else if constexpr (std::is_same_v<Kind, ConditionalWork>) {
          run_conditional(step, work);
        }
      },
      step.work);
}

void GraphRun::run_kernel(const KernelWork& work) {
  run_launch(
      driver_, context_of(work.context), *work.function, work.request,
      [this](std::uint64_t handle, std::uint32_t value) { return set_conditional(handle, value); });
}

void GraphRun::run_host(const HostWork& work) const {
  if (work.callback != nullptr) {
    const InHostFunction scope(InHostFunction::Kind::kCallback);
    work.callback(work.stream, CUDA_SUCCESS, work.user_data);
    return;
  }
  const InHostFunction scope(InHostFunction::Kind::kFunction);
  work.fn(work.user_data);
}

void GraphRun::run_alloc(const AllocWork& work) const {
  // The launch has made sure that it does not live.
  work.allocation->memory().allocate(work.allocation);
}

void GraphRun::run_free(const FreeWork& work) const {
  if (driver_.release_graph_memory(work.address)) return;
  if (well(0)) context_->fate()->fail(CUDA_ERROR_ILLEGAL_ADDRESS);
}

void GraphRun::run_conditional(const GraphPlan::Step& step, const ConditionalWork& work) {
  const auto found = conditionals_.find(work.handle);
  if (found == conditionals_.end()) return;
  const std::atomic<std::uint32_t>& value = found->second;
  switch (work.type) {
    case CU_GRAPH_COND_TYPE_IF:
      if (value.load() != 0) {
        run_plan(*step.bodies[0]);
      } else if (step.bodies.size() > 1) {
        run_plan(*step.bodies[1]);
      }
      return;
    case CU_GRAPH_COND_TYPE_WHILE:
      while (value.load() != 0 && well(work.context)) run_plan(*step.bodies[0]);
      return;
    case CU_GRAPH_COND_TYPE_SWITCH:
      if (value.load() < step.bodies.size()) run_plan(*step.bodies[value.load()]);
      return;
  }
}

bool GraphRun::set_conditional(std::uint64_t handle, std::uint32_t value) {
  const auto found = conditionals_.find(handle);
  if (found == conditionals_.end()) return false;
  found->second.store(value);
  return true;
}

}  // namespace flyt::softgpu
