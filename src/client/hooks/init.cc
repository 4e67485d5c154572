// Starting, versions, and the ways to find other functions.
#include "client/hooks_init.h"

#include "client/call.h"
#include "client/private_tables.h"
#include "cuda/proc_address.h"

namespace flyt::client::hooks {

CUresult cuInit(unsigned int Flags) {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return start_session();
}

// The version of the interface that this library is, whatever driver the server has: callers use
// it to choose functions, and those that the server's driver lacks are refused one by one.
CUresult cuDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  return cuda::find_proc_address(cuda::proc_address_rows(), symbol, pfn, cudaVersion, flags,
                                 symbolStatus);
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  return cuda::find_proc_address_v1(cuda::proc_address_rows(), symbol, pfn, cudaVersion, flags);
}

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = find_private_table(*pExportTableId);
  return *ppExportTable == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace flyt::client::hooks
