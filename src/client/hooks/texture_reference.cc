// Texture and surface references: named by modules, superseded by objects.
#include "client/hooks_texture_reference.h"

#include <string_view>

#include "client/call.h"
#include "client/code/code_state.h"
#include "client/code/names.h"
#include "client/memory_state.h"
#include "client/transfers/box_copy.h"
#include "commands/texture_reference.h"

namespace flyt::client::hooks {
namespace {

Images& images() { return session().memory().images; }

template <class Reference>
Reference as(std::uint64_t handle) {
  return static_cast<Reference>(pointer_at(handle));
}

// The reference of a module's variable: one handle, however often it is asked for.
template <class Command, class Reference, class Table, class Names>
CUresult find_in_module(Table& table, Names Images::*names_of_kind, CUmodule module,
                        const char* name, Reference* out) {
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ModuleState* state = session().code().modules.find(address_of(module));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(state->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  const std::string_view text(name);
  if (text.empty() || text.size() > kNameBytesMax) return CUDA_ERROR_INVALID_VALUE;
  const Lock asking(images().asking);
  auto& names = images().*names_of_kind;
  const Images::ReferenceName key{address_of(module), std::string(text)};
  {
    const Lock lock(images().mutex);
    if (const auto known = names.find(key); known != names.end()) {
      if (table.find(known->second) == nullptr) return CUDA_ERROR_NOT_FOUND;
      *out = as<Reference>(known->second);
      return CUDA_SUCCESS;
    }
  }
  const auto made = table.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made.state->context = &owner();
  made.state->module = address_of(module);
  const CUresult result =
      ask(Command{.module = module, .name = text, .reference = as<Reference>(made.handle)});
  if (result != CUDA_SUCCESS) {
    table.discard(made.handle);
    return result;
  }
  table.publish(made.handle);
  const Lock lock(images().mutex);
  names.emplace(key, made.handle);
  *out = as<Reference>(made.handle);
  return CUDA_SUCCESS;
}

// Of a live reference.
TextureReferenceState& state_of(CUtexref reference) {
  return *images().texture_references.find(address_of(reference));
}

void note_binding(CUtexref reference, CUarray array, CUmipmappedArray mipmapped) {
  TextureReferenceState& state = state_of(reference);
  state.array.store(array);
  state.mipmapped.store(mipmapped);
}

// Device memory as kernels address it. What is no memory, or too little, stays as it is: natively,
// too, that is found out by a kernel that reads there. None unbinds the reference.
CUresult find_memory(CUdeviceptr address, std::uint64_t bytes, std::uint64_t& out) {
  out = address;
  if (address == 0 || bytes == 0) return CUDA_SUCCESS;
  BoxSide side;
  side.address = address;
  const MemoryMap& map = session().memory().map();
  if (side.place_in(map.place(address, bytes), BoxSide::Said::kUnified, BoxSide::Use::kRead) &&
      side.memory == BoxSide::Memory::kDevice) {
    out = side.address;
    return CUDA_SUCCESS;
  }
  const auto memory = map.find(address);
  return !memory || memory->on_device() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuModuleGetTexRef(CUtexref* pTexRef, CUmodule hmod, const char* name) {
  return find_in_module<commands::GetTextureReference>(images().texture_references,
                                                       &Images::texture_names, hmod, name, pTexRef);
}

CUresult cuModuleGetSurfRef(CUsurfref* pSurfRef, CUmodule hmod, const char* name) {
  return find_in_module<commands::GetSurfaceReference>(
      images().surface_references, &Images::surface_names, hmod, name, pSurfRef);
}

CUresult cuTexRefCreate(CUtexref* pTexRef) {
  if (pTexRef == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto made = images().texture_references.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made.state->context = &owner();
  const auto reference = as<CUtexref>(made.handle);
  const CUresult result = ask(commands::CreateTextureReference{.reference = reference});
  if (result != CUDA_SUCCESS) {
    images().texture_references.discard(made.handle);
    return result;
  }
  images().texture_references.publish(made.handle);
  *pTexRef = reference;
  return CUDA_SUCCESS;
}

CUresult cuTexRefDestroy(CUtexref hTexRef) {
  if (const CUresult bad = check(hTexRef); bad != CUDA_SUCCESS) return bad;
  // Those of modules go with them.
  if (state_of(hTexRef).module != 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = post(commands::DestroyTextureReference{.reference = hTexRef});
  images().texture_references.drop(address_of(hTexRef));
  return result;
}

CUresult cuTexRefSetArray(CUtexref hTexRef, CUarray hArray, unsigned int Flags) {
  if (const CUresult bad = check(hTexRef); bad != CUDA_SUCCESS) return bad;
  if (check(hArray) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_HANDLE;
  if ((Flags & ~unsigned{CU_TRSA_OVERRIDE_FORMAT}) != 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      ask(commands::BindTextureArray{.reference = hTexRef, .array = hArray, .flags = Flags});
  if (result == CUDA_SUCCESS) note_binding(hTexRef, hArray, nullptr);
  return result;
}

CUresult cuTexRefSetMipmappedArray(CUtexref hTexRef, CUmipmappedArray hMipmappedArray,
                                   unsigned int Flags) {
  if (const CUresult bad = check(hTexRef); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = check(hMipmappedArray); bad != CUDA_SUCCESS) return bad;
  if ((Flags & ~unsigned{CU_TRSA_OVERRIDE_FORMAT}) != 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = ask(commands::BindTextureMipmapped{
      .reference = hTexRef, .array = hMipmappedArray, .flags = Flags});
  if (result == CUDA_SUCCESS) note_binding(hTexRef, nullptr, hMipmappedArray);
  return result;
}

CUresult cuTexRefSetAddress_v2(size_t* ByteOffset, CUtexref hTexRef, CUdeviceptr dptr,
                               size_t bytes) {
  if (const CUresult bad = check(hTexRef); bad != CUDA_SUCCESS) return bad;
  std::uint64_t address = 0;
  if (const CUresult bad = find_memory(dptr, bytes, address); bad != CUDA_SUCCESS) return bad;
  commands::BindTextureMemory::Reply reply;
  const CUresult result = ask(commands::BindTextureMemory{.reference = hTexRef,
                                                          .address = address,
                                                          .bytes = bytes,
                                                          .wants_offset = ByteOffset != nullptr},
                              reply);
  if (result != CUDA_SUCCESS) return result;
  note_binding(hTexRef, nullptr, nullptr);
  if (ByteOffset != nullptr) *ByteOffset = reply.offset;
  return CUDA_SUCCESS;
}

CUresult cuTexRefSetAddress2D_v3(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc,
                                 CUdeviceptr dptr, size_t Pitch) {
  if (const CUresult bad = check(hTexRef); bad != CUDA_SUCCESS) return bad;
  if (desc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto texel = cuda::texel_of(desc->Format, desc->NumChannels);
  if (!texel) {
    const CUresult bad = cuda::check_format(desc->Format, desc->NumChannels);
    return bad == CUDA_ERROR_NOT_SUPPORTED
               ? refused("cuTexRefSetAddress2D_v3",
                         "block-compressed, planar and packed formats are not remoted yet")
               : bad;
  }
  const auto bytes = cuda::rows_bytes(desc->Width, desc->Height, Pitch, *texel);
  std::uint64_t address = 0;
  const CUresult bad = find_memory(dptr, bytes.value_or(0), address);
  if (bad != CUDA_SUCCESS) return bad;
  const CUresult result = ask(commands::BindTextureRows{
      .reference = hTexRef, .descriptor = *desc, .address = address, .pitch = Pitch});
  if (result == CUDA_SUCCESS) note_binding(hTexRef, nullptr, nullptr);
  return result;
}

CUresult cuTexRefSetAddress2D_v2(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc,
                                 CUdeviceptr dptr, size_t Pitch) {
  return cuTexRefSetAddress2D_v3(hTexRef, desc, dptr, Pitch);
}

CUresult cuTexRefGetArray(CUarray* phArray, CUtexref hTexRef) {
  if (const CUresult bad = check(hTexRef); bad != CUDA_SUCCESS) return bad;
  const CUarray bound = state_of(hTexRef).array.load();
  if (phArray == nullptr || bound == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phArray = bound;
  return CUDA_SUCCESS;
}

CUresult cuTexRefGetMipmappedArray(CUmipmappedArray* phMipmappedArray, CUtexref hTexRef) {
  if (const CUresult bad = check(hTexRef); bad != CUDA_SUCCESS) return bad;
  const CUmipmappedArray bound = state_of(hTexRef).mipmapped.load();
  if (phMipmappedArray == nullptr || bound == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phMipmappedArray = bound;
  return CUDA_SUCCESS;
}

CUresult cuSurfRefSetArray(CUsurfref hSurfRef, CUarray hArray, unsigned int Flags) {
  if (const CUresult bad = check(hSurfRef); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = check(hArray); bad != CUDA_SUCCESS) return bad;
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      ask(commands::BindSurfaceArray{.reference = hSurfRef, .array = hArray, .flags = Flags});
  if (result == CUDA_SUCCESS) {
    images().surface_references.find(address_of(hSurfRef))->array.store(hArray);
  }
  return result;
}

CUresult cuSurfRefGetArray(CUarray* phArray, CUsurfref hSurfRef) {
  if (const CUresult bad = check(hSurfRef); bad != CUDA_SUCCESS) return bad;
  const CUarray bound = images().surface_references.find(address_of(hSurfRef))->array.load();
  if (phArray == nullptr || bound == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phArray = bound;
  return CUDA_SUCCESS;
}

}  // namespace flyt::client::hooks
