// What a launch and the attribute calls need of a function or of a kernel used as one.
#pragma once

#include "client/call.h"
#include "client/code/code_state.h"

namespace flyt::client {

// A function, or a kernel on the current context's device.
struct Callable {
  const KernelCode* code = nullptr;
  FunctionFacts* facts = nullptr;
  FunctionState* function = nullptr;  // Null for a kernel.
};

// What `handle` is to a launch in the current context: CUDA_ERROR_INVALID_HANDLE for anything but
// a function of this context or a kernel. `facts` are described on success.
CUresult find_callable(CUfunction handle, Callable& out);

// The facts of a kernel on a device, asked for once.
CUresult kernel_facts(KernelState& kernel, CUdevice device, FunctionFacts*& out);

// The handle that an object has in the current context, or 0.
std::uint64_t in_this_context(
    const std::vector<std::pair<ContextState*, std::uint64_t>>& by_context);

// Builds a kernel's code from a reply with offsets and sizes; null where they are no kernel's.
template <class Reply>
std::shared_ptr<const KernelCode> make_code(std::string_view name, const Reply& reply) {
  auto code = std::make_shared<KernelCode>();
  code->name = std::string(name);
  for (std::size_t i = 0; i < reply.offsets.size() && i < reply.sizes.size(); ++i) {
    const Parameter parameter{.offset = reply.offsets[i], .size = reply.sizes[i]};
    if (parameter.offset > KernelCode::kParameterBytesMax ||
        parameter.size > KernelCode::kParameterBytesMax - parameter.offset) {
      return nullptr;
    }
    code->parameters.push_back(parameter);
    code->parameter_bytes = std::max(code->parameter_bytes, parameter.offset + parameter.size);
  }
  return code;
}

}  // namespace flyt::client
