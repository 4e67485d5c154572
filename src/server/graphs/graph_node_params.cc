#include "server/graphs/graph_node_params.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "cuda/graph_allocation.h"
#include "server/client_names.h"
#include "server/graphs/graph_image.h"
#include "server/graphs/graphs.h"
#include "server/memory/images.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server {
namespace {

constexpr unsigned kWordsMax = 255;
constexpr unsigned kBodiesMax = 4096;
constexpr std::size_t kAccessMax = 64;

// From the first byte of a box to behind its last one.
struct Reach {
  std::uint64_t first = 0;
  std::uint64_t bytes = 0;
};

std::optional<std::uint64_t> plus_product(std::uint64_t base, std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  std::uint64_t sum = 0;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(base, product, &sum)) {
    return std::nullopt;
  }
  return sum;
}

struct CopySide {
  CUmemorytype& type;
  const void* host;
  CUdeviceptr device;
  CUarray& array;
  std::uint64_t x, y, z, pitch, height;
};

// Where a row begins, x bytes, y rows and z slices behind a base.
std::optional<std::uint64_t> row_at(const CopySide& side, std::uint64_t pitch, std::uint64_t height,
                                    std::uint64_t y, std::uint64_t z) {
  const bool host = side.type == CU_MEMORYTYPE_HOST;
  const auto slice = plus_product(0, pitch, height);
  auto at = plus_product(host ? address_of(side.host) : side.device, side.x, 1);
  if (at) at = plus_product(*at, pitch, y);
  return at && slice ? plus_product(*at, *slice, z) : std::nullopt;
}

// What a pitch or height that is 0, or less than the box needs, stands for is for the driver to
// say: nothing at all, as it is, or as much as is needed. So all of that counts.
std::optional<Reach> reach_of(const CopySide& side, const CUDA_MEMCPY3D& copy) {
  const auto row_end = plus_product(side.x, copy.WidthInBytes, 1);
  const auto column_end = plus_product(side.y, copy.Height, 1);
  const auto slice_end = plus_product(side.z, copy.Depth, 1);
  if (!row_end || !column_end || !slice_end) return std::nullopt;
  const std::uint64_t pitch = std::max(side.pitch, *row_end);
  const std::uint64_t height = std::max(side.height, *column_end);
  const auto first = row_at(side, side.pitch, side.height, side.y, side.z);
  const auto last = row_at(side, pitch, height, *column_end - 1, *slice_end - 1);
  const auto end = last ? plus_product(*last, copy.WidthInBytes, 1) : std::nullopt;
  if (!first || !end) return std::nullopt;
  return Reach{*first, *end - *first};
}

CUresult admit_side(const Request& request, const CUDA_MEMCPY3D& copy, const CopySide& side) {
  Session& session = request.session();
  if (side.type == CU_MEMORYTYPE_ARRAY) {
    const Handles::Entry entry =
        session.handles().entry(wire::HandleKind::kArray, address_of(side.array));
    if (!entry) return CUDA_ERROR_INVALID_HANDLE;
    const auto& owner = static_cast<const ImageOwner&>(*entry.attachment);
    side.array = static_cast<CUarray>(entry.native);
    return owner.extent.holds(side.x, side.y, side.z, copy.WidthInBytes, copy.Height, copy.Depth)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
  }
  side.array = nullptr;
  const auto reach = reach_of(side, copy);
  if (!reach || !session.regions().allowed(reach->first, reach->bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  session.memory().open_to_current(reach->first);
  return session.memory().host_mirror.note_in_graphs(reach->first, reach->bytes)
             ? CUDA_SUCCESS
             : CUDA_ERROR_OUT_OF_MEMORY;
}

// An enum from bytes of a peer, which may be none of its values.
bool in_range(const void* value, std::uint32_t first, std::uint32_t last) {
  std::uint32_t number = 0;
  std::memcpy(&number, value, sizeof number);
  return number >= first && number <= last;
}

CUresult admit_context(const Request& request, CUcontext& context) {
  return context == nullptr || request.resolve(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult admit_event(const Request& request, CUevent& event) {
  const Handles::Entry entry =
      request.session().handles().entry(wire::HandleKind::kEvent, address_of(event));
  if (!entry) return CUDA_ERROR_INVALID_HANDLE;
  static_cast<const EventOwner&>(*entry.attachment).note_in_graphs();
  event = static_cast<CUevent>(entry.native);
  return CUDA_SUCCESS;
}

CUresult admit_word(const Request& request, CUstreamBatchMemOpParams& word) {
  if (!in_range(&word, 0, 0xff)) return CUDA_ERROR_INVALID_VALUE;
  const CUstreamBatchMemOpType operation = word.operation;
  const bool wide =
      operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  const bool narrow =
      operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation == CU_STREAM_MEM_OP_WRITE_VALUE_32;
  if (!wide && !narrow) return CUDA_ERROR_NOT_SUPPORTED;
  const std::uint64_t bytes = wide ? 8 : 4;
  word.waitValue.alias = 0;
  const std::uint64_t address = word.waitValue.address;
  return address % bytes == 0 && request.session().regions().allowed(address, bytes)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

template <class T>
bool take_array(Bytes data, std::uint64_t count, std::uint64_t count_max, std::vector<T>& out) {
  if (count > count_max || data.size() != count * sizeof(T)) return false;
  out.resize(count);
  if (count != 0) std::memcpy(static_cast<void*>(out.data()), data.data(), data.size());
  return true;
}

}  // namespace

CUresult admit_copy(const Request& request, CUDA_MEMCPY3D& copy) {
  if (!in_range(&copy.srcMemoryType, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED) ||
      !in_range(&copy.dstMemoryType, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED) ||
      copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  copy.reserved0 = copy.reserved1 = nullptr;
  const CopySide from{copy.srcMemoryType, copy.srcHost,     copy.srcDevice,
                      copy.srcArray,      copy.srcXInBytes, copy.srcY,
                      copy.srcZ,          copy.srcPitch,    copy.srcHeight};
  const CopySide to{copy.dstMemoryType, copy.dstHost,     copy.dstDevice,
                    copy.dstArray,      copy.dstXInBytes, copy.dstY,
                    copy.dstZ,          copy.dstPitch,    copy.dstHeight};
  const CUresult bad = admit_side(request, copy, from);
  return bad == CUDA_SUCCESS ? admit_side(request, copy, to) : bad;
}

namespace {

// Where a kernel finds its parameter of a number; false behind the last.
bool parameter_of(const driver::Table& driver, CUfunction function, CUkernel kernel,
                  std::size_t index, std::size_t& offset, std::size_t& size) {
  if (function != nullptr) {
    return driver.cuFuncGetParamInfo != nullptr &&
           driver.cuFuncGetParamInfo(function, index, &offset, &size) == CUDA_SUCCESS;
  }
  return driver.cuKernelGetParamInfo != nullptr &&
         driver.cuKernelGetParamInfo(kernel, index, &offset, &size) == CUDA_SUCCESS;
}

}  // namespace

CUresult GraphNodeParams::take(Request& request, Bytes parameters, Bytes data) {
  if (parameters.size() != sizeof params_ ||
      !in_range(parameters.data(), CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_CONDITIONAL)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(static_cast<void*>(&params_), parameters.data(), sizeof params_);
  type_ = params_.type;
  return take_kind(request, data);
}

namespace {

// What comes beside the parameters of a node.
bool has_data(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_HOST ||
         type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
}

}  // namespace

CUresult GraphNodeParams::take_kind(Request& request, Bytes data) {
  if (data.size() > kNodeDataBytesMax || (!data.empty() && !has_data(type_))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (type_) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return take_kernel(request, data);
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      const CUresult bad = admit_context(request, params_.memcpy.copyCtx);
      return bad == CUDA_SUCCESS ? admit_copy(request, params_.memcpy.copyParams) : bad;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return take_memset(request);
    case CU_GRAPH_NODE_TYPE_HOST:
      return take_host(request, data);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return take_child(request);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return admit_event(request, params_.eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return admit_event(request, params_.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return take_allocation(request, data);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return request.session().regions().allowed(params_.free.dptr, 1) ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return take_words(request, data);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      params_.conditional.phGraph_out = nullptr;
      if (!in_range(&params_.conditional.type, CU_GRAPH_COND_TYPE_IF, CU_GRAPH_COND_TYPE_SWITCH) ||
          params_.conditional.size > kBodiesMax ||
          !request.session().graphs().has_conditional(params_.conditional.handle)) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      return admit_context(request, params_.conditional.ctx);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

void GraphNodeParams::name_context(const Request& request) {
  CUcontext* context = nullptr;
  if (type_ == CU_GRAPH_NODE_TYPE_MEMCPY) context = &params_.memcpy.copyCtx;
  if (type_ == CU_GRAPH_NODE_TYPE_MEMSET) context = &params_.memset.ctx;
  if (context == nullptr || *context != nullptr || request.context() == 0) return;
  const Handles& handles = request.session().handles();
  *context =
      static_cast<CUcontext>(handles.find_index(wire::HandleKind::kContext, request.context()));
}

CUresult GraphNodeParams::take_kernel(const Request& request, Bytes data) {
  CUDA_KERNEL_NODE_PARAMS_v3& kernel = params_.kernel;
  // NVIDIA's driver takes the current context without looking whether there is one.
  if (kernel.ctx == nullptr && request.context() == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult bad = admit_context(request, kernel.ctx); bad != CUDA_SUCCESS) return bad;
  if (kernel.func != nullptr && !request.resolve(kernel.func)) return CUDA_ERROR_INVALID_HANDLE;
  if (kernel.kern != nullptr && !request.resolve(kernel.kern)) return CUDA_ERROR_INVALID_HANDLE;
  if (kernel.func == nullptr && kernel.kern == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return lay_out(request.driver(), data);
}

// One by one, because NVIDIA's driver gives no attributes to a node whose parameters came as one
// buffer. Drivers that cannot tell where each lies get the buffer.
CUresult GraphNodeParams::lay_out(const driver::Table& driver, Bytes data) {
  CUDA_KERNEL_NODE_PARAMS_v3& kernel = params_.kernel;
  auto* const bytes = const_cast<std::byte*>(data.data());
  kernel_bytes_ = data.size();
  extra_ = {CU_LAUNCH_PARAM_BUFFER_POINTER, bytes, CU_LAUNCH_PARAM_BUFFER_SIZE, &kernel_bytes_,
            CU_LAUNCH_PARAM_END};
  std::size_t offset = 0;
  std::size_t size = 0;
  while (parameter_of(driver, kernel.func, kernel.kern, separate_.size(), offset, size)) {
    if (offset > data.size() || size > data.size() - offset) return CUDA_ERROR_INVALID_VALUE;
    separate_.push_back(bytes + offset);
  }
  kernel.kernelParams = separate_.empty() ? nullptr : separate_.data();
  kernel.extra = !separate_.empty() || data.empty() ? nullptr : extra_.data();
  return CUDA_SUCCESS;
}

CUresult GraphNodeParams::take_memset(const Request& request) {
  CUDA_MEMSET_NODE_PARAMS_v2& fill = params_.memset;
  if (const CUresult bad = admit_context(request, fill.ctx); bad != CUDA_SUCCESS) return bad;
  if (fill.width == 0 || fill.height == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto width = plus_product(0, fill.width, fill.elementSize);
  // A driver may take a pitch that is too small for one that is large enough.
  const auto bytes =
      width ? plus_product(*width, std::max<std::uint64_t>(fill.pitch, *width), fill.height - 1)
            : std::nullopt;
  if (!bytes || !request.session().regions().allowed(fill.dst, *bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return request.session().memory().host_mirror.note_in_graphs(fill.dst, *bytes)
             ? CUDA_SUCCESS
             : CUDA_ERROR_OUT_OF_MEMORY;
}

// `data`: the client's name for its function.
CUresult GraphNodeParams::take_host(Request& request, Bytes data) {
  Reader reader(data);
  const auto function = reader.take<std::uint64_t>();
  if (!reader.ok() || reader.remaining() != 0) return CUDA_ERROR_INVALID_VALUE;
  void* entry = request.session().memory().host_calls.graph_function(function);
  if (entry == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  params_.host.fn = &HostCalls::run_graph_function;
  params_.host.userData = entry;
  return CUDA_SUCCESS;
}

CUresult GraphNodeParams::take_words(const Request& request, Bytes data) {
  CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& batch = params_.memOp;
  if (const CUresult bad = admit_context(request, batch.ctx); bad != CUDA_SUCCESS) return bad;
  if (!take_array(data, batch.count, kWordsMax, words_)) return CUDA_ERROR_INVALID_VALUE;
  for (CUstreamBatchMemOpParams& word : words_) {
    if (const CUresult bad = admit_word(request, word); bad != CUDA_SUCCESS) return bad;
  }
  words_.reserve(1);  // None are not null.
  batch.paramArray = words_.data();
  return CUDA_SUCCESS;
}

namespace {

// Memory of a device that there is: what is elsewhere nobody has counted.
CUresult admit_location(const Request& request, const CUmemLocation& location) {
  if (!in_range(&location.type, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  int devices = 0;
  const CUresult result = request.driver().cuDeviceGetCount(&devices);
  if (result != CUDA_SUCCESS) return result;
  return location.id >= 0 && location.id < devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

CUresult GraphNodeParams::take_allocation(Request& request, Bytes data) {
  CUDA_MEM_ALLOC_NODE_PARAMS_v2& alloc = params_.alloc;
  if (!take_array(data, alloc.accessDescCount, kAccessMax, access_)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUmemPoolProps& props = alloc.poolProps;
  int devices = 0;
  CUresult bad = request.driver().cuDeviceGetCount(&devices);
  if (bad == CUDA_SUCCESS) bad = cuda::check_graph_allocation(props, devices);
  for (const CUmemAccessDesc& access : access_) {
    if (bad == CUDA_SUCCESS) bad = admit_location(request, access.location);
    if (!in_range(&access.flags, CU_MEM_ACCESS_FLAGS_PROT_NONE,
                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
      bad = CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (bad != CUDA_SUCCESS) return bad;
  props.win32SecurityAttributes = nullptr;
  alloc.accessDescs = access_.empty() ? nullptr : access_.data();
  alloc.dptr = 0;
  return CUDA_SUCCESS;
}

CUresult GraphNodeParams::take_child(const Request& request) {
  child_ = address_of(params_.graph.graph);
  params_.graph.graph = request.session().graphs().graph(child_);
  const bool good = params_.graph.graph != nullptr &&
                    in_range(&params_.graph.ownership, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE,
                             CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

namespace {

// The parameters of a kernel, packed as it lays them out. Drivers tell them one by one, or as the
// buffer that they were given.
void pack_parameters(const driver::Table& driver, const CUDA_KERNEL_NODE_PARAMS_v2& kernel,
                     std::vector<std::byte>& data) {
  for (std::size_t index = 0; kernel.kernelParams != nullptr; ++index) {
    std::size_t offset = 0;
    std::size_t size = 0;
    if (!parameter_of(driver, kernel.func, kernel.kern, index, offset, size)) break;
    if (offset + size > kNodeDataBytesMax) return;
    data.resize(std::max(data.size(), offset + size));
    std::memcpy(data.data() + offset, kernel.kernelParams[index], size);
  }
  const std::byte* buffer = nullptr;
  std::size_t bytes = 0;
  for (void** at = kernel.extra; at != nullptr && *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = static_cast<const std::byte*>(at[1]);
    if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<const std::size_t*>(at[1]);
  }
  if (buffer != nullptr && bytes <= kNodeDataBytesMax) data.assign(buffer, buffer + bytes);
}

CUresult describe_kernel_node(const driver::Table& driver, const ClientNames& names,
                              CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v3& out,
                              std::vector<std::byte>& data) {
  CUDA_KERNEL_NODE_PARAMS_v2 told{};
  const CUresult result = driver.cuGraphKernelNodeGetParams_v2(node, &told);
  if (result != CUDA_SUCCESS) return result;
  pack_parameters(driver, told, data);
  names.rename(wire::HandleKind::kFunction, told.func);
  names.rename(wire::HandleKind::kKernel, told.kern);
  names.rename(wire::HandleKind::kContext, told.ctx);
  out = {told.func,      told.gridDimX,  told.gridDimY,  told.gridDimZ,
         told.blockDimX, told.blockDimY, told.blockDimZ, told.sharedMemBytes,
         nullptr,        nullptr,        told.kern,      told.ctx};
  return CUDA_SUCCESS;
}

CUresult describe_words(const driver::Table& driver, const ClientNames& names, CUgraphNode node,
                        CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& out, std::vector<std::byte>& data) {
  CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 told{};
  const CUresult result = driver.cuGraphBatchMemOpNodeGetParams(node, &told);
  if (result != CUDA_SUCCESS) return result;
  const Bytes words = bytes_at(told.paramArray, told.count * sizeof(CUstreamBatchMemOpParams));
  data.assign(words.begin(), words.end());
  names.rename(wire::HandleKind::kContext, told.ctx);
  out = {told.ctx, told.count, nullptr, told.flags};
  return CUDA_SUCCESS;
}

CUresult describe_allocation(Session& session, CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS_v2& out,
                             std::vector<std::byte>& data) {
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 told{};
  const CUresult result = session.driver().cuGraphMemAllocNodeGetParams(node, &told);
  if (result != CUDA_SUCCESS) return result;
  if (told.accessDescs == nullptr || told.accessDescCount > kAccessMax) told.accessDescCount = 0;
  const Bytes access = bytes_at(told.accessDescs, told.accessDescCount * sizeof(CUmemAccessDesc));
  data.assign(access.begin(), access.end());
  told.poolProps.win32SecurityAttributes = nullptr;
  out = {told.poolProps, nullptr, told.accessDescCount, told.bytesize, told.dptr};
  return CUDA_SUCCESS;
}

CUresult describe_copy_node(const driver::Table& driver, const ClientNames& names, CUgraphNode node,
                            CUDA_MEMCPY3D& copy) {
  const CUresult result = driver.cuGraphMemcpyNodeGetParams(node, &copy);
  names.rename(wire::HandleKind::kArray, copy.srcArray);
  names.rename(wire::HandleKind::kArray, copy.dstArray);
  return result;
}

CUresult describe_fill_node(Session& session, CUgraphNode node, CUDA_MEMSET_NODE_PARAMS_v2& out) {
  CUDA_MEMSET_NODE_PARAMS_v1 told{};
  const CUresult result = session.driver().cuGraphMemsetNodeGetParams(node, &told);
  out = {told.dst, told.pitch, told.value, told.elementSize, told.width, told.height, nullptr};
  return result;
}

CUresult describe_host_node(Session& session, CUgraphNode node, std::vector<std::byte>& data) {
  CUDA_HOST_NODE_PARAMS told{};
  const CUresult result = session.driver().cuGraphHostNodeGetParams(node, &told);
  if (result != CUDA_SUCCESS) return result;
  const std::uint64_t function = session.memory().host_calls.name_of(told.userData);
  const Bytes name = bytes_at(&function, sizeof function);
  data.assign(name.begin(), name.end());
  return CUDA_SUCCESS;
}

CUresult describe_child(Session& session, CUgraphNode node, CUgraph& out) {
  CUgraph native = nullptr;
  const CUresult result = session.driver().cuGraphChildGraphNodeGetGraph(node, &native);
  if (result != CUDA_SUCCESS) return result;
  Graphs& graphs = session.graphs();
  out = static_cast<CUgraph>(pointer_at(graphs.name_graph(native, graphs.name_node(node, 0))));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult describe_node(Session& session, const ClientNames& names, CUgraphNode node,
                       std::int32_t type, CUgraphNodeParams& params, std::vector<std::byte>& data) {
  const driver::Table& driver = session.driver();
  CUgraphNodeType own{};
  const CUresult asked = driver.cuGraphNodeGetType(node, &own);
  if (asked != CUDA_SUCCESS) return asked;
  if (static_cast<std::int32_t>(own) != type) return CUDA_ERROR_INVALID_VALUE;
  params.type = own;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  switch (own) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return describe_kernel_node(driver, names, node, params.kernel, data);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return describe_copy_node(driver, names, node, params.memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return describe_fill_node(session, node, params.memset);
    case CU_GRAPH_NODE_TYPE_HOST:
      return describe_host_node(session, node, data);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return describe_child(session, node, params.graph.graph);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      result = driver.cuGraphEventWaitNodeGetEvent(node, &params.eventWait.event);
      names.rename(wire::HandleKind::kEvent, params.eventWait.event);
      return result;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      result = driver.cuGraphEventRecordNodeGetEvent(node, &params.eventRecord.event);
      names.rename(wire::HandleKind::kEvent, params.eventRecord.event);
      return result;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return describe_allocation(session, node, params.alloc, data);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return driver.cuGraphMemFreeNodeGetParams(node, &params.free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return describe_words(driver, names, node, params.memOp, data);
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      break;
  }
  return result;
}

}  // namespace flyt::server
