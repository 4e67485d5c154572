#include "tests/conformance/graphs.h"

namespace flyt::conformance {
namespace {

void expect_ok(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) ADD_FAILURE() << what << ": " << name_of(result);
}

CUDA_MEMCPY3D one_row(std::size_t bytes) {
  CUDA_MEMCPY3D copy{};
  copy.WidthInBytes = bytes;
  copy.Height = 1;
  copy.Depth = 1;
  return copy;
}

}  // namespace

OwnedGraph::OwnedGraph() {
  const Unrecorded quiet;
  expect_ok(cu().cuGraphCreate(&graph_, 0), "cuGraphCreate");
}

OwnedGraph::~OwnedGraph() {
  const Unrecorded quiet;
  if (graph_ != nullptr) cu().cuGraphDestroy(graph_);
}

OwnedExec::OwnedExec(CUgraph graph, unsigned long long flags) {
  const Unrecorded quiet;
  expect_ok(cu().cuGraphInstantiateWithFlags(&exec_, graph, flags), "cuGraphInstantiate");
}

OwnedExec::~OwnedExec() {
  const Unrecorded quiet;
  if (exec_ != nullptr) cu().cuGraphExecDestroy(exec_);
}

CaptureOf::CaptureOf(CUstream stream, CUstreamCaptureMode mode) : stream_(stream) {
  const Unrecorded quiet;
  expect_ok(cu().cuStreamBeginCapture_v2(stream, mode), "cuStreamBeginCapture");
}

CaptureOf::~CaptureOf() {
  if (!on_) return;
  const Unrecorded quiet;
  CUgraph graph = nullptr;
  if (cu().cuStreamEndCapture(stream_, &graph) == CUDA_SUCCESS) cu().cuGraphDestroy(graph);
}

CUresult CaptureOf::end(CUgraph* graph) {
  on_ = false;
  return cu().cuStreamEndCapture(stream_, graph);
}

CUresult CaptureOf::end_without_graph() {
  CUgraph graph = nullptr;
  const CUresult result = end(&graph);
  EXPECT_EQ(nullptr, graph);
  return result;
}

void GraphFixture::SetUp() {
  ContextTest::SetUp();
  module = std::make_unique<Module>(kBasicPtx);
  store_value = module->function("store_value");
  add_one = module->function("add_one");
  memory = std::make_unique<DeviceMemory>(16);
  memory->fill(0);
  stream = std::make_unique<Stream>();
}

void GraphFixture::TearDown() {
  stream.reset();
  memory.reset();
  module.reset();
}

CUresult GraphFixture::store(CUstream to, unsigned index, std::uint32_t value) const {
  return launch(store_value, 1, 1, to, word(index), value);
}

CUresult GraphFixture::add(CUstream to, unsigned index) const {
  return launch(add_one, 1, 1, to, word(index), 1u);
}

CUresult GraphFixture::add_store(CUgraph graph, const std::vector<CUgraphNode>& after,
                                 unsigned index, std::uint32_t value, CUgraphNode* node) const {
  CUdeviceptr to = word(index);
  void* pointers[] = {&to, &value};
  const CUDA_KERNEL_NODE_PARAMS params = kernel_params(store_value, pointers);
  return cu().cuGraphAddKernelNode_v2(node, graph, after.data(), after.size(), &params);
}

CUresult GraphFixture::add_add(CUgraph graph, const std::vector<CUgraphNode>& after, unsigned index,
                               CUgraphNode* node) const {
  CUdeviceptr to = word(index);
  std::uint32_t count = 1;
  void* pointers[] = {&to, &count};
  const CUDA_KERNEL_NODE_PARAMS params = kernel_params(add_one, pointers);
  return cu().cuGraphAddKernelNode_v2(node, graph, after.data(), after.size(), &params);
}

CUresult GraphFixture::add_empty(CUgraph graph, const std::vector<CUgraphNode>& after,
                                 CUgraphNode* node) const {
  return cu().cuGraphAddEmptyNode(node, graph, after.data(), after.size());
}

CUresult GraphFixture::run(CUgraphExec exec) const {
  const CUresult result = cu().cuGraphLaunch(exec, *stream);
  return result != CUDA_SUCCESS ? result : cu().cuStreamSynchronize(*stream);
}

CUDA_KERNEL_NODE_PARAMS kernel_params(CUfunction function, void** pointers, unsigned threads) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function;
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = threads;
  params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = pointers;
  return params;
}

CUDA_MEMCPY3D to_device(CUdeviceptr to, const void* from, std::size_t bytes) {
  CUDA_MEMCPY3D copy = one_row(bytes);
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  return copy;
}

CUDA_MEMCPY3D to_host(void* to, CUdeviceptr from, std::size_t bytes) {
  CUDA_MEMCPY3D copy = one_row(bytes);
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  return copy;
}

CUDA_MEMCPY3D between(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  CUDA_MEMCPY3D copy = one_row(bytes);
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  return copy;
}

CUDA_MEMSET_NODE_PARAMS fill_words(CUdeviceptr to, std::uint32_t value, std::size_t words) {
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = to;
  params.value = value;
  params.elementSize = 4;
  params.width = words;
  params.height = 1;
  return params;
}

std::vector<CUgraphNode> nodes_of(CUgraph graph) {
  const Unrecorded quiet;
  std::size_t count = 0;
  expect_ok(cu().cuGraphGetNodes(graph, nullptr, &count), "cuGraphGetNodes");
  std::vector<CUgraphNode> nodes(count);
  if (count != 0) expect_ok(cu().cuGraphGetNodes(graph, nodes.data(), &count), "cuGraphGetNodes");
  return nodes;
}

CUgraphNodeType type_of(CUgraphNode node) {
  const Unrecorded quiet;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  expect_ok(cu().cuGraphNodeGetType(node, &type), "cuGraphNodeGetType");
  return type;
}

std::vector<CUgraphNode> dependencies_of(CUgraphNode node) {
  const Unrecorded quiet;
  std::size_t count = 0;
  expect_ok(cu().cuGraphNodeGetDependencies_v2(node, nullptr, nullptr, &count), "dependencies");
  std::vector<CUgraphNode> nodes(count);
  std::vector<CUgraphEdgeData> data(count);
  if (count != 0) {
    expect_ok(cu().cuGraphNodeGetDependencies_v2(node, nodes.data(), data.data(), &count),
              "dependencies");
  }
  return nodes;
}

}  // namespace flyt::conformance
