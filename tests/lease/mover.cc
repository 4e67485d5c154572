#include "tests/lease/mover.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "driver/table.h"
#include "tests/support/cuda_table.h"

namespace flyt::tests {
namespace {

constexpr unsigned kWords = 64;
constexpr unsigned kBlocks = 256;
constexpr unsigned kGroupSms = 8;

// x = x * 1664525 + constant: whatever comes out of turn changes all that follows. `where` tells on
// which multiprocessor each block ran.
constexpr const char* kCode = R"(
  .version 8.0
  .target sm_80
  .address_size 64
  .visible .entry step(.param .u64 at, .param .u32 constant) {
    .reg .u32 %r<6>; .reg .u64 %rd<4>; .reg .pred %p;
    mov.u32 %r0, %tid.x;
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r1, [constant];
    mul.wide.u32 %rd2, %r0, 4;
    add.u64 %rd3, %rd1, %rd2;
    mov.u32 %r4, 0;
  again:
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p, %r4, 50;
    @%p bra again;
    ld.global.u32 %r2, [%rd3];
    mul.lo.u32 %r3, %r2, 1664525;
    add.u32 %r3, %r3, %r1;
    st.global.u32 [%rd3], %r3;
    ret;
  }
  .visible .entry where(.param .u64 out) {
    .reg .u32 %r<2>; .reg .u64 %rd<4>;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %smid;
    ld.param.u64 %rd1, [out];
    mul.wide.u32 %rd2, %r0, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
  })";

// A call that failed, and where.
struct Failure {
  CUresult result;
  int line;
};

void must_at(CUresult result, int line) {
  if (result != CUDA_SUCCESS) throw Failure{result, line};
}
#define must(call) must_at(call, __LINE__)

class Program {
 public:
  void start() {
    must(cuda_.cuInit(0));
    must(cuda_.cuDevicePrimaryCtxRetain(&context_, 0));
    must(cuda_.cuCtxSetCurrent(context_));
    must(cuda_.cuModuleLoadData(&module_, kCode));
    must(cuda_.cuModuleGetFunction(&step_, module_, "step"));
    must(cuda_.cuModuleGetFunction(&where_, module_, "where"));
    must(cuda_.cuLibraryLoadData(&library_, kCode, nullptr, nullptr, 0, nullptr, nullptr, 0));
    must(cuda_.cuLibraryGetKernel(&library_step_, library_, "step"));
    must(cuda_.cuLibraryGetKernel(&library_where_, library_, "where"));
    must(cuda_.cuMemAlloc_v2(&words_, kWords * 4));
    must(cuda_.cuMemAlloc_v2(&sms_, kBlocks * 4));
    must(cuda_.cuMemsetD32_v2(words_, 0, kWords));
    must(cuda_.cuStreamCreateWithPriority(&quiet_, CU_STREAM_NON_BLOCKING, -1));
    must(cuda_.cuStreamCreate(&blocking_, CU_STREAM_DEFAULT));
    for (CUevent& event : events_) must(cuda_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    capture_graphs();
    build_graph();
  }

  std::string obey(const std::string& what, unsigned count) {
    if (what == "run") return run(count);
    if (what == "groups") return groups();
    if (what == "at") return at();
    if (what == "begin") return begin();
    if (what == "end") return end();
    if (what == "green") return green();
    if (what == "held") return held();
    if (what == "freed") return freed();
    if (what == "sms") return sms();
    return "what is " + what;
  }

 private:
  using Function = CUfunction;
  static Function as_function(CUkernel kernel) {
    return static_cast<Function>(static_cast<void*>(kernel));
  }

  void step(Function function, CUstream stream, std::uint32_t constant) {
    void* parameters[] = {&words_, &constant};
    must(cuda_.cuLaunchKernel(function, 1, 1, 1, kWords, 1, 1, 0, stream, parameters, nullptr));
  }
  void expect_step(std::uint32_t constant) { expected_ = expected_ * 1664525U + constant; }

  // Work of both streams, of both kinds of code, with copies and fills between.
  CUgraphExec capture(std::uint32_t first, bool with_fill) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    must(cuda_.cuStreamBeginCapture_v2(quiet_, CU_STREAM_CAPTURE_MODE_RELAXED));
    step(step_, quiet_, first);
    must(cuda_.cuEventRecord(capture_event(), quiet_));
    must(cuda_.cuStreamWaitEvent(blocking_, capture_event(), 0));
    step(as_function(library_step_), blocking_, first + 1);
    if (with_fill) must(cuda_.cuMemsetD32Async(sms_, 7, kBlocks, blocking_));
    must(cuda_.cuEventRecord(capture_event(), blocking_));
    must(cuda_.cuStreamWaitEvent(quiet_, capture_event(), 0));
    step(step_, quiet_, first + 2);
    must(cuda_.cuStreamEndCapture(quiet_, &graph));
    must(cuda_.cuGraphInstantiateWithFlags(&exec, graph, 0));
    must(cuda_.cuGraphDestroy(graph));
    return exec;
  }
  void expect_capture(std::uint32_t first) {
    for (std::uint32_t i = 0; i < 3; ++i) expect_step(first + i);
  }
  CUevent capture_event() const { return events_[3]; }

  void capture_graphs() {
    captured_ = capture(100, true);
    must(cuda_.cuStreamBeginCapture_v2(quiet_, CU_STREAM_CAPTURE_MODE_RELAXED));
    void* parameters[] = {&sms_};
    must(cuda_.cuLaunchKernel(where_, kBlocks, 1, 1, 1, 1, 1, 0, quiet_, parameters, nullptr));
    CUgraph graph = nullptr;
    must(cuda_.cuStreamEndCapture(quiet_, &graph));
    must(cuda_.cuGraphInstantiateWithFlags(&captured_where_, graph, 0));
    kept_graph_ = graph;  // One that is there while its executable one is.
  }

  CUDA_KERNEL_NODE_PARAMS node_params(void** parameters) const {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.kern = library_step_;
    params.ctx = context_;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = kWords;
    params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = parameters;
    return params;
  }

  // Two steps, the second in a child graph; the first one's constant is changed from time to time.
  void build_graph() {
    std::uint32_t constant = 200;
    void* parameters[] = {&words_, &constant};
    CUDA_KERNEL_NODE_PARAMS params = node_params(parameters);
    CUgraph inner = nullptr;
    CUgraphNode in_child = nullptr;
    CUgraphNode child = nullptr;
    must(cuda_.cuGraphCreate(&built_graph_, 0));
    must(cuda_.cuGraphAddKernelNode_v2(&built_node_, built_graph_, nullptr, 0, &params));
    must(cuda_.cuGraphCreate(&inner, 0));
    constant = 201;
    params.kern = nullptr;
    params.ctx = nullptr;
    params.func = step_;
    must(cuda_.cuGraphAddKernelNode_v2(&in_child, inner, nullptr, 0, &params));
    must(cuda_.cuGraphAddChildGraphNode(&child, built_graph_, &built_node_, 1, inner));
    must(cuda_.cuGraphDestroy(inner));
    must(cuda_.cuGraphInstantiateWithFlags(&built_, built_graph_, 0));
  }
  void set_built(std::uint32_t constant) {
    void* parameters[] = {&words_, &constant};
    const CUDA_KERNEL_NODE_PARAMS params = node_params(parameters);
    must(cuda_.cuGraphExecKernelNodeSetParams_v2(built_, built_node_, &params));
    built_constant_ = constant;
  }

  // Everything behind what was before, in whatever stream that was.
  void order(CUstream before, CUstream after) {
    CUevent event = events_[next_event_++ % 3];
    must(cuda_.cuEventRecord(event, before));
    must(cuda_.cuStreamWaitEvent(after, event, 0));
  }

  void round(std::uint32_t i) {
    step(step_, quiet_, i);
    expect_step(i);
    order(quiet_, blocking_);
    step(as_function(library_step_), blocking_, i + 1);
    expect_step(i + 1);
    step(step_, nullptr, i + 2);  // Behind `blocking_` without being told.
    expect_step(i + 2);
    order(nullptr, CU_STREAM_PER_THREAD);
    step(step_, CU_STREAM_PER_THREAD, i + 3);
    expect_step(i + 3);
    order(CU_STREAM_PER_THREAD, quiet_);
    must(cuda_.cuGraphLaunch(captured_, quiet_));
    expect_capture(100);
    if (i % 5 == 1) set_built(i);
    order(quiet_, blocking_);
    must(cuda_.cuGraphLaunch(built_, blocking_));
    expect_step(built_constant_);
    expect_step(201);
    order(blocking_, quiet_);
    if (i % 7 == 3) short_lives(i);
    if (i % 3 == 0) must(cuda_.cuStreamSynchronize(quiet_));
  }

  // A stream, a graph and memory that come and go.
  void short_lives(std::uint32_t i) {
    CUgraphExec exec = capture(i, false);
    must(cuda_.cuGraphLaunch(exec, quiet_));
    expect_capture(i);
    CUstream stream = nullptr;
    must(cuda_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    order(quiet_, stream);
    step(step_, stream, i);
    expect_step(i);
    order(stream, quiet_);
    must(cuda_.cuStreamDestroy_v2(stream));
    must(cuda_.cuGraphExecDestroy(exec));
    CUdeviceptr address = 0;
    must(cuda_.cuMemAllocAsync(&address, 1 << 20, quiet_));
    must(cuda_.cuMemsetD32Async(address, 5, 1024, quiet_));
    must(cuda_.cuMemFreeAsync(address, quiet_));
  }

  std::string run(unsigned count) {
    for (unsigned i = 0; i < count; ++i) round(rounds_++);
    std::vector<std::uint32_t> found(kWords);
    must(cuda_.cuCtxSynchronize());
    must(cuda_.cuMemcpyDtoH_v2(found.data(), words_, kWords * 4));
    for (const std::uint32_t word : found) {
      if (word != expected_) return "differs after " + std::to_string(rounds_) + " rounds";
    }
    return "equal";
  }

  // Those in which the blocks of the last `where` ran.
  std::string used() {
    std::vector<std::uint32_t> at(kBlocks);
    must(cuda_.cuCtxSynchronize());
    must(cuda_.cuMemcpyDtoH_v2(at.data(), sms_, kBlocks * 4));
    std::set<std::uint32_t> groups;
    for (const std::uint32_t sm : at) groups.insert(sm / kGroupSms);
    std::string text;
    for (const std::uint32_t group : groups)
      text += (text.empty() ? "" : ",") + std::to_string(group);
    return text;
  }
  // The numbers of the multiprocessors in which a kernel's blocks ran, in a stream and in a graph.
  std::string at() {
    std::string all;
    for (const bool graph : {false, true}) {
      if (graph) must(cuda_.cuGraphLaunch(captured_where_, quiet_));
      if (!graph) where(blocking_);
      std::vector<std::uint32_t> at(kBlocks);
      must(cuda_.cuCtxSynchronize());
      must(cuda_.cuMemcpyDtoH_v2(at.data(), sms_, kBlocks * 4));
      for (const std::uint32_t sm : std::set<std::uint32_t>(at.begin(), at.end())) {
        all += std::to_string(sm) + " ";
      }
      all += graph ? "" : "| ";
    }
    return all;
  }
  void where(CUstream stream) {
    void* parameters[] = {&sms_};
    must(cuda_.cuLaunchKernel(where_, kBlocks, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }
  // In each stream, in a graph of a module's function, and in one of a library's kernel.
  std::string groups() {
    std::string all;
    for (CUstream stream : {quiet_, blocking_, CUstream{}, CU_STREAM_PER_THREAD}) {
      where(stream);
      all += used() + " ";
    }
    must(cuda_.cuGraphLaunch(captured_where_, quiet_));
    all += used() + " ";
    CUgraph graph = nullptr;
    if (library_exec_ == nullptr) {
      void* parameters[] = {&sms_};
      must(cuda_.cuStreamBeginCapture_v2(quiet_, CU_STREAM_CAPTURE_MODE_RELAXED));
      must(cuda_.cuLaunchKernel(as_function(library_where_), kBlocks, 1, 1, 1, 1, 1, 0, quiet_,
                                parameters, nullptr));
      must(cuda_.cuStreamEndCapture(quiet_, &graph));
      must(cuda_.cuGraphInstantiateWithFlags(&library_exec_, graph, 0));
      must(cuda_.cuGraphDestroy(graph));
    }
    must(cuda_.cuGraphLaunch(library_exec_, blocking_));
    return all + used();
  }

  // A capture that goes on between two commands.
  std::string begin() {
    must(cuda_.cuStreamBeginCapture_v2(quiet_, CU_STREAM_CAPTURE_MODE_RELAXED));
    where(quiet_);
    return "begun";
  }
  std::string end() {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    must(cuda_.cuStreamEndCapture(quiet_, &graph));
    must(cuda_.cuGraphInstantiateWithFlags(&exec, graph, 0));
    must(cuda_.cuGraphLaunch(exec, quiet_));
    const std::string text = used();
    must(cuda_.cuGraphExecDestroy(exec));
    must(cuda_.cuGraphDestroy(graph));
    return text;
  }

  // A green context of one group, made once: where its stream's work runs.
  std::string green() {
    if (green_stream_ == nullptr) {
      CUdevResource device{};
      CUdevResource group{};
      CUdevResource rest{};
      CUdevResourceDesc description = nullptr;
      CUgreenCtx green = nullptr;
      unsigned int count = 1;
      must(cuda_.cuDeviceGetDevResource(0, &device, CU_DEV_RESOURCE_TYPE_SM));
      must(cuda_.cuDevSmResourceSplitByCount(&group, &count, &device, &rest, 0, 1));
      must(cuda_.cuDevResourceGenerateDesc(&description, &group, 1));
      must(cuda_.cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
      must(cuda_.cuGreenCtxStreamCreate(&green_stream_, green, CU_STREAM_NON_BLOCKING, 0));
    }
    where(green_stream_);
    return used();
  }

  // A stream that waits for a word until "freed", with others that have work behind it or not.
  std::string held() {
    if (word_ == 0) must(cuda_.cuMemAlloc_v2(&word_, 4));
    must(cuda_.cuMemsetD32_v2(word_, 0, 1));
    must(cuda_.cuStreamWaitValue32_v2(blocking_, word_, 1, CU_STREAM_WAIT_VALUE_EQ));
    step(step_, blocking_, 9);
    expect_step(9);
    return "held";
  }
  std::string freed() {
    must(cuda_.cuStreamWriteValue32_v2(quiet_, word_, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    must(cuda_.cuStreamSynchronize(blocking_));
    return "freed";
  }

  // The attribute, which a program may take for constant, and what the device is now.
  std::string sms() {
    int count = 0;
    CUdevResource device{};
    must(cuda_.cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    must(cuda_.cuDeviceGetDevResource(0, &device, CU_DEV_RESOURCE_TYPE_SM));
    return std::to_string(count) + " " + std::to_string(device.sm.smCount);
  }

  const driver::Table cuda_ = client_table();
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUlibrary library_ = nullptr;
  CUfunction step_ = nullptr;
  CUfunction where_ = nullptr;
  CUkernel library_step_ = nullptr;
  CUkernel library_where_ = nullptr;
  CUdeviceptr words_ = 0;
  CUdeviceptr sms_ = 0;
  CUdeviceptr word_ = 0;
  CUstream quiet_ = nullptr;
  CUstream blocking_ = nullptr;
  CUstream green_stream_ = nullptr;
  std::array<CUevent, 4> events_{};
  unsigned next_event_ = 0;
  CUgraphExec captured_ = nullptr;
  CUgraphExec captured_where_ = nullptr;
  CUgraphExec library_exec_ = nullptr;
  CUgraph kept_graph_ = nullptr;
  CUgraph built_graph_ = nullptr;
  CUgraphNode built_node_ = nullptr;
  CUgraphExec built_ = nullptr;
  std::uint32_t built_constant_ = 200;
  std::uint32_t rounds_ = 0;
  std::uint32_t expected_ = 0;
};

}  // namespace

int run_mover() {
  Program program;
  const auto answer = [](auto work) {
    try {
      std::cout << work() << std::endl;
    } catch (const Failure& failure) {
      std::cout << "error " << failure.result << " in line " << failure.line << std::endl;
    }
  };
  answer([&] {
    program.start();
    return "ready";
  });
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    unsigned count = 0;
    words >> what >> count;
    answer([&] { return program.obey(what, count); });
  }
  return EXIT_SUCCESS;
}

}  // namespace flyt::tests
