// KeptGraphs: graphs of a program, and what its memory holds when they were launched.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::tests {

// Answers are "ok", or what went wrong. Memory is in slots; what each holds is known here.
class KeptGraphs {
 public:
  explicit KeptGraphs(const driver::Table& cu) : cu_(cu) {}
  KeptGraphs(const KeptGraphs&) = delete;
  KeptGraphs& operator=(const KeptGraphs&) = delete;

  std::string answer(const std::string& what);
  // Nothing of it is there any more.
  void forget();
  bool any() const { return slots_ != 0; }
  // Launches all of them, and looks.
  std::string use();

 private:
  static constexpr std::size_t kSlots = 24;
  static constexpr std::size_t kWords = 32;

  CUdeviceptr slot(std::size_t number) const { return slots_ + number * kWords * 4; }
  CUresult make(bool on_host);
  CUresult make_captured();
  CUresult make_built();
  CUresult make_changed();
  CUresult make_updated();
  // Kernels that add one to each of these slots, one behind the other, captured.
  CUresult capture_chain(const std::vector<std::size_t>& slots, CUgraph* graph);
  CUresult launch(CUgraphExec exec);
  CUDA_KERNEL_NODE_PARAMS adds_to(std::size_t number);
  void count_captured();
  CUresult launch_behind_a_wait();
  CUresult leave();
  std::string launched();
  std::string look();

  // After the session went on: everything is changed by the handles that there were before.
  CUresult change();
  std::string compare();
  CUresult read_nodes(CUgraph graph, std::vector<CUgraphNode>& nodes) const;

  CUresult begin_capture();
  CUresult end_capture();
  CUresult allocate();
  CUresult end_allocation();
  CUresult make_conditional();
  CUresult end_conditional();
  CUresult make_object();
  CUresult make_too_many();
  CUresult end_too_many();
  CUresult point();
  CUresult add_now();

  const driver::Table& cu_;
  CUdeviceptr slots_ = 0;
  std::array<std::uint32_t, kSlots> expected_{};
  CUstream stream_ = nullptr;
  CUstream side_ = nullptr;
  CUevent fork_ = nullptr;
  CUevent join_ = nullptr;
  CUevent told_ = nullptr;
  CUfunction add_ = nullptr;
  CUfunction add_of_library_ = nullptr;
  CUkernel kernel_ = nullptr;

  CUgraphExec captured_ = nullptr;
  CUgraph built_graph_ = nullptr;
  CUgraphNode kernel_node_ = nullptr;
  CUgraphNode fill_node_ = nullptr;
  CUgraphNode copy_node_ = nullptr;
  CUgraphNode child_node_ = nullptr;
  CUgraph child_ = nullptr;
  std::vector<CUgraphNode> inside_;
  std::vector<CUgraphNode> nodes_;
  CUgraphExec built_ = nullptr;
  CUgraph clone_graph_ = nullptr;
  CUgraphExec clone_ = nullptr;
  CUgraphExec changed_ = nullptr;
  std::size_t changed_adds_to_ = 8;
  CUgraphExec updated_ = nullptr;
  std::vector<std::size_t> updated_adds_to_;
  std::uint32_t built_adds_to_ = 4;
  std::atomic<std::uint32_t> calls_{0};  // Of the host function in a graph.
  std::uint32_t calls_expected_ = 0;
  bool on_host_ = true;  // There is one.
  CUgraphExec late_ = nullptr;
  CUgraph other_graph_ = nullptr;
  CUgraph left_ = nullptr;
  std::vector<void*> pointers_;
  std::vector<CUdeviceptr> addresses_;
};

}  // namespace flyt::tests
