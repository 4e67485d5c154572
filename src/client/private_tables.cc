#include "client/private_tables.h"

#include <cstring>
#include <string>
#include <vector>

#include "client/call.h"
#include "client/code/code_state.h"
#include "client/hooks_context.h"
#include "client/hooks_device.h"
#include "client/hooks_module.h"
#include "client/hooks_stream.h"
#include "commands/init.h"
#include "cuda/export_tables.h"

namespace flyt::client {
namespace {

// How the tables' functions reach this client. See cuda::ExportTables.
struct RemoteDriver {
  static CUresult load_module(CUmodule* module, const void* image) {
    if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
    return hooks::cuModuleLoadData(module, image);
  }
  static CUresult retain_primary(CUcontext* context, CUdevice device) {
    if (const CUresult no = enter(Needs::kInit); no != CUDA_SUCCESS) return no;
    return hooks::cuDevicePrimaryCtxRetain(context, device);
  }
  // 0 and -1 mean the current context.
  static CUresult storage_context(CUcontext* context) {
    if (const CUresult no = enter(Needs::kInit); no != CUDA_SUCCESS) return no;
    if (address_of(*context) != 0 && address_of(*context) != ~0ULL) return CUDA_SUCCESS;
    const ContextState* current = thread_state().current_state;
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *context = static_cast<CUcontext>(pointer_at(current->handle));
    return CUDA_SUCCESS;
  }
  static cuda::ContextStorage& storage() { return session().storage(); }
  static cuda::CompileCache& compile_cache() { return session().compile_cache(); }
  static unsigned long long context_id(CUcontext context) {
    unsigned long long id = 0;
    if (current_session() == nullptr) return id;
    return hooks::cuCtxGetId(context, &id) == CUDA_SUCCESS ? id : 0;
  }
  static CUresult stream_id(CUstream stream, unsigned long long* id) {
    if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
    return hooks::cuStreamGetId(stream, id);
  }
  static CUresult chip_layout(cuda::ChipLayout* layout) {
    if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
    commands::ChipLayout::Reply reply;
    rpc::Reply answer;
    const CUresult result = ask(commands::ChipLayout{}, reply, answer);
    if (result != CUDA_SUCCESS) return result;
    layout->gpc_of_tpc = bytes_to_vector(reply.gpc_of_tpc);
    layout->index_in_gpc = bytes_to_vector(reply.index_in_gpc);
    return CUDA_SUCCESS;
  }
  static CUresult functions_of(CUmodule module, std::vector<CUfunction>* functions) {
    if (const CUresult no = enter(Needs::kInit); no != CUDA_SUCCESS) return no;
    unsigned int count = 0;
    if (const CUresult no = hooks::cuModuleGetFunctionCount(&count, module); no != CUDA_SUCCESS)
      return no;
    functions->resize(count);
    return count == 0 ? CUDA_SUCCESS
                      : hooks::cuModuleEnumerateFunctions(functions->data(), count, module);
  }
  static std::uint32_t driver_version() { return CUDA_VERSION; }
  static std::vector<cuda::DeviceIdentity> device_identities() {
    std::vector<cuda::DeviceIdentity> identities;
    if (current_session() == nullptr) return identities;
    for (const Device& device : session().devices().all()) {
      cuda::DeviceIdentity& identity = identities.emplace_back();
      std::memcpy(identity.uuid.data(), device.uuid.bytes, identity.uuid.size());
      identity.pci_domain = device.attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
      identity.pci_bus = device.attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
      identity.pci_device = device.attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    }
    return identities;
  }
  static CUresult refused_slot(cuda::PrivateTable table, unsigned slot) {
    // Libraries try slots that they can do without, so this is no warning.
    const std::string name = std::string(cuda::name_of(table)) + "." + std::to_string(slot);
    if (current_session() != nullptr && session().refusals().first(name)) {
      session().log().info("private table slot not served",
                           {{"table", cuda::name_of(table)}, {"slot", slot}});
    }
    return CUDA_ERROR_NOT_SUPPORTED;
  }

 private:
  static std::vector<std::uint8_t> bytes_to_vector(Bytes bytes) {
    std::vector<std::uint8_t> out(bytes.size());
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
};

}  // namespace

const void* find_private_table(const CUuuid& id) {
  return cuda::ExportTables<RemoteDriver>::find(id);
}

}  // namespace flyt::client
