#include "tests/recovery/kept_graphs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "tests/recovery/survivor_code.h"

namespace flyt::tests {
namespace {

// What goes on as long as nothing has gone wrong.
class Steps {
 public:
  template <class Step>
  Steps& operator()(Step&& step) {
    if (result_ == CUDA_SUCCESS) result_ = step();
    return *this;
  }
  CUresult result() const { return result_; }

 private:
  CUresult result_ = CUDA_SUCCESS;
};

void count_call(void* count) { ++*static_cast<std::atomic<std::uint32_t>*>(count); }

CUDA_MEMSET_NODE_PARAMS fills(CUdeviceptr address, unsigned value, std::size_t words) {
  return {address, 0, value, 4, words, 1};
}

CUDA_MEMCPY3D copies(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstDevice = to;
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  return copy;
}

}  // namespace

std::string KeptGraphs::answer(const std::string& what) {
  const auto text = [this](CUresult result) -> std::string {
    if (result == CUDA_SUCCESS) return "ok";
    // What became of the work around it tells more.
    const CUresult all = cu_.cuCtxSynchronize();
    return "graphs " + std::to_string(static_cast<int>(all == CUDA_SUCCESS ? result : all));
  };
  if (what == "make") return text(make(true));
  if (what == "make-quiet") return text(make(false));
  if (what == "use") return use();
  if (what == "compare") return compare();
  if (what == "change") return text(change());
  if (what == "launch") return text(launch_behind_a_wait());
  if (what == "launched") return launched();
  if (what == "capture") return text(begin_capture());
  if (what == "capture-end") return text(end_capture());
  if (what == "allocate") return text(allocate());
  if (what == "allocate-end") return text(end_allocation());
  if (what == "conditional") return text(make_conditional());
  if (what == "conditional-end") return text(end_conditional());
  if (what == "object") return text(make_object());
  if (what == "many") return text(make_too_many());
  if (what == "many-end") return text(end_too_many());
  if (what == "point") return text(point());
  if (what == "now") return text(add_now());
  if (what == "leave") return text(leave());
  if (what == "leave-end") return text(cu_.cuGraphDestroy(std::exchange(left_, nullptr)));
  if (what == "end-exec") return text(cu_.cuGraphExecDestroy(std::exchange(late_, nullptr)));
  return "unknown";
}

void KeptGraphs::forget() {
  for (CUgraphExec exec : {captured_, built_, clone_, changed_, updated_, late_}) {
    if (exec != nullptr) cu_.cuGraphExecDestroy(exec);
  }
  for (CUgraph graph : {built_graph_, clone_graph_, other_graph_}) {
    if (graph != nullptr) cu_.cuGraphDestroy(graph);
  }
  slots_ = 0;
  expected_ = {};
  captured_ = built_ = clone_ = changed_ = updated_ = late_ = nullptr;
  built_graph_ = clone_graph_ = other_graph_ = nullptr;
  changed_adds_to_ = 8;
  built_adds_to_ = 4;
  calls_expected_ = calls_;
}

CUDA_KERNEL_NODE_PARAMS KeptGraphs::adds_to(std::size_t number) {
  addresses_.push_back(slot(number));
  pointers_.assign(1, &addresses_.back());
  return {add_, 1, 1, 1, kWords, 1, 1, 0, pointers_.data(), nullptr, nullptr, nullptr};
}

CUresult KeptGraphs::make(bool on_host) {
  forget();
  on_host_ = on_host;
  addresses_.reserve(1000);
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  Steps steps;
  steps([&] { return cu_.cuMemAlloc_v2(&slots_, kSlots * kWords * 4); });
  steps([&] { return cu_.cuMemsetD32_v2(slots_, 0, kSlots * kWords); });
  steps([&] { return cu_.cuModuleLoadData(&module, kPtx); });
  steps([&] { return cu_.cuModuleGetFunction(&add_, module, "add_one"); });
  steps([&] {
    return cu_.cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0);
  });
  steps([&] { return cu_.cuLibraryGetKernel(&kernel_, library, "add_one"); });
  steps([&] { return cu_.cuKernelGetFunction(&add_of_library_, kernel_); });
  steps([&] { return cu_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING); });
  steps([&] { return cu_.cuStreamCreate(&side_, CU_STREAM_NON_BLOCKING); });
  for (CUevent* event : {&fork_, &join_, &told_}) {
    steps([&] { return cu_.cuEventCreate(event, CU_EVENT_DISABLE_TIMING); });
  }
  steps([&] { return cu_.cuCtxSynchronize(); });
  steps([&] { return make_captured(); });
  steps([&] { return make_built(); });
  steps([&] { return make_changed(); });
  steps([&] { return make_updated(); });
  return steps.result();
}

// As frameworks do: the graph itself is gone once it can be launched.
CUresult KeptGraphs::make_captured() {
  CUgraph graph = nullptr;
  CUdeviceptr first = slot(0);
  CUdeviceptr second = slot(1);
  void* to_first[] = {&first};
  CUdeviceptr third = slot(19);
  void* to_second[] = {&second};
  void* to_third[] = {&third};
  Steps steps;
  steps([&] { return cu_.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL); });
  steps([&] {
    return cu_.cuLaunchKernel(add_, 1, 1, 1, kWords, 1, 1, 0, stream_, to_first, nullptr);
  });
  steps([&] { return cu_.cuEventRecord(fork_, stream_); });
  steps([&] { return cu_.cuStreamWaitEvent(side_, fork_, 0); });
  steps([&] {
    return cu_.cuLaunchKernel(add_of_library_, 1, 1, 1, kWords, 1, 1, 0, side_, to_second, nullptr);
  });
  steps([&] {
    auto* const by_kernel = static_cast<CUfunction>(static_cast<void*>(kernel_));
    return cu_.cuLaunchKernel(by_kernel, 1, 1, 1, kWords, 1, 1, 0, side_, to_third, nullptr);
  });
  steps([&] { return cu_.cuMemsetD32Async(slot(2), 7, kWords, side_); });
  steps([&] { return cu_.cuEventRecord(join_, side_); });
  steps([&] { return cu_.cuStreamWaitEvent(stream_, join_, 0); });
  steps([&] { return cu_.cuMemcpyDtoDAsync_v2(slot(3), slot(0), kWords * 4, stream_); });
  if (on_host_) steps([&] { return cu_.cuLaunchHostFunc(stream_, count_call, &calls_); });
  steps([&] { return cu_.cuStreamEndCapture(stream_, &graph); });
  steps([&] { return cu_.cuGraphInstantiateWithFlags(&captured_, graph, 0); });
  steps([&] { return cu_.cuGraphDestroy(graph); });
  return steps.result();
}

CUresult KeptGraphs::make_built() {
  CUgraph inner = nullptr;
  CUgraphNode waits = nullptr;
  CUgraphNode records = nullptr;
  CUgraphNode empty = nullptr;
  CUgraphNode in_inner = nullptr;
  CUkernelNodeAttrValue priority{};
  priority.priority = -1;
  Steps steps;
  steps([&] { return cu_.cuGraphCreate(&built_graph_, 0); });
  steps([&] {
    const auto params = adds_to(4);
    return cu_.cuGraphAddKernelNode_v2(&kernel_node_, built_graph_, nullptr, 0, &params);
  });
  steps([&] {
    return cu_.cuGraphKernelNodeSetAttribute(kernel_node_, CU_LAUNCH_ATTRIBUTE_PRIORITY, &priority);
  });
  CUcontext context = nullptr;
  steps([&] { return cu_.cuCtxGetCurrent(&context); });
  steps([&] {
    const auto params = fills(slot(5), 9, kWords);
    return cu_.cuGraphAddMemsetNode(&fill_node_, built_graph_, nullptr, 0, &params, context);
  });
  steps([&] {
    const auto params = copies(slot(6), slot(4), kWords * 4);
    return cu_.cuGraphAddMemcpyNode(&copy_node_, built_graph_, &kernel_node_, 1, &params, context);
  });
  steps([&] { return cu_.cuGraphCreate(&inner, 0); });
  steps([&] {
    const auto params = adds_to(7);
    return cu_.cuGraphAddKernelNode_v2(&in_inner, inner, nullptr, 0, &params);
  });
  steps([&] {
    return cu_.cuGraphAddChildGraphNode(&child_node_, built_graph_, &copy_node_, 1, inner);
  });
  steps([&] { return cu_.cuGraphDestroy(inner); });
  steps([&] { return cu_.cuGraphChildGraphNodeGetGraph(child_node_, &child_); });
  steps([&] { return read_nodes(child_, inside_); });
  steps([&] { return cu_.cuGraphAddEmptyNode(&empty, built_graph_, &child_node_, 1); });
  steps(
      [&] { return cu_.cuGraphAddEventRecordNode(&records, built_graph_, &fill_node_, 1, told_); });
  steps([&] { return cu_.cuGraphAddEventWaitNode(&waits, built_graph_, &records, 1, told_); });
  // Against the order in which they were added.
  steps([&] { return cu_.cuGraphAddDependencies(built_graph_, &waits, &kernel_node_, 1); });
  steps([&] { return read_nodes(built_graph_, nodes_); });
  steps([&] { return cu_.cuGraphInstantiateWithFlags(&built_, built_graph_, 0); });
  steps([&] { return cu_.cuGraphClone(&clone_graph_, built_graph_); });
  steps([&] { return cu_.cuGraphInstantiateWithFlags(&clone_, clone_graph_, 0); });
  return steps.result();
}

// Its nodes do something else than those of the graph that it was made of.
CUresult KeptGraphs::make_changed() {
  Steps steps;
  steps([&] { return cu_.cuGraphInstantiateWithFlags(&changed_, built_graph_, 0); });
  steps([&] {
    const auto params = adds_to(8);
    return cu_.cuGraphExecKernelNodeSetParams_v2(changed_, kernel_node_, &params);
  });
  steps([&] { return cu_.cuGraphNodeSetEnabled(changed_, fill_node_, 0); });
  steps([&] { return cu_.cuGraphUpload(changed_, stream_); });
  return steps.result();
}

CUresult KeptGraphs::make_updated() {
  CUgraph first = nullptr;
  CUgraph second = nullptr;
  CUgraphExecUpdateResultInfo info{};
  updated_adds_to_ = {10, 9};
  Steps steps;
  steps([&] { return capture_chain({9, 9}, &first); });
  steps([&] { return cu_.cuGraphInstantiateWithFlags(&updated_, first, 0); });
  steps([&] { return capture_chain(updated_adds_to_, &second); });
  steps([&] { return cu_.cuGraphExecUpdate_v2(updated_, second, &info); });
  steps([&] { return cu_.cuGraphDestroy(first); });
  steps([&] { return cu_.cuGraphDestroy(second); });
  return steps.result();
}

CUresult KeptGraphs::capture_chain(const std::vector<std::size_t>& slots, CUgraph* graph) {
  Steps steps;
  steps([&] { return cu_.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED); });
  for (const std::size_t number : slots) {
    CUdeviceptr address = slot(number);
    void* parameters[] = {&address};
    steps([&] {
      return cu_.cuLaunchKernel(add_, 1, 1, 1, kWords, 1, 1, 0, stream_, parameters, nullptr);
    });
  }
  steps([&] { return cu_.cuStreamEndCapture(stream_, graph); });
  return steps.result();
}

CUresult KeptGraphs::launch(CUgraphExec exec) { return cu_.cuGraphLaunch(exec, stream_); }

std::string KeptGraphs::use() {
  if (!any()) return "ok";
  // What is only posted would be lost where nobody has noticed yet that the process is.
  if (std::string wrong = look(); wrong != "ok") return wrong;
  Steps steps;
  for (CUgraphExec exec : {captured_, built_, clone_, updated_}) {
    steps([&] { return launch(exec); });
  }
  // The next one does not fill it.
  steps([&] { return cu_.cuMemsetD32Async(slot(5), 3, kWords, stream_); });
  steps([&] { return launch(changed_); });
  if (late_ != nullptr) steps([&] { return launch(late_); });
  steps([&] { return cu_.cuStreamSynchronize(stream_); });
  if (steps.result() != CUDA_SUCCESS) {
    return "launching graphs " + std::to_string(static_cast<int>(steps.result()));
  }
  count_captured();
  for (const std::size_t kernel : {std::size_t{built_adds_to_}, std::size_t{4}, changed_adds_to_}) {
    ++expected_[kernel];
    expected_[6] = expected_[4];
    ++expected_[7];
  }
  expected_[5] = 3;
  for (const std::size_t number : updated_adds_to_) ++expected_[number];
  if (late_ != nullptr) ++expected_[12];
  return look();
}

// One of them alone, behind a value that somebody has to write.
CUresult KeptGraphs::launch_behind_a_wait() {
  const CUresult result = cu_.cuStreamWaitValue32_v2(stream_, slot(18), 1, CU_STREAM_WAIT_VALUE_EQ);
  return result == CUDA_SUCCESS ? launch(captured_) : result;
}

// A graph that nobody has read yet, and all others, in a context that is reset.
CUresult KeptGraphs::leave() {
  Steps steps;
  steps([&] { return capture_chain({4}, &left_); });
  steps([&] { return cu_.cuDevicePrimaryCtxReset_v2(0); });
  return steps.result();
}

std::string KeptGraphs::launched() {
  expected_[18] = 1;
  CUresult result = cu_.cuMemsetD32Async(slot(18), 1, kWords, side_);
  if (result == CUDA_SUCCESS) result = cu_.cuStreamSynchronize(stream_);
  if (result != CUDA_SUCCESS) return "waiting " + std::to_string(static_cast<int>(result));
  count_captured();
  return look();
}

void KeptGraphs::count_captured() {
  ++expected_[0];
  ++expected_[1];
  expected_[2] = 7;
  expected_[3] = expected_[0];
  ++expected_[19];
  if (on_host_) ++calls_expected_;
}

std::string KeptGraphs::look() {
  std::array<std::uint32_t, kSlots * kWords> found{};
  const CUresult result = cu_.cuMemcpyDtoH_v2(found.data(), slots_, sizeof found);
  if (result != CUDA_SUCCESS) return "reading " + std::to_string(static_cast<int>(result));
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected_[i / kWords]) continue;
    return "slot " + std::to_string(i / kWords) + " has " + std::to_string(found[i]) +
           " in place of " + std::to_string(expected_[i / kWords]);
  }
  return calls_ == calls_expected_ ? "ok" : "the host function ran " + std::to_string(calls_);
}

CUresult KeptGraphs::read_nodes(CUgraph graph, std::vector<CUgraphNode>& nodes) const {
  std::size_t count = 0;
  const CUresult result = cu_.cuGraphGetNodes(graph, nullptr, &count);
  nodes.resize(count);
  return result != CUDA_SUCCESS ? result : cu_.cuGraphGetNodes(graph, nodes.data(), &count);
}

// What the driver tells of the graph that was built is what it told.
std::string KeptGraphs::compare() {
  std::vector<CUgraphNode> nodes;
  std::size_t edges = 0;
  CUDA_KERNEL_NODE_PARAMS kernel{};
  CUkernelNodeAttrValue priority{};
  CUevent event = nullptr;
  unsigned int enabled = 1;
  CUgraph child = nullptr;
  Steps steps;
  steps([&] { return read_nodes(built_graph_, nodes); });
  steps([&] { return cu_.cuGraphGetEdges(built_graph_, nullptr, nullptr, &edges); });
  steps([&] { return cu_.cuGraphKernelNodeGetParams_v2(kernel_node_, &kernel); });
  steps([&] {
    return cu_.cuGraphKernelNodeGetAttribute(kernel_node_, CU_LAUNCH_ATTRIBUTE_PRIORITY, &priority);
  });
  if (nodes.size() > 6) {
    steps([&] { return cu_.cuGraphEventRecordNodeGetEvent(nodes[5], &event); });
  }
  steps([&] { return cu_.cuGraphNodeGetEnabled(changed_, fill_node_, &enabled); });
  steps([&] { return cu_.cuGraphChildGraphNodeGetGraph(child_node_, &child); });
  std::vector<CUgraphNode> inside;
  steps([&] { return read_nodes(child, inside); });
  if (steps.result() != CUDA_SUCCESS) {
    return "asking " + std::to_string(static_cast<int>(steps.result()));
  }
  if (nodes != nodes_) return "nodes have other handles";
  if (edges != 6) return "there are " + std::to_string(edges) + " edges";
  if (kernel.func != add_ || kernel.blockDimX != kWords) return "the kernel is another one";
  CUdeviceptr address = 0;
  std::memcpy(&address, kernel.kernelParams[0], sizeof address);
  if (address != slot(built_adds_to_)) return "the kernel has another parameter";
  if (priority.priority != -1) return "the kernel has another priority";
  if (event != told_) return "the event is another one";
  if (enabled != 0) return "a node is enabled";
  return child == child_ && inside == inside_ ? "ok" : "the child has other handles";
}

CUresult KeptGraphs::change() {
  CUgraph graph = nullptr;
  CUgraphExecUpdateResultInfo info{};
  Steps steps;
  steps([&] {
    const auto params = adds_to(11);
    return cu_.cuGraphExecKernelNodeSetParams_v2(changed_, kernel_node_, &params);
  });
  changed_adds_to_ = 11;
  // The graph alone: what was made of it stays as it is until it is updated.
  steps([&] {
    const auto params = adds_to(13);
    return cu_.cuGraphKernelNodeSetParams_v2(kernel_node_, &params);
  });
  steps([&] { return cu_.cuGraphExecUpdate_v2(built_, built_graph_, &info); });
  built_adds_to_ = 13;
  steps([&] { return capture_chain({14, 14}, &graph); });
  steps([&] { return cu_.cuGraphExecUpdate_v2(updated_, graph, &info); });
  updated_adds_to_ = {14, 14};
  steps([&] { return cu_.cuGraphDestroy(graph); });
  if (late_ == nullptr) {
    steps([&] { return capture_chain({12}, &graph); });
    steps([&] { return cu_.cuGraphInstantiateWithFlags(&late_, graph, 0); });
    steps([&] { return cu_.cuGraphDestroy(graph); });
  }
  return steps.result();
}

CUresult KeptGraphs::begin_capture() {
  CUdeviceptr address = slot(12);
  void* parameters[] = {&address};
  Steps steps;
  // Work just before: that it is done must not be asked for where it would end the capture.
  steps([&] { return cu_.cuMemsetD32Async(slot(15), 0, kWords, stream_); });
  steps([&] { return cu_.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED); });
  steps([&] {
    return cu_.cuLaunchKernel(add_, 1, 1, 1, kWords, 1, 1, 0, stream_, parameters, nullptr);
  });
  return steps.result();
}

CUresult KeptGraphs::end_capture() {
  CUgraph graph = nullptr;
  Steps steps;
  steps([&] { return cu_.cuStreamEndCapture(stream_, &graph); });
  steps([&] { return cu_.cuGraphInstantiateWithFlags(&late_, graph, 0); });
  steps([&] { return cu_.cuGraphDestroy(graph); });
  return steps.result();
}

CUresult KeptGraphs::allocate() {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  params.bytesize = kMiB;
  CUgraphNode node = nullptr;
  CUgraphNode free = nullptr;
  Steps steps;
  steps([&] { return cu_.cuGraphCreate(&other_graph_, 0); });
  steps([&] { return cu_.cuGraphAddMemAllocNode(&node, other_graph_, nullptr, 0, &params); });
  steps([&] { return cu_.cuGraphAddMemFreeNode(&free, other_graph_, &node, 1, params.dptr); });
  steps([&] { return cu_.cuGraphInstantiateWithFlags(&late_, other_graph_, 0); });
  steps([&] { return launch(late_); });
  steps([&] { return cu_.cuStreamSynchronize(stream_); });
  return steps.result();
}

CUresult KeptGraphs::end_allocation() {
  Steps steps;
  steps([&] { return cu_.cuGraphExecDestroy(std::exchange(late_, nullptr)); });
  steps([&] { return cu_.cuGraphDestroy(std::exchange(other_graph_, nullptr)); });
  steps([&] { return cu_.cuDeviceGraphMemTrim(0); });
  return steps.result();
}

CUresult KeptGraphs::make_conditional() {
  CUgraphConditionalHandle handle = 0;
  CUcontext context = nullptr;
  Steps steps;
  steps([&] { return cu_.cuCtxGetCurrent(&context); });
  steps([&] { return cu_.cuGraphCreate(&other_graph_, 0); });
  steps([&] { return cu_.cuGraphConditionalHandleCreate(&handle, other_graph_, context, 0, 0); });
  return steps.result();
}

CUresult KeptGraphs::end_conditional() {
  return cu_.cuGraphDestroy(std::exchange(other_graph_, nullptr));
}

CUresult KeptGraphs::make_object() {
  CUuserObject object = nullptr;
  return cu_.cuUserObjectCreate(
      &object, &calls_, [](void*) {}, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
}

// Nodes that are as large as nodes are.
CUresult KeptGraphs::make_too_many() {
  std::vector<CUstreamBatchMemOpParams> words(255);
  for (CUstreamBatchMemOpParams& word : words) {
    word.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    word.writeValue.address = slot(16);
    word.writeValue.value = 1;
  }
  Steps steps;
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{nullptr, 255, words.data(), 0};
  steps([&] { return cu_.cuCtxGetCurrent(&params.ctx); });
  steps([&] { return cu_.cuGraphCreate(&other_graph_, 0); });
  // Almost a MiB, some seventy times.
  CUgraph child = nullptr;
  CUgraphNode node = nullptr;
  steps([&] { return cu_.cuGraphCreate(&child, 0); });
  for (int i = 0; i < 100; ++i) {
    steps([&] { return cu_.cuGraphAddBatchMemOpNode(&node, child, nullptr, 0, &params); });
  }
  for (int i = 0; i < 70; ++i) {
    steps([&] { return cu_.cuGraphAddChildGraphNode(&node, other_graph_, nullptr, 0, child); });
  }
  steps([&] { return cu_.cuGraphDestroy(child); });
  return steps.result();
}

CUresult KeptGraphs::end_too_many() {
  return cu_.cuGraphDestroy(std::exchange(other_graph_, nullptr));
}

// Nothing but a graph knows where a variable is.
CUresult KeptGraphs::point() {
  CUdeviceptr place = slot(17);
  CUdeviceptr variable = 0;
  CUmodule module = nullptr;
  CUfunction tell = nullptr;
  CUgraphNode node = nullptr;
  void* parameters[] = {&place};
  Steps steps;
  steps([&] { return cu_.cuModuleLoadData(&module, kPtxWithPointers); });
  steps([&] { return cu_.cuModuleGetFunction(&tell, module, "tell"); });
  steps(
      [&] { return cu_.cuLaunchKernel(tell, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr); });
  steps([&] { return cu_.cuMemcpyDtoH_v2(&variable, place + 8, 8); });
  steps([&] { return cu_.cuMemsetD8_v2(place, 0, 16); });
  steps([&] { return cu_.cuGraphCreate(&other_graph_, 0); });
  steps([&] {
    CUDA_KERNEL_NODE_PARAMS params = adds_to(17);
    addresses_.back() = variable;
    return cu_.cuGraphAddKernelNode_v2(&node, other_graph_, nullptr, 0, &params);
  });
  return steps.result();
}

// Nobody has saved it when the answer comes.
CUresult KeptGraphs::add_now() {
  CUgraphNode node = nullptr;
  return cu_.cuGraphAddEmptyNode(&node, built_graph_, nullptr, 0);
}

}  // namespace flyt::tests
