// What tests of graphs stand on: owned graphs, executable graphs and captures, and short ways to
// make nodes.
#pragma once

#include <memory>
#include <vector>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {

// A graph, destroyed at the end of its scope.
class OwnedGraph {
 public:
  OwnedGraph();
  explicit OwnedGraph(CUgraph graph) : graph_(graph) {}
  ~OwnedGraph();
  OwnedGraph(const OwnedGraph&) = delete;
  OwnedGraph& operator=(const OwnedGraph&) = delete;
  operator CUgraph() const { return graph_; }

 private:
  CUgraph graph_ = nullptr;
};

// An executable graph of `graph`; null where instantiating failed.
class OwnedExec {
 public:
  explicit OwnedExec(CUgraph graph, unsigned long long flags = 0);
  ~OwnedExec();
  OwnedExec(const OwnedExec&) = delete;
  OwnedExec& operator=(const OwnedExec&) = delete;
  operator CUgraphExec() const { return exec_; }

 private:
  CUgraphExec exec_ = nullptr;
};

// A capture that is on from the beginning, and that ends with its scope if not before: no test
// leaves one to the next.
class CaptureOf {
 public:
  explicit CaptureOf(CUstream stream,
                     CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  ~CaptureOf();
  CaptureOf(const CaptureOf&) = delete;
  CaptureOf& operator=(const CaptureOf&) = delete;
  // The graph belongs to the caller.
  CUresult end(CUgraph* graph);
  CUresult end_without_graph();

 private:
  CUstream stream_;
  bool on_ = true;
};

// In the primary context, with the kernels store_value and add_one and four words of memory.
class GraphFixture : public ContextTest {
 protected:
  void SetUp() override;
  void TearDown() override;

  // word `index` of `memory`.
  CUdeviceptr word(unsigned index) const { return *memory + 4ull * index; }
  std::uint32_t read(unsigned index) const { return memory->read<std::uint32_t>()[index]; }
  // Launches into a stream.
  CUresult store(CUstream stream, unsigned index, std::uint32_t value) const;
  CUresult add(CUstream stream, unsigned index) const;

  // Nodes of one thread that store, or add one to, a word.
  CUresult add_store(CUgraph graph, const std::vector<CUgraphNode>& after, unsigned index,
                     std::uint32_t value, CUgraphNode* node) const;
  CUresult add_add(CUgraph graph, const std::vector<CUgraphNode>& after, unsigned index,
                   CUgraphNode* node) const;
  CUresult add_empty(CUgraph graph, const std::vector<CUgraphNode>& after, CUgraphNode* node) const;

  // Launches and waits.
  CUresult run(CUgraphExec exec) const;

  std::unique_ptr<Module> module;
  std::unique_ptr<DeviceMemory> memory;
  std::unique_ptr<Stream> stream;
  CUfunction store_value = nullptr;
  CUfunction add_one = nullptr;
};

// Parameters of a node that runs `function` in one block with the arguments in `pointers`.
CUDA_KERNEL_NODE_PARAMS kernel_params(CUfunction function, void** pointers, unsigned threads = 1);
// Of a copy of `bytes` bytes.
CUDA_MEMCPY3D to_device(CUdeviceptr to, const void* from, std::size_t bytes);
CUDA_MEMCPY3D to_host(void* to, CUdeviceptr from, std::size_t bytes);
CUDA_MEMCPY3D between(CUdeviceptr to, CUdeviceptr from, std::size_t bytes);
CUDA_MEMSET_NODE_PARAMS fill_words(CUdeviceptr to, std::uint32_t value, std::size_t words);

std::vector<CUgraphNode> nodes_of(CUgraph graph);
CUgraphNodeType type_of(CUgraphNode node);
std::vector<CUgraphNode> dependencies_of(CUgraphNode node);

}  // namespace flyt::conformance
