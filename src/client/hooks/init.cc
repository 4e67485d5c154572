// Starting, versions, and the ways to find other functions.
#include "client/hooks_init.h"

#include <string>
#include <string_view>

#include "client/call.h"
#include "client/private_tables.h"
#include "cuda/proc_address.h"

namespace flyt::client::hooks {
namespace {

// Which table a library cannot do without is worth knowing when it fails.
void note_unknown_table(const CUuuid& id) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : id.bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  Session* session = current_session();
  if (session != nullptr && session->refusals().first(text)) {
    session->log().info("private table not known", {{"uuid", text}});
  }
}

}  // namespace

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
  if (*ppExportTable != nullptr) return CUDA_SUCCESS;
  note_unknown_table(*pExportTableId);
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace flyt::client::hooks
