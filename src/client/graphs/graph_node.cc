#include "client/graphs/graph_node.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "client/call.h"
#include "client/code/launch.h"
#include "client/graphs/graphs.h"
#include "client/hooks_library.h"
#include "client/memory_state.h"
#include "client/transfers/box_copy.h"
#include "commands/graph.h"
#include "cuda/graph_allocation.h"

namespace flyt::client {
namespace {

constexpr unsigned kWordsMax = 255;

// What a function is, or a kernel in its place; null for neither.
std::shared_ptr<const KernelCode> code_of(std::uint64_t handle) {
  CodeState& code = session().code();
  if (const FunctionState* function = code.functions.find(handle)) return function->code;
  const KernelState* kernel = code.kernels.find(handle);
  return kernel != nullptr ? kernel->code : nullptr;
}

// Where the GPU finds device memory or page-locked host memory. False: nowhere.
bool find_for_gpu(std::uint64_t& address, std::uint64_t bytes) {
  MemoryState& memory = session().memory();
  MemoryMap::Placed placed = memory.map().place(address, bytes);
  if (placed.place == MemoryMap::Place::kPinned && !placed.memory.mirrored) {
    if (memory.mirror().begin(address) != CUDA_SUCCESS) return false;
    placed = memory.map().place(address, bytes);
  }
  if (!placed.on_gpu_or_pinned()) return false;
  address = placed.memory.device_address(address);
  return true;
}

// The last byte of a box, from its first one.
std::uint64_t extent(const BoxCopy& copy, const BoxSide& side) {
  return (copy.slices - 1) * side.slice_pitch + (copy.rows - 1) * side.pitch + copy.width;
}

// One side of a copy, as a program gives it.
struct GivenSide {
  CUmemorytype type;
  const void*& host;
  CUdeviceptr& device;
  std::size_t& x_bytes;
  std::size_t& y;
  std::size_t& z;

  bool on_host() const { return type == CU_MEMORYTYPE_HOST; }
  std::uint64_t base() const { return on_host() ? address_of(host) : device; }
  void set_base(std::uint64_t address) {
    if (on_host()) {
      host = pointer_at(address);
    } else {
      device = address;
    }
  }
};

GivenSide source_of(CUDA_MEMCPY3D& copy) {
  return {copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcXInBytes, copy.srcY, copy.srcZ};
}

// Whose `host` is kept in `host` meanwhile: a structure for both sides has constant memory.
GivenSide target_of(CUDA_MEMCPY3D& copy, const void*& host) {
  host = copy.dstHost;
  return {copy.dstMemoryType, host, copy.dstDevice, copy.dstXInBytes, copy.dstY, copy.dstZ};
}

// Memory that CUDA does not know is lent from the box's first byte on, and named by that: what lies
// before it may be no address that the server's driver takes.
CUresult lend_side(const BoxCopy& box, const BoxSide& side, LentMemories& lent, GivenSide& given) {
  MemoryState& memory = session().memory();
  std::uint64_t address = 0;
  std::uint64_t loan = 0;
  const CUresult result = memory.mirror().borrow(side.address, extent(box, side), address, loan);
  if (result != CUDA_SUCCESS) return result;
  const LentRows rows{side.address, box.width, box.rows, side.pitch, box.slices, side.slice_pitch};
  const LentOrigin origin{given.base(), given.x_bytes, given.y, given.z};
  lent.insert(std::make_shared<LentMemory>(memory.mirror(), loan, rows, origin, &side == &box.to));
  given.x_bytes = given.y = given.z = 0;
  given.set_base(address);
  return CUDA_SUCCESS;
}

CUresult check_event(CUevent event) {
  return event == nullptr ? CUDA_ERROR_INVALID_VALUE : check(event);
}

// Host memory of one side; device memory that is mirrored has its address already.
CUresult take_side(const BoxCopy& box, const BoxSide& side, LentMemories& lent, GivenSide given) {
  if (given.type == CU_MEMORYTYPE_ARRAY) return CUDA_SUCCESS;
  std::uint64_t distance = side.distance;
  if (side.memory == BoxSide::Memory::kHost) {
    const std::uint64_t bytes = extent(box, side);
    std::uint64_t address = side.address;
    if (session().memory().map().place(address, bytes).place != MemoryMap::Place::kPinned) {
      return lend_side(box, side, lent, given);
    }
    if (!find_for_gpu(address, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    distance = address - side.address;
  }
  given.set_base(given.base() + distance);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult take_graph_copy(CUDA_MEMCPY3D& copy, LentMemories& lent) {
  MemoryState& memory = session().memory();
  BoxCopy box;
  CUresult result = make_box_copy({memory.map(), memory.images.arrays}, copy, box);
  if (result != CUDA_SUCCESS) return result;
  if (box.empty()) return CUDA_ERROR_INVALID_VALUE;
  result = take_side(box, box.from, lent, source_of(copy));
  if (result != CUDA_SUCCESS) return result;
  const void* to = nullptr;
  result = take_side(box, box.to, lent, target_of(copy, to));
  copy.dstHost = const_cast<void*>(to);
  return result;
}

CUresult GraphNode::take(const CUgraphNodeParams& given) {
  params_ = given;
  switch (params_.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return take_kernel();
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      // Its memory is reached from its own context.
      const ContextScope scope(session().contexts().find(params_.memcpy.copyCtx));
      return take_graph_copy(params_.memcpy.copyParams, lent_);
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return take_memset();
    case CU_GRAPH_NODE_TYPE_HOST:
      return take_host();
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return check_event(params_.eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
      const CUresult no = check_event(params_.eventRecord.event);
      if (no != CUDA_SUCCESS) return no;
      session().memory().events.find(address_of(params_.eventRecord.event))->in_graphs = true;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return take_words();
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return take_access();
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return refused("CU_GRAPH_NODE_TYPE_EXT_SEMAS",
                     "external memory and semaphores are not remoted");
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult GraphNode::take_kernel() {
  CUDA_KERNEL_NODE_PARAMS_v3& kernel = params_.kernel;
  const bool by_kernel = kernel.func == nullptr;
  const std::uint64_t handle = by_kernel ? address_of(kernel.kern) : address_of(kernel.func);
  if (!by_kernel) kernel.kern = nullptr;
  const auto code = code_of(handle);
  if (code == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto packed = std::make_unique<PackedParameters>();
  const CUresult no = packed->pack(*code, kernel.kernelParams, kernel.extra);
  if (no != CUDA_SUCCESS) return no;
  own_.assign(packed->bytes().begin(), packed->bytes().end());
  data_ = own_;
  session().memory().mirror().begin_all_in(data_);
  return CUDA_SUCCESS;
}

CUresult GraphNode::take_memset() {
  CUDA_MEMSET_NODE_PARAMS_v2& fill = params_.memset;
  std::uint64_t address = fill.dst;
  std::uint64_t row = 0;
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(fill.width, std::uint64_t{fill.elementSize}, &row)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t rows_before = fill.height == 0 ? 0 : fill.height - 1;
  if (__builtin_mul_overflow(std::max<std::uint64_t>(fill.pitch, row), rows_before, &bytes) ||
      __builtin_add_overflow(bytes, row, &bytes) ||
      !find_for_gpu(address, std::max<std::uint64_t>(bytes, 1))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  fill.dst = address;
  return CUDA_SUCCESS;
}

CUresult GraphNode::take_host() {
  if (params_.host.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t name = session().graphs().name_of(params_.host.fn, params_.host.userData);
  const Bytes bytes = bytes_at(&name, sizeof name);
  own_.assign(bytes.begin(), bytes.end());
  data_ = own_;
  return CUDA_SUCCESS;
}

CUresult GraphNode::take_words() {
  const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& batch = params_.memOp;
  if (batch.count > kWordsMax || batch.paramArray == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<CUstreamBatchMemOpParams> words(batch.paramArray, batch.paramArray + batch.count);
  for (CUstreamBatchMemOpParams& word : words) {
    const bool wide = word.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                      word.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    std::uint64_t address = word.waitValue.address;
    const auto memory = session().memory().map().find(address);
    if (memory && !memory->takes_words()) return CUDA_ERROR_INVALID_VALUE;
    if (!find_for_gpu(address, wide ? 8 : 4)) return CUDA_ERROR_INVALID_VALUE;
    word.waitValue.address = address;
  }
  const Bytes bytes = bytes_at(words.data(), words.size() * sizeof words[0]);
  own_.assign(bytes.begin(), bytes.end());
  data_ = own_;
  return CUDA_SUCCESS;
}

CUresult GraphNode::take_access() {
  const CUDA_MEM_ALLOC_NODE_PARAMS_v2& alloc = params_.alloc;
  const CUresult unfit = cuda::check_graph_allocation(alloc.poolProps, session().devices().count());
  if (unfit == CUDA_ERROR_NOT_SUPPORTED) {
    return refused("CU_GRAPH_NODE_TYPE_MEM_ALLOC", "graphs allocate a device's own memory alone");
  }
  if (unfit != CUDA_SUCCESS) return unfit;
  constexpr std::size_t kAccessMax = 64;
  if (alloc.accessDescCount > kAccessMax ||
      (alloc.accessDescCount != 0 && alloc.accessDescs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  data_ = bytes_at(alloc.accessDescs, alloc.accessDescCount * sizeof(CUmemAccessDesc));
  return CUDA_SUCCESS;
}

namespace {

template <class T>
std::vector<T> array_of(Bytes bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// Where the program has what the server told as an address of the GPU's.
std::uint64_t as_given(std::uint64_t address) {
  MemoryState& memory = session().memory();
  return memory.mirror().active() ? memory.mirror().host_address(address) : address;
}

void fill_kernel(CUDA_KERNEL_NODE_PARAMS_v3& kernel, ToldNode& told) {
  // A kernel of a library has a function in each context; the driver tells that one, too.
  if (kernel.func == nullptr && kernel.kern != nullptr && thread_state().current_state != nullptr) {
    static_cast<void>(hooks::cuKernelGetFunction(&kernel.func, kernel.kern));
  }
  told.function = kernel.func != nullptr ? address_of(kernel.func) : address_of(kernel.kern);
  const auto code = code_of(told.function);
  if (code == nullptr || code->parameter_bytes > told.data.size()) return;
  for (const Parameter& parameter : code->parameters) {
    told.pointers.push_back(told.data.data() + parameter.offset);
  }
}

void give_side(GivenSide side, std::uint64_t graph) {
  if (side.type == CU_MEMORYTYPE_ARRAY) return;
  const std::uint64_t told = side.base();
  const std::uint64_t base = as_given(told);
  side.set_base(base);
  if (base == told) return;
  const auto origin = session().graphs().origin_of(graph, base);
  if (!origin) return;
  side.set_base(origin->base);
  side.x_bytes = origin->x_bytes;
  side.y = origin->y;
  side.z = origin->z;
}

void give_copy(CUDA_MEMCPY3D& copy, std::uint64_t graph) {
  give_side(source_of(copy), graph);
  const void* to = nullptr;
  give_side(target_of(copy, to), graph);
  copy.dstHost = const_cast<void*>(to);
}

void fill_words(ToldNode& told) {
  told.words = array_of<CUstreamBatchMemOpParams>(told.data);
  for (CUstreamBatchMemOpParams& word : told.words) {
    word.waitValue.address = as_given(word.waitValue.address);
  }
}

// What the program gets, but for what point() adds.
void give(CUgraphNodeParams& out, std::uint64_t graph, ToldNode& told) {
  switch (out.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return fill_kernel(out.kernel, told);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return give_copy(out.memcpy.copyParams, graph);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      out.memset.dst = as_given(out.memset.dst);
      return;
    case CU_GRAPH_NODE_TYPE_HOST: {
      std::uint64_t name = 0;
      std::memcpy(&name, told.data.data(), std::min(sizeof name, told.data.size()));
      std::tie(out.host.fn, out.host.userData) = session().graphs().function_of(name);
      return;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return session().graphs().put_within(address_of(out.graph.graph), graph);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      told.access = array_of<CUmemAccessDesc>(told.data);
      return;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return fill_words(told);
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return;
  }
}

// What the program may read until the node has other parameters.
void point(CUgraphNodeParams& out, ToldNode& kept) {
  if (out.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    out.kernel.kernelParams = kept.pointers.empty() ? nullptr : kept.pointers.data();
    out.kernel.extra = nullptr;
  } else if (out.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    out.alloc.accessDescCount = kept.access.size();
    out.alloc.accessDescs = kept.access.empty() ? nullptr : kept.access.data();
  } else if (out.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
    out.memOp.count = static_cast<unsigned int>(kept.words.size());
    out.memOp.paramArray = kept.words.empty() ? nullptr : kept.words.data();
  }
}

}  // namespace

CUresult ask_graph_node(CUgraphNode node, CUgraphNodeType type, CUgraphNodeParams& out) {
  commands::GetGraphNode::Reply reply;
  rpc::Reply answer;
  const CUresult result =
      ask(commands::GetGraphNode{.node = address_of(node), .type = static_cast<std::int32_t>(type)},
          reply, answer);
  if (result != CUDA_SUCCESS) return result;
  if (reply.parameters.size() != sizeof out) return CUDA_ERROR_UNKNOWN;
  std::memcpy(static_cast<void*>(&out), reply.parameters.data(), sizeof out);
  out.type = type;
  auto told = std::make_unique<ToldNode>();
  told->data.assign(reply.data.begin(), reply.data.end());
  Graphs& graphs = session().graphs();
  give(out, reply.graph, *told);
  point(out, graphs.keep(reply.graph, address_of(node), std::move(told)));
  return CUDA_SUCCESS;
}

}  // namespace flyt::client
