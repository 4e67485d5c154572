// Proc address: which export cuGetProcAddress means by a name, a CUDA version and flags.
#pragma once

#include <span>
#include <string_view>

#include "cuda/types.h"

namespace flyt::cuda {

// One version of one function. The rows are generated, sorted by name and then by version.
struct ProcAddressRow {
  std::string_view name;  // Without version or suffix, as callers ask for it.
  unsigned version = 0;   // The CUDA version that introduced it.
  void* function = nullptr;
  unsigned variant_version = 0;  // The same of the export for per-thread default streams,
  void* variant = nullptr;       // or null.
};

// The rows of the library that this is linked into.
std::span<const ProcAddressRow> proc_address_rows();

// What cuGetProcAddress_v2 does: finds the newest export whose version is at most `version`, and
// with CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM the per-thread variant of every function that
// has one. A function that is not there is null and says why in `status`, which may be null; that
// is no error. Equal to NVIDIA's driver for every name, version and flag:
// tests/compat/proc_address_test.cc. Safe from any thread.
CUresult find_proc_address(std::span<const ProcAddressRow> rows, const char* name, void** function,
                           int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status);

// The same for cuGetProcAddress of before 12.0: a function that is not there is
// CUDA_ERROR_NOT_FOUND, and `*function` stays as it was.
CUresult find_proc_address_v1(std::span<const ProcAddressRow> rows, const char* name,
                              void** function, int version, cuuint64_t flags);

}  // namespace flyt::cuda
