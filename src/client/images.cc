#include "client/images.h"

#include "client/call.h"
#include "client/memory_state.h"

namespace flyt::client {

void Images::on_context_destroyed(const ContextState& context) {
  const auto drop_all = [&](auto& table) {
    table.for_each([&](std::uint64_t handle, const auto& state) {
      if (state.context == &context) table.drop(handle);
    });
  };
  drop_all(arrays);
  drop_all(mipmapped_arrays);
}

CUresult check(CUarray handle) {
  return session().memory().images.arrays.find(address_of(handle)) != nullptr
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_HANDLE;
}

CUresult check(CUmipmappedArray handle) {
  return session().memory().images.mipmapped_arrays.find(address_of(handle)) != nullptr
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace flyt::client
