// Start, version, error texts, and the ways to find other functions.
#include <cstring>

#include "cuda/error_text.h"
#include "cuda/export_tables.h"
#include "cuda/proc_address.h"
#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

// The private tables on top of the public ABI.
struct ExportDriver {
  static CUresult load_module(CUmodule* module, const void* image) {
    return cuModuleLoadFatBinary(module, image);
  }
  static CUresult retain_primary(CUcontext* context, CUdevice device) {
    return cuDevicePrimaryCtxRetain(context, device);
  }
  static CUresult storage_context(CUcontext* context) {
    constexpr std::uint64_t kCurrent = ~std::uint64_t{0};
    if (current_driver() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
    if (*context == nullptr || from_handle(*context) == kCurrent) {
      *context = to_handle<CUcontext>(context_stack().top());
    }
    return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  }
  static cuda::ContextStorage& storage() { return current_driver()->storage(); }
  static cuda::CompileCache& compile_cache() { return current_driver()->compile_cache(); }
  static unsigned long long context_id(CUcontext context) {
    unsigned long long id = 0;
    return cuCtxGetId(context, &id) == CUDA_SUCCESS ? id : 0;
  }
  static CUresult stream_id(CUstream stream, unsigned long long* id) {
    return cuStreamGetId(stream, id);
  }
  static CUresult chip_layout(cuda::ChipLayout* layout) {
    CUdevice device = 0;
    if (cuCtxGetDevice(&device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_CONTEXT;
    const Multiprocessors& chip = current_driver()->device(device)->multiprocessors();
    std::uint8_t index = 0;
    for (unsigned i = 0; i < chip.tpcs(); ++i) {
      index = i != 0 && chip.gpc_of_tpc(i) == chip.gpc_of_tpc(i - 1)
                  ? static_cast<std::uint8_t>(index + 1)
                  : std::uint8_t{0};
      layout->gpc_of_tpc.push_back(static_cast<std::uint8_t>(chip.gpc_of_tpc(i)));
      layout->index_in_gpc.push_back(index);
    }
    return CUDA_SUCCESS;
  }
  static CUresult functions_of(CUmodule module, std::vector<CUfunction>* functions) {
    unsigned int count = 0;
    if (const CUresult no = cuModuleGetFunctionCount(&count, module); no != CUDA_SUCCESS) return no;
    functions->resize(count);
    return count == 0 ? CUDA_SUCCESS : cuModuleEnumerateFunctions(functions->data(), count, module);
  }
  static std::uint32_t driver_version() { return kDriverVersion; }
  static std::vector<cuda::DeviceIdentity> device_identities() {
    std::vector<cuda::DeviceIdentity> identities;
    Driver* driver = current_driver();
    for (int i = 0; driver != nullptr && i < driver->device_count(); ++i) {
      const Device& device = *driver->device(i);
      cuda::DeviceIdentity identity;
      const CUuuid uuid = device.uuid();
      std::memcpy(identity.uuid.data(), uuid.bytes, sizeof uuid.bytes);
      identity.pci_bus = device.pci_bus();
      identities.push_back(identity);
    }
    return identities;
  }
  static CUresult refused_slot(cuda::PrivateTable, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; }
};

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuInit(unsigned int Flags) {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return start_driver();
}

CUresult cuDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = kDriverVersion;
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
  *ppExportTable = cuda::ExportTables<ExportDriver>::find(*pExportTableId);
  return *ppExportTable == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pStr = cuda::error_name(error);
  return *pStr == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pStr = cuda::error_text(error);
  return *pStr == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuProfilerStart() {
  return with_context([](auto&&...) { return CUDA_SUCCESS; });
}

CUresult cuProfilerStop() {
  return with_context([](auto&&...) { return CUDA_SUCCESS; });
}

}  // extern "C"
