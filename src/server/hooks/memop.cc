// Stream operations that wait for or write words in memory.
#include "server/hooks_memop.h"

#include "server/lease/moves.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {

CUresult stream_mem_op(Request& request, const commands::StreamMemOp& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  const auto operation = static_cast<CUstreamBatchMemOpType>(command.operation);
  const bool wide =
      operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  const bool waits =
      operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  const bool writes =
      operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 || operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  const std::uint64_t bytes = wide ? 8 : 4;
  if (!(waits || writes) || command.address % bytes != 0 ||
      !request.session().regions().allowed(command.address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const driver::Table& driver = request.driver();
  request.session().memory().depths.count(request.context(), stream);
  if (waits) request.session().moves().note_word_wait();
  const auto narrow_value = static_cast<cuuint32_t>(command.value);
  if (waits && wide && driver.cuStreamWaitValue64_v2 != nullptr) {
    return driver.cuStreamWaitValue64_v2(stream, command.address, command.value, command.flags);
  }
  if (waits && !wide && driver.cuStreamWaitValue32_v2 != nullptr) {
    return driver.cuStreamWaitValue32_v2(stream, command.address, narrow_value, command.flags);
  }
  if (writes && wide && driver.cuStreamWriteValue64_v2 != nullptr) {
    return driver.cuStreamWriteValue64_v2(stream, command.address, command.value, command.flags);
  }
  if (writes && !wide && driver.cuStreamWriteValue32_v2 != nullptr) {
    return driver.cuStreamWriteValue32_v2(stream, command.address, narrow_value, command.flags);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace flyt::server::hooks
