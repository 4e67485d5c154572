// Kernel launches.
#include "server/hooks_launch.h"

#include "server/code/code_subjects.h"
#include "server/code/launch_attributes.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

template <class Command>
CUresult launch(Request& request, const Command& command) {
  CUfunction function = command.function;
  CUstream stream = command.stream;
  if (wire::Handle{address_of(function)}.kind() == wire::HandleKind::kKernel) {
    request.session().code().variables().on_launch(request, function);
  }
  if (!request.resolve(function) || !request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  // The driver copies the parameters before it returns, and writes to neither.
  std::size_t bytes = command.parameters.size();
  std::array<void*, 5> extra = {CU_LAUNCH_PARAM_BUFFER_POINTER,
                                const_cast<std::byte*>(command.parameters.data()),
                                CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  void** const parameters = bytes == 0 ? nullptr : extra.data();
  const driver::Table& driver = request.driver();
  request.session().memory().depths.count(request.context(), stream);
  if (command.attributes.empty()) {
    return driver.cuLaunchKernel(function, command.grid_x, command.grid_y, command.grid_z,
                                 command.block_x, command.block_y, command.block_z,
                                 command.shared_bytes, stream, nullptr, parameters);
  }
  LaunchAttributes attributes;
  if (const CUresult bad = attributes.take(request, command.attributes); bad != CUDA_SUCCESS) {
    return bad;
  }
  const CUlaunchConfig config = attributes.config(command, stream);
  return driver.cuLaunchKernelEx(&config, function, nullptr, parameters);
}

}  // namespace

CUresult launch_kernel(Request& request, const commands::LaunchKernel& command) {
  return launch(request, command);
}

CUresult try_launch_kernel(Request& request, const commands::TryLaunchKernel& command) {
  return launch(request, command);
}

}  // namespace flyt::server::hooks
