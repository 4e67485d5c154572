#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

constexpr std::uint64_t kPerThreadStream = 2;

}  // namespace

CUresult living_context(Driver& driver, std::shared_ptr<Context>& context) {
  const std::uint64_t handle = context_stack().top();
  if (handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
  context = driver.contexts().find(handle);
  return context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

CUresult current_context(Driver& driver, std::shared_ptr<Context>& context) {
  if (const CUresult bad = living_context(driver, context); bad != CUDA_SUCCESS) return bad;
  return context->fate()->error();
}

CUresult check_home(Driver& driver, std::uint64_t home) {
  std::shared_ptr<Context> context;
  const CUresult bad = living_context(driver, context);
  if (bad == CUDA_ERROR_CONTEXT_IS_DESTROYED) return bad;
  if (const auto own = driver.contexts().find(home)) context = own;
  return context == nullptr ? CUDA_SUCCESS : context->fate()->error();
}

CUresult current_partition(const Context& context, std::shared_ptr<Partition>& partition) {
  partition = context.partition(context_stack().top());
  return partition == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

CUresult named_context(Driver& driver, CUcontext handle, std::shared_ptr<Context>& context) {
  if (handle == nullptr) return current_context(driver, context);
  context = driver.contexts().find(from_handle(handle));
  if (context != nullptr) return CUDA_SUCCESS;
  return driver.contexts().issued(from_handle(handle)) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                       : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult named_partition(Driver& driver, CUcontext handle, std::shared_ptr<Context>& context,
                         std::shared_ptr<Partition>& partition) {
  if (const CUresult bad = named_context(driver, handle, context); bad != CUDA_SUCCESS) return bad;
  if (handle == nullptr) return current_partition(*context, partition);
  partition = context->partition(from_handle(handle));
  return partition == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

CUresult find_stream(Driver& driver, CUstream handle, StreamOfCall& out) {
  handle = cuda::resolve_default(handle);
  const std::uint64_t value = from_handle(handle);
  if (value <= kPerThreadStream) {
    if (const CUresult bad = current_context(driver, out.context); bad != CUDA_SUCCESS) return bad;
    if (const CUresult bad = current_partition(*out.context, out.partition); bad != CUDA_SUCCESS) {
      return bad;
    }
    out.stream = value == kPerThreadStream ? out.partition->per_thread(thread_number())
                                           : out.partition->legacy();
    return CUDA_SUCCESS;
  }
  out.stream = driver.streams().find(value);
  if (out.stream == nullptr) {
    const CUresult bad = current_context(driver, out.context);
    return bad != CUDA_SUCCESS ? bad : CUDA_ERROR_INVALID_HANDLE;
  }
  out.context = driver.contexts().find(out.stream->context());
  out.partition = out.stream->partition();
  if (out.context == nullptr || out.partition == nullptr || out.partition->ended()) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return out.context->fate()->error();
}

CUresult find_event(Driver& driver, CUevent handle, std::shared_ptr<Event>& out) {
  const std::uint64_t value = from_handle(handle);
  out = driver.events().find(value);
  if (out != nullptr) return CUDA_SUCCESS;
  return driver.events().issued(value) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                       : CUDA_ERROR_INVALID_HANDLE;
}

CUresult find_function(Driver& driver, Context& context, CUfunction handle, bool kernels,
                       std::shared_ptr<Function>& out) {
  std::uint64_t value = from_handle(handle);
  if (kernels) {
    if (const auto kernel = driver.kernels().find(value)) {
      if (const CUresult bad = driver.kernel_function(context, *kernel, &value);
          bad != CUDA_SUCCESS) {
        return bad;
      }
    }
  }
  out = driver.functions().find(value);
  return out == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace flyt::softgpu
