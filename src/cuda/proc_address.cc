#include "cuda/proc_address.h"

#include <algorithm>

namespace flyt::cuda {

namespace {

constexpr cuuint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

std::span<const ProcAddressRow> rows_of(std::span<const ProcAddressRow> rows,
                                        std::string_view name) {
  const auto first = std::lower_bound(
      rows.begin(), rows.end(), name,
      [](const ProcAddressRow& row, std::string_view wanted) { return row.name < wanted; });
  const auto last = std::find_if(first, rows.end(),
                                 [name](const ProcAddressRow& row) { return row.name != name; });
  return {first, last};
}

// Null if `version` is older than every row. A negative version is newer than all: so NVIDIA's
// driver takes it.
void* newest(std::span<const ProcAddressRow> rows, unsigned version, bool per_thread) {
  const bool has_variants = std::any_of(
      rows.begin(), rows.end(), [](const ProcAddressRow& row) { return row.variant != nullptr; });
  void* found = nullptr;
  for (const ProcAddressRow& row : rows) {
    if (per_thread && has_variants) {
      // A version of the function from before there were variants is not offered.
      if (row.variant != nullptr && row.variant_version <= version) found = row.variant;
    } else if (row.version <= version) {
      found = row.function;
    }
  }
  return found;
}

}  // namespace

CUresult find_proc_address(std::span<const ProcAddressRow> rows, const char* name, void** function,
                           int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (version > CUDA_VERSION || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::span<const ProcAddressRow> candidates = rows_of(rows, name);
  *function = newest(candidates, static_cast<unsigned>(version),
                     (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
  if (status == nullptr) return CUDA_SUCCESS;
  if (*function != nullptr) {
    *status = CU_GET_PROC_ADDRESS_SUCCESS;
  } else {
    *status = candidates.empty() ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
                                 : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  }
  return CUDA_SUCCESS;
}

CUresult find_proc_address_v1(std::span<const ProcAddressRow> rows, const char* name,
                              void** function, int version, cuuint64_t flags) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  void* found = nullptr;
  const CUresult result = find_proc_address(rows, name, &found, version, flags, nullptr);
  if (result != CUDA_SUCCESS) return result;
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  *function = found;
  return CUDA_SUCCESS;
}

}  // namespace flyt::cuda
