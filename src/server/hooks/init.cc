// What the private tables need to know of the chip.
#include "server/hooks_init.h"

#include <malloc.h>

#include <algorithm>
#include <cstring>

#include "cuda/export_tables.h"

namespace flyt::server::hooks {
namespace {

constexpr std::size_t kLayoutSlot = 4;
constexpr std::size_t kGiveBackSlot = 13;
constexpr std::size_t kLayoutBytesMax = 1024;

template <class Function>
Function slot(const void* table, std::size_t number) {
  Function function = nullptr;
  std::memcpy(&function, static_cast<const void* const*>(table) + number, sizeof function);
  return function;
}

// The array's length is not told; the driver takes it from malloc.
Bytes whole(std::uint8_t* array) {
  return bytes_at(array, std::min(::malloc_usable_size(array), kLayoutBytesMax));
}

}  // namespace

void chip_layout(Request request, const commands::ChipLayout&) {
  using Layout = CUresult (*)(std::uint8_t**, std::uint8_t**);
  using GiveBack = CUresult (*)(std::uint8_t*, std::uint8_t*);
  CUuuid id{};
  const auto& uuid =
      cuda::kPrivateTableUuids[static_cast<std::size_t>(cuda::PrivateTable::kChipLayout)];
  std::memcpy(id.bytes, uuid.data(), uuid.size());
  const void* table = nullptr;
  commands::ChipLayout::Reply reply;
  if (request.driver().cuGetExportTable(&table, &id) != CUDA_SUCCESS || table == nullptr) {
    return request.reply(CUDA_ERROR_NOT_SUPPORTED, reply);
  }
  std::uint8_t* gpc_of_tpc = nullptr;
  std::uint8_t* index_in_gpc = nullptr;
  const CUresult result = slot<Layout>(table, kLayoutSlot)(&gpc_of_tpc, &index_in_gpc);
  if (result != CUDA_SUCCESS) return request.reply(result, reply);
  reply.gpc_of_tpc = whole(gpc_of_tpc);
  reply.index_in_gpc = whole(index_in_gpc);
  request.reply(result, reply);
  slot<GiveBack>(table, kGiveBackSlot)(gpc_of_tpc, index_in_gpc);
}

}  // namespace flyt::server::hooks
