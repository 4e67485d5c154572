#include "client/code/function_facts.h"

#include "commands/library.h"

namespace flyt::client {

CUresult kernel_facts(KernelState& kernel, CUdevice device, FunctionFacts*& out) {
  out = &kernel.facts[static_cast<std::size_t>(device)];
  if (out->described.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  const commands::DescribeKernel command{.kernel = static_cast<CUkernel>(pointer_at(kernel.handle)),
                                         .device = device};
  commands::DescribeKernel::Reply reply;
  rpc::Reply answer;
  const CUresult result = ask(command, reply, answer);
  if (result == CUDA_SUCCESS) out->fill(reply);
  return result;
}

CUresult find_callable(CUfunction handle, Callable& out) {
  CodeState& code = session().code();
  const std::uint64_t value = address_of(handle);
  if (FunctionState* function = code.functions.find(value)) {
    if (function->context != &owner()) return CUDA_ERROR_INVALID_HANDLE;
    out = {function->code.get(), &function->facts, function};
    return CUDA_SUCCESS;
  }
  KernelState* kernel = code.kernels.find(value);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  out.code = kernel->code.get();
  return kernel_facts(*kernel, context().device, out.facts);
}

}  // namespace flyt::client
