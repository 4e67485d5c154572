// Copies between host and device memory, one to three dimensions.
#include "softgpu/copy.h"

#include <algorithm>
#include <span>

#include "cuda/batch_copy.h"
#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

// Calls body(driver, context, stream) for a copy that may be one that waits.
template <class Body>
CUresult with_copy(CUstream handle, bool blocking, Body body) {
  return blocking ? with_waiting_work(handle, body) : with_work(handle, body);
}

CUresult run(const CopyRequest& request, CUstream handle, bool blocking) {
  return with_copy(handle, blocking, [&](Driver& driver, Context&, const StreamOfCall& stream) {
    return copy(driver, stream.context, stream.stream, request, blocking);
  });
}

CopyRequest linear(std::uint64_t to, Side to_side, std::uint64_t from, Side from_side,
                   std::uint64_t bytes) {
  return {{to, bytes, bytes}, {from, bytes, bytes}, {bytes, 1, 1}, to_side, from_side};
}

CUresult run_corners(const Corner& to, const Corner& from, const Extent& extent, CUstream handle,
                     bool blocking) {
  return with_copy(handle, blocking, [&](Driver& driver, Context&, const StreamOfCall& stream) {
    if (extent.empty()) return CUDA_SUCCESS;
    CopyRequest request;
    if (const CUresult bad = place(driver, to, from, extent, request); bad != CUDA_SUCCESS)
      return bad;
    return copy(driver, stream.context, stream.stream, request, blocking);
  });
}

// A null structure is refused after the context was found to be good.
CUresult run_2d(const CUDA_MEMCPY2D* c, CUstream handle, bool blocking) {
  if (c == nullptr) {
    return with_context([](Driver&, Context&) { return CUDA_ERROR_INVALID_VALUE; });
  }
  const Corner to{c->dstMemoryType, c->dstHost, c->dstDevice, c->dstPitch, 0, c->dstXInBytes,
                  c->dstY,          0,          c->dstArray};
  const Corner from{c->srcMemoryType, c->srcHost, c->srcDevice, c->srcPitch, 0, c->srcXInBytes,
                    c->srcY,          0,          c->srcArray};
  return run_corners(to, from, {c->WidthInBytes, c->Height, 1}, handle, blocking);
}

template <class Copy>
CUresult run_3d(const Copy* c, CUstream handle, bool blocking) {
  if (c == nullptr) {
    return with_context([](Driver&, Context&) { return CUDA_ERROR_INVALID_VALUE; });
  }
  const Corner to{c->dstMemoryType, c->dstHost, c->dstDevice, c->dstPitch, c->dstHeight,
                  c->dstXInBytes,   c->dstY,    c->dstZ,      c->dstArray};
  const Corner from{c->srcMemoryType, c->srcHost, c->srcDevice, c->srcPitch, c->srcHeight,
                    c->srcXInBytes,   c->srcY,    c->srcZ,      c->srcArray};
  return run_corners(to, from, {c->WidthInBytes, c->Height, c->Depth}, handle, blocking);
}

bool during_the_call(CUmemcpySrcAccessOrder order) {
  return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
}

// With an array among the operands widths count its elements, else bytes.
CUresult element_bytes(Driver& driver, const CUDA_MEMCPY3D_BATCH_OP& operation,
                       std::size_t& bytes) {
  for (const CUmemcpy3DOperand* operand : {&operation.src, &operation.dst}) {
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) continue;
    const auto array = driver.arrays().find(from_handle(cuda::array_of(*operand)));
    if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
    bytes = array->format().bytes();
  }
  return CUDA_SUCCESS;
}

CUresult one_of_batch(const CUDA_MEMCPY3D_BATCH_OP& operation, CUstream handle) {
  return with_work(handle, [&](Driver& driver, Context&, const StreamOfCall& stream) -> CUresult {
    std::size_t bytes = 1;
    CUDA_MEMCPY3D described{};
    CopyRequest request;
    CUresult bad = element_bytes(driver, operation, bytes);
    if (bad == CUDA_SUCCESS) bad = cuda::describe_batch_copy(operation, bytes, described);
    if (bad != CUDA_SUCCESS) return bad;
    bad = read_copy(driver, described, request);
    if (bad != CUDA_SUCCESS) return bad;
    request.source_now = during_the_call(operation.srcAccessOrder);
    return copy(driver, stream.context, stream.stream, request, false);
  });
}

bool legacy_or_null(CUstream stream) { return stream == nullptr || stream == CU_STREAM_LEGACY; }

// A batch wants a current context of the thread's own, whatever its stream brings along, and is
// CUDA_ERROR_INVALID_VALUE without; the context's error counts before anything else.
CUresult check_batch(bool good) {
  return with_driver([good](Driver& driver) -> CUresult {
    std::shared_ptr<Context> context;
    const CUresult bad = current_context(driver, context);
    if (bad == CUDA_ERROR_INVALID_CONTEXT) return CUDA_ERROR_INVALID_VALUE;
    return bad == CUDA_SUCCESS && !good ? CUDA_ERROR_INVALID_VALUE : bad;
  });
}

struct Batch {
  const CUdeviceptr* dsts;
  const CUdeviceptr* srcs;
  const std::size_t* sizes;
  std::size_t count;
  const CUmemcpyAttributes* attributes;
  const std::size_t* indices;  // The first copy of each.
  std::size_t attribute_count;

  bool good() const {
    if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0 ||
        attributes == nullptr || indices == nullptr || attribute_count == 0 ||
        attribute_count > count || indices[0] != 0) {
      return false;
    }
    const Driver* const driver = current_driver();
    return driver == nullptr ||
           std::all_of(attributes, attributes + attribute_count, [driver](const auto& each) {
             return cuda::good_attributes(each, driver->device_count());
           });
  }
};

CUresult batch(const Batch& copies, CUstream stream) {
  const CUresult bad = check_batch(copies.good() && !legacy_or_null(stream));
  if (bad != CUDA_SUCCESS) return bad;
  std::size_t kind = 0;
  for (std::size_t i = 0; i < copies.count; ++i) {
    while (kind + 1 < copies.attribute_count && copies.indices[kind + 1] <= i) ++kind;
    if (copies.sizes[i] == 0) return check_batch(false);
    CopyRequest request =
        linear(copies.dsts[i], Side::kUnified, copies.srcs[i], Side::kUnified, copies.sizes[i]);
    request.source_now = during_the_call(copies.attributes[kind].srcAccessOrder);
    const CUresult result = run(request, stream, false);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult batch_3d(std::span<const CUDA_MEMCPY3D_BATCH_OP> operations, std::size_t* fail,
                  unsigned long long flags, CUstream stream) {
  if (fail != nullptr) *fail = ~std::size_t{0};
  const bool good = !operations.empty() && operations.data() != nullptr && flags == 0;
  const CUresult bad = check_batch(good && !legacy_or_null(stream));
  if (bad != CUDA_SUCCESS) return bad;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const CUresult result = one_of_batch(operations[i], stream);
    if (result == CUDA_SUCCESS) continue;
    if (fail != nullptr && !cuda::names_nothing(operations[i])) *fail = i;
    return result;
  }
  return CUDA_SUCCESS;
}

// The contexts that a peer copy names; a null one is the calling thread's.
CUresult named_contexts(CUcontext to, CUcontext from, std::vector<std::shared_ptr<Context>>& out) {
  return with_driver([&](Driver& driver) -> CUresult {
    for (const CUcontext handle : {to, from}) {
      if (handle == nullptr) continue;
      auto context = driver.contexts().find(from_handle(handle));
      if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
      out.push_back(std::move(context));
    }
    return CUDA_SUCCESS;
  });
}

// Peer copies without a stream come after all work of both contexts that they name, and before
// all that follows in them.
template <class Copy>
CUresult between_contexts(CUcontext to, CUcontext from, Copy copy) {
  std::vector<std::shared_ptr<Context>> contexts;
  if (const CUresult bad = named_contexts(to, from, contexts); bad != CUDA_SUCCESS) return bad;
  for (const auto& context : contexts) {
    if (const CUresult bad = context->synchronize(); bad != CUDA_SUCCESS) return bad;
  }
  if (const CUresult bad = copy(); bad != CUDA_SUCCESS || contexts.empty()) return bad;
  return with_stream(nullptr, [](Driver&, Context& context, const StreamOfCall& stream) {
    stream.stream->last().wait();
    return context.fate()->error();
  });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return run(linear(dst, Side::kUnified, src, Side::kUnified, ByteCount), nullptr, true);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return run(linear(dstDevice, Side::kDevice, address_of(srcHost), Side::kHost, ByteCount), nullptr,
             true);
}

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return run(linear(address_of(dstHost), Side::kHost, srcDevice, Side::kDevice, ByteCount), nullptr,
             true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return run(linear(dstDevice, Side::kDevice, srcDevice, Side::kDevice, ByteCount), nullptr, true);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return run(linear(dst, Side::kUnified, src, Side::kUnified, ByteCount), hStream, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  return run(linear(dstDevice, Side::kDevice, address_of(srcHost), Side::kHost, ByteCount), hStream,
             false);
}

CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return run(linear(address_of(dstHost), Side::kHost, srcDevice, Side::kDevice, ByteCount), hStream,
             false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return run(linear(dstDevice, Side::kDevice, srcDevice, Side::kDevice, ByteCount), hStream, false);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) { return run_2d(pCopy, nullptr, true); }

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) { return run_2d(pCopy, nullptr, true); }

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return run_2d(pCopy, hStream, false);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) { return run_3d(pCopy, nullptr, true); }

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return run_3d(pCopy, hStream, false);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  return between_contexts(dstContext, srcContext,
                          [&] { return cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount); });
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  std::vector<std::shared_ptr<Context>> contexts;
  if (const CUresult bad = named_contexts(dstContext, srcContext, contexts); bad != CUDA_SUCCESS) {
    return bad;
  }
  return cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  if (pCopy == nullptr) return run_3d(pCopy, nullptr, true);
  return between_contexts(pCopy->dstContext, pCopy->srcContext,
                          [&] { return run_3d(pCopy, nullptr, true); });
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  if (pCopy != nullptr) {
    std::vector<std::shared_ptr<Context>> contexts;
    if (const CUresult bad = named_contexts(pCopy->dstContext, pCopy->srcContext, contexts);
        bad != CUDA_SUCCESS) {
      return bad;
    }
  }
  return run_3d(pCopy, hStream, false);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
  return batch({dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs}, hStream);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                            size_t* failIdx, CUstream hStream) {
  const CUresult result =
      batch({dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs}, cuda::resolve_default(hStream));
  if (result != CUDA_SUCCESS && failIdx != nullptr) *failIdx = ~size_t{0};
  return result;
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                 unsigned long long flags, CUstream hStream) {
  return batch_3d({opList, numOps}, nullptr, flags, hStream);
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                              unsigned long long flags, CUstream hStream) {
  return batch_3d({opList, numOps}, failIdx, flags, cuda::resolve_default(hStream));
}

}  // extern "C"
