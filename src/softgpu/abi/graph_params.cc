#include "softgpu/abi/graph_params.h"

namespace flyt::softgpu {

CUresult read_context(Driver& driver, CUcontext handle, std::uint64_t* out) {
  std::shared_ptr<Context> context;
  if (handle == nullptr) {
    const CUresult bad = current_context(driver, context);
    if (bad != CUDA_SUCCESS) return bad;
  } else {
    context = driver.contexts().find(from_handle(handle));
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  }
  *out = context->handle();
  return CUDA_SUCCESS;
}

namespace {

// Where kernels of a context run; null: anywhere.
std::shared_ptr<const SmSet> sms_of(Driver& driver, CUcontext handle) {
  std::shared_ptr<Context> context;
  std::shared_ptr<Partition> partition;
  const CUresult bad = named_partition(driver, handle, context, partition);
  return bad == CUDA_SUCCESS ? partition->sms() : nullptr;
}

// The function that the parameters name, directly or by a kernel and a context.
CUresult find_node_function(Driver& driver, const CUDA_KERNEL_NODE_PARAMS_v2& params,
                            KernelWork& out) {
  const bool by_kernel = params.func == nullptr;
  const std::uint64_t handle = by_kernel ? from_handle(params.kern) : from_handle(params.func);
  if (driver.kernels().find(handle) == nullptr) {
    out.function = by_kernel ? nullptr : driver.functions().find(handle);
    return out.function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  }
  std::uint64_t context = 0;
  if (const CUresult bad = read_context(driver, params.ctx, &context); bad != CUDA_SUCCESS) {
    return bad;
  }
  if (by_kernel) out.request.sms = sms_of(driver, params.ctx);
  const auto found = driver.contexts().find(context);
  if (found == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return find_function(driver, *found, to_handle<CUfunction>(handle), true, out.function);
}

}  // namespace

CUresult read_kernel(Driver& driver, const CUDA_KERNEL_NODE_PARAMS_v2& params, KernelWork& out) {
  if (const CUresult bad = find_node_function(driver, params, out); bad != CUDA_SUCCESS) return bad;
  const Function& function = *out.function;
  out.context = function.module()->context();
  out.func = params.func;
  out.kern = params.func == nullptr ? params.kern : nullptr;
  out.request.grid = {params.gridDimX, params.gridDimY, params.gridDimZ};
  out.request.block = {params.blockDimX, params.blockDimY, params.blockDimZ};
  out.request.shared_bytes = params.sharedMemBytes;
  // What an earlier check completed was for the earlier function.
  out.request.cluster = {0, 0, 0};
  for (const CUlaunchAttribute& attribute : out.request.attributes) {
    if (const CUresult bad = apply_attribute(attribute, out.request); bad != CUDA_SUCCESS) {
      return bad;
    }
  }
  if (const CUresult bad = check_launch(function, out.request); bad != CUDA_SUCCESS) return bad;
  return pack_parameters(function.code(), params.kernelParams, params.extra,
                         out.request.parameters);
}

CUDA_KERNEL_NODE_PARAMS_v2 widen(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  return {p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
          p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra,    nullptr,     nullptr};
}

namespace {

// The library's kernel that a function is in its context; null for a function of a module.
CUkernel kernel_of(Driver& driver, const Function& function) {
  const Module& module = *function.module();
  if (!module.of_library()) return nullptr;
  std::vector<std::shared_ptr<Library>> libraries;
  driver.kernels().take_if([&](const Kernel& kernel) {
    if (kernel.kernel() == function.kernel()) libraries.push_back(kernel.library());
    return false;
  });
  for (const auto& library : libraries) {
    const Lock lock(library->mutex());
    const auto own = library->modules().find(module.context());
    if (own == library->modules().end() || own->second != module.handle()) continue;
    return to_handle<CUkernel>(library->kernels()[function.kernel()]);
  }
  return nullptr;
}

}  // namespace

// Both names of a library's kernel: the runtime knows it by the one, and programs may by the other.
CUDA_KERNEL_NODE_PARAMS_v2 tell_kernel(GraphNode& node, const KernelWork& work) {
  node.told_pointers.clear();
  auto* bytes = const_cast<std::byte*>(work.request.parameters.data());
  for (const ptx::Parameter& parameter : work.function->code().parameters) {
    node.told_pointers.push_back(bytes + parameter.offset);
  }
  const LaunchRequest& request = work.request;
  CUDA_KERNEL_NODE_PARAMS_v2 out{};
  Driver& driver = *current_driver();
  const Function& function = *work.function;
  out.func = work.func;
  if (out.func == nullptr) {
    out.func =
        to_handle<CUfunction>(driver.function_of(function.module(), function.kernel(), nullptr));
  }
  out.gridDimX = request.grid[0];
  out.gridDimY = request.grid[1];
  out.gridDimZ = request.grid[2];
  out.blockDimX = request.block[0];
  out.blockDimY = request.block[1];
  out.blockDimZ = request.block[2];
  out.sharedMemBytes = request.shared_bytes;
  out.kernelParams = node.told_pointers.empty() ? nullptr : node.told_pointers.data();
  out.kern = work.kern != nullptr ? work.kern : kernel_of(driver, function);
  out.ctx = out.kern == nullptr ? nullptr : to_handle<CUcontext>(work.context);
  return out;
}

CUresult read_memcpy(Driver& driver, const CUDA_MEMCPY3D& params, CUcontext context,
                     CopyWork& out) {
  if (const CUresult bad = read_context(driver, context, &out.context); bad != CUDA_SUCCESS) {
    return bad;
  }
  out.params = params;
  out.request = {};
  if (const CUresult bad = read_copy(driver, params, out.request); bad != CUDA_SUCCESS) return bad;
  if (out.request.extent.empty()) return CUDA_ERROR_INVALID_VALUE;
  note_known(driver.regions(), out.request);
  return check_copy(driver.regions(), out.request);
}

CUresult read_memset(Driver& driver, const CUDA_MEMSET_NODE_PARAMS_v2& params, FillWork& out) {
  if (const CUresult bad = read_context(driver, params.ctx, &out.context); bad != CUDA_SUCCESS) {
    return bad;
  }
  out.params = params;
  out.params.ctx = to_handle<CUcontext>(out.context);
  const std::uint32_t element = params.elementSize;
  if (element != 1 && element != 2 && element != 4) return CUDA_ERROR_INVALID_VALUE;
  if (params.width == 0 || params.height == 0) return CUDA_ERROR_INVALID_VALUE;
  std::size_t width = 0;
  if (__builtin_mul_overflow(params.width, std::size_t{element}, &width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (params.height > 1 && (params.pitch % element != 0 || params.pitch < width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  out.request.value = params.value;
  out.request.element_bytes = element;
  out.request.extent = {width, params.height, 1};
  out.request.to = {params.dst, params.pitch, 0};
  return check_fill(driver.regions(), out.request);
}

CUDA_MEMSET_NODE_PARAMS_v2 widen(const CUDA_MEMSET_NODE_PARAMS_v1& p, CUcontext context) {
  return {p.dst, p.pitch, p.value, p.elementSize, p.width, p.height, context};
}

CUresult read_words(Driver& driver, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& params,
                    WordsWork& out) {
  constexpr unsigned kBatchMax = 255;
  if (params.ctx == nullptr || params.count > kBatchMax || params.paramArray == nullptr ||
      params.flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult bad = read_context(driver, params.ctx, &out.context); bad != CUDA_SUCCESS) {
    return bad;
  }
  out.flags = params.flags;
  out.words.clear();
  out.batch.assign(params.paramArray, params.paramArray + params.count);
  return read_batch(driver.regions(), out.batch, out.words);
}

CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 widen(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1& p) {
  return {p.ctx, p.count, p.paramArray, p.flags};
}

CUresult read_child(Driver& driver, CUgraph parent, CUgraph child,
                    CUgraphChildGraphNodeOwnership ownership, ChildWork& out) {
  const auto graph = driver.graphs().graphs().find(from_handle(child));
  if (graph == nullptr || child == parent || graph->captures != 0) return CUDA_ERROR_INVALID_VALUE;
  if (graph->has_conditionals()) return CUDA_ERROR_NOT_SUPPORTED;
  switch (ownership) {
    case CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE:
      // Its memory is at one address: it cannot be there twice.
      if (graph->has_memory()) return CUDA_ERROR_NOT_SUPPORTED;
      out.graph = graph->clone(&driver);
      out.graph->set_owned();
      return CUDA_SUCCESS;
    case CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE:
      if (graph->owned() || *graph->instances != 0) return CUDA_ERROR_INVALID_VALUE;
      graph->set_owned();
      out.graph = graph;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

namespace {

template <class Kind, class Read>
CUresult read_as(Work& out, Read read) {
  Kind work;
  if (const auto* before = std::get_if<Kind>(&out)) work = *before;
  const CUresult bad = read(work);
  if (bad == CUDA_SUCCESS) out = std::move(work);
  return bad;
}

}  // namespace

CUresult read_work(Driver& driver, const CUgraphNodeParams& params, Work& out) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS_v3& p = params.kernel;
      const CUDA_KERNEL_NODE_PARAMS_v2 same{
          p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
          p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra,    p.kern,      p.ctx};
      return read_as<KernelWork>(out, [&](auto& work) { return read_kernel(driver, same, work); });
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (params.memcpy.flags != 0) return CUDA_ERROR_INVALID_VALUE;
      return read_as<CopyWork>(out, [&](auto& work) {
        return read_memcpy(driver, params.memcpy.copyParams, params.memcpy.copyCtx, work);
      });
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return read_as<FillWork>(
          out, [&](auto& work) { return read_memset(driver, params.memset, work); });
    case CU_GRAPH_NODE_TYPE_HOST:
      if (params.host.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
      out = HostWork{params.host.fn, params.host.userData};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EMPTY:
      out = EmptyWork{};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return read_as<WaitWork>(
          out, [&](auto& work) { return read_event(driver, params.eventWait.event, work); });
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return read_as<RecordWork>(
          out, [&](auto& work) { return read_event(driver, params.eventRecord.event, work); });
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return read_as<WordsWork>(out,
                                [&](auto& work) { return read_words(driver, params.memOp, work); });
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace flyt::softgpu
