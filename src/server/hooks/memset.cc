// Filling device memory.
#include "server/hooks_memset.h"

#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

CUresult fill_row(const driver::Table& driver, const commands::FillMemory& fill) {
  const auto value = fill.value;
  if (fill.element_bytes == 1) {
    return driver.cuMemsetD8Async(fill.address, static_cast<unsigned char>(value), fill.width,
                                  fill.stream);
  }
  if (fill.element_bytes == 2) {
    return driver.cuMemsetD16Async(fill.address, static_cast<unsigned short>(value), fill.width,
                                   fill.stream);
  }
  return driver.cuMemsetD32Async(fill.address, value, fill.width, fill.stream);
}

CUresult fill_rows(const driver::Table& driver, const commands::FillMemory& fill) {
  const auto value = fill.value;
  if (fill.element_bytes == 1) {
    return driver.cuMemsetD2D8Async(fill.address, fill.pitch, static_cast<unsigned char>(value),
                                    fill.width, fill.rows, fill.stream);
  }
  if (fill.element_bytes == 2) {
    return driver.cuMemsetD2D16Async(fill.address, fill.pitch, static_cast<unsigned short>(value),
                                     fill.width, fill.rows, fill.stream);
  }
  return driver.cuMemsetD2D32Async(fill.address, fill.pitch, value, fill.width, fill.rows,
                                   fill.stream);
}

}  // namespace

CUresult fill_memory(Request& request, const commands::FillMemory& command) {
  commands::FillMemory fill = command;
  if (!request.resolve(fill.stream)) return CUDA_ERROR_INVALID_HANDLE;
  const std::uint64_t element = fill.element_bytes;
  if (element != 1 && element != 2 && element != 4) return CUDA_ERROR_INVALID_VALUE;
  Box box{.address = fill.address, .pitch = fill.pitch, .rows = fill.rows};
  if (__builtin_mul_overflow(fill.width, element, &box.width)) return CUDA_ERROR_INVALID_VALUE;
  if (box.empty()) return CUDA_SUCCESS;
  if (fill.address % element != 0 || (fill.rows > 1 && fill.pitch % element != 0) ||
      !request.session().memory().allowed(box)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!request.session().memory().may_be_captured(fill.stream, box)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  request.session().memory().open_to_current(fill.address);
  request.session().memory().depths.count(request.context(), fill.stream);
  return fill.rows == 1 ? fill_row(request.driver(), fill) : fill_rows(request.driver(), fill);
}

}  // namespace flyt::server::hooks
