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

std::uint64_t in_this_context(
    const std::vector<std::pair<ContextState*, std::uint64_t>>& by_context) {
  const std::lock_guard lock(session().code().mutex);
  for (const auto& [in, handle] : by_context) {
    if (in == &owner()) return handle;
  }
  return 0;
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
  // Its function here is what a launch launches, with that one's attributes.
  if (kernel->apart.load(std::memory_order_acquire)) {
    if (FunctionState* here = code.functions.find(in_this_context(kernel->functions))) {
      out.facts = &here->facts;
      return CUDA_SUCCESS;
    }
  }
  return kernel_facts(*kernel, context().device, out.facts);
}

}  // namespace flyt::client
