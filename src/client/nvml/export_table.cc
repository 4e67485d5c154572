// nvmlInternalGetExportTable: the functions without names that nvidia-smi calls.
//
// Seen of nvidia-smi 580: it asks for one table, whose first entry is its size in bytes; entry 81
// gives a GPU's handle, 213 to 215 list processes with their names, and errors of others are shown
// as "N/A". What is called here beyond that answers that it is not supported.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "client/nvml/call.h"
#include "client/nvml/processes.h"
#include "nvml/functions.h"

namespace flyt::client::nvml {
namespace {

constexpr std::array<std::uint8_t, 16> kTableId = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                                   0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
constexpr std::size_t kEntries = 256;
constexpr std::size_t kHandleByIndex = 81;
constexpr std::size_t kProcessListFirst = 213;
constexpr std::size_t kProcessListLast = 215;

// How those lists are laid out.
struct NamedProcess {
  nvmlProcessInfo_t info;
  unsigned long long protected_memory;
  char name[4096];
};
static_assert(sizeof(NamedProcess) == 4128);

nvmlReturn_t unknown() { return NVML_ERROR_NOT_SUPPORTED; }

nvmlReturn_t handle_by_index(unsigned int index, nvmlDevice_t* device) {
  return ::nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t process_list(nvmlDevice_t device, unsigned int* count, NamedProcess* processes) {
  if (const nvmlReturn_t no = enter(Needs::kInit); no != NVML_SUCCESS) return no;
  if (count == nullptr || (processes == nullptr && *count != 0)) return NVML_ERROR_INVALID_ARGUMENT;
  std::vector<nvmlProcessInfo_t> found;
  if (const nvmlReturn_t no = fetch_processes(device, found); no != NVML_SUCCESS) return no;
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(found.size());
  if (room < found.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::memset(&processes[i], 0, sizeof processes[i]);
    processes[i].info = found[i];
    const std::string name = process_name(found[i].pid);
    const std::size_t most = sizeof processes[i].name - 1;
    std::memcpy(processes[i].name, name.data(), std::min(name.size(), most));
  }
  return NVML_SUCCESS;
}

template <class Function>
const void* entry(Function* function) {
  const void* out = nullptr;
  std::memcpy(&out, &function, sizeof out);
  return out;
}

std::array<const void*, kEntries> make_table() {
  std::array<const void*, kEntries> table{};
  table.fill(entry(&unknown));
  table[0] = pointer_at(sizeof table);
  table[kHandleByIndex] = entry(&handle_by_index);
  for (std::size_t i = kProcessListFirst; i <= kProcessListLast; ++i) {
    table[i] = entry(&process_list);
  }
  return table;
}

}  // namespace
}  // namespace flyt::client::nvml

extern "C" __attribute__((visibility("default"))) nvmlReturn_t nvmlInternalGetExportTable(
    const void** table, const void* id) {
  namespace nvml = flyt::client::nvml;
  static const auto entries = nvml::make_table();
  if (table == nullptr || id == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const bool known = std::memcmp(id, nvml::kTableId.data(), nvml::kTableId.size()) == 0;
  if (!known) return nvml::refused("nvmlInternalGetExportTable", "nobody knows this table");
  *table = entries.data();
  return NVML_SUCCESS;
}
