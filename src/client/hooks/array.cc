// Arrays, mipmapped ones, and flat copies from and to them.
#include "client/hooks_array.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "client/call.h"
#include "client/memory_state.h"
#include "client/transfers/box_copy.h"
#include "commands/array.h"

namespace flyt::client::hooks {
namespace {

Images& images() { return session().memory().images; }

// CUDA_SUCCESS where the server may be asked.
CUresult check(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, const char* name) {
  const CUresult result = cuda::check_array(descriptor);
  return result == CUDA_ERROR_NOT_SUPPORTED
             ? refused(name,
                       "sparse arrays, and block-compressed, planar and packed formats are "
                       "not remoted yet")
             : result;
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, const char* name) {
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  if (const CUresult bad = check(descriptor, name); bad != CUDA_SUCCESS) return bad;
  const auto made = images().arrays.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made.state->context = &owner();
  made.state->descriptor = descriptor;
  made.state->extent = cuda::extent_of(descriptor);
  const auto array = static_cast<CUarray>(pointer_at(made.handle));
  const commands::CreateArray command{.array = array, .descriptor = made.state->descriptor};
  const CUresult result = ask_and_note(command, [&](const auto&) {
    images().arrays.publish(made.handle);
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) {
    images().arrays.discard(made.handle);
    return result;
  }
  *out = array;
  return CUDA_SUCCESS;
}

std::uint64_t known_level(const MipmappedArrayState& whole, unsigned level) {
  const Lock lock(images().mutex);
  return whole.arrays[level];
}

// One side of a flat copy.
BoxSide in_array(CUarray array, std::size_t offset) {
  BoxSide side;
  side.memory = BoxSide::Memory::kArray;
  side.array = array;
  side.x = offset;
  return side;
}

BoxSide at_address(std::uint64_t address, BoxSide::Memory memory) {
  BoxSide side;
  side.memory = memory;
  side.address = address;
  return side;
}

CUresult check_end(BoxSide& side, std::size_t bytes, BoxSide::Use use) {
  if (side.memory == BoxSide::Memory::kArray) {
    if (side.array == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const ArrayState* state = images().arrays.find(address_of(side.array));
    if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const bool one_row = cuda::shape_of(state->descriptor) == cuda::ArrayShape::k1D;
    return one_row && state->extent.holds_bytes(side.x, bytes) ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_VALUE;
  }
  std::uint64_t last = 0;
  if (side.address == 0 || __builtin_add_overflow(side.address, bytes - 1, &last)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  side.pitch = side.slice_pitch = bytes;
  const auto placed = session().memory().map().place(side.address, bytes);
  const bool host = side.memory == BoxSide::Memory::kHost;
  const BoxSide::Said said = host ? BoxSide::Said::kHost : BoxSide::Said::kUnified;
  if (!side.place_in(placed, said, use)) return CUDA_ERROR_INVALID_VALUE;
  if (!host && placed.place == MemoryMap::Place::kPageable) return CUDA_ERROR_INVALID_VALUE;
  if (side.pinned) side.memory = BoxSide::Memory::kHost;
  return CUDA_SUCCESS;
}

// What it begins and ends within, of an array: whole elements, which is all that other copies take.
struct Elements {
  std::size_t first = 0;
  std::size_t bytes = 0;
};
Elements around(const BoxSide& side, std::size_t bytes) {
  if (side.memory != BoxSide::Memory::kArray) return {side.x, bytes};
  const std::size_t each = images().arrays.find(address_of(side.array))->extent.texel_bytes;
  const std::size_t first = side.x / each * each;
  return {first, (side.x + bytes + each - 1) / each * each - first};
}

bool whole(const BoxSide& side, std::size_t bytes) {
  const Elements elements = around(side, bytes);
  return elements.first == side.x && elements.bytes == bytes;
}

BoxSide in(std::vector<std::byte>& here) {
  BoxSide side = at_address(address_of(here.data()), BoxSide::Memory::kHost);
  side.pitch = side.slice_pitch = here.size();
  side.of_host = true;
  return side;
}

CUresult run_row(const BoxSide& to, const BoxSide& from, std::size_t bytes, CUstream stream) {
  BoxCopy copy;
  copy.from = from;
  copy.to = to;
  copy.width = bytes;
  copy.rows = copy.slices = 1;
  return session().memory().transfers().run(copy, stream, Waiting::kStaged, 0);
}

// The elements of which the side has some bytes.
CUresult fetch(BoxSide side, const Elements& elements, CUstream stream,
               std::vector<std::byte>& here) {
  here.resize(elements.bytes);
  side.x = elements.first;
  return run_row(in(here), side, elements.bytes, stream);
}

// A copy that begins or ends within an element: by way of this process, where it is put together.
CUresult run_in_parts(const BoxCopy& copy, CUstream stream) {
  std::vector<std::byte> source;
  const Elements read = around(copy.from, copy.width);
  CUresult result = fetch(copy.from, read, stream, source);
  if (result != CUDA_SUCCESS) return result;
  const std::byte* const first = source.data() + (copy.from.x - read.first);
  std::vector<std::byte> target(first, first + copy.width);
  const Elements written = around(copy.to, copy.width);
  if (!whole(copy.to, copy.width)) {
    result = fetch(copy.to, written, stream, target);
    if (result != CUDA_SUCCESS) return result;
    std::memcpy(target.data() + (copy.to.x - written.first), first, copy.width);
  }
  BoxSide to = copy.to;
  to.x = written.first;
  return run_row(to, in(target), written.bytes, stream);
}

CUresult flat(const BoxSide& to, const BoxSide& from, std::size_t bytes, CUstream stream,
              Waiting waiting) {
  if (const CUresult result = client::check(stream); result != CUDA_SUCCESS) return result;
  Transfers& transfers = session().memory().transfers();
  std::uint64_t graph = 0;
  const CUresult no = transfers.look_for_captures(stream, waiting, graph);
  if (no != CUDA_SUCCESS || bytes == 0) return no;
  BoxCopy copy;
  copy.from = from;
  copy.to = to;
  copy.width = bytes;
  copy.rows = copy.slices = 1;
  CUresult result = check_end(copy.to, bytes, BoxSide::Use::kWrite);
  if (result == CUDA_SUCCESS) result = check_end(copy.from, bytes, BoxSide::Use::kRead);
  if (result != CUDA_SUCCESS) return result;
  if (whole(copy.to, bytes) && whole(copy.from, bytes)) {
    return transfers.run(copy, stream, waiting, graph);
  }
  if (graph == 0) return run_in_parts(copy, stream);
  const bool to_array = copy.to.memory == BoxSide::Memory::kArray;
  return refused(to_array ? "cuMemcpyHtoAAsync_v2" : "cuMemcpyAtoHAsync_v2",
                 "what is captured has whole elements");
}

BoxSide on_host(const void* host) { return at_address(address_of(host), BoxSide::Memory::kHost); }
BoxSide on_device(CUdeviceptr device) { return at_address(device, BoxSide::Memory::kDevice); }

// Sparse arrays and those whose memory is mapped later are refused when they are made, and planes
// are of formats that are refused: so what exists has none of it.
template <class Handle>
CUresult has_no_such_thing(Handle handle) {
  const ContextOf home(home_of(handle));
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  const CUresult result = client::check(handle);
  return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}

}  // namespace

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  if (pHandle == nullptr || pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(pHandle, cuda::solid(*pAllocateArray), "cuArrayCreate_v2");
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  if (pHandle == nullptr || pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(pHandle, *pAllocateArray, "cuArray3DCreate_v2");
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  const ContextOf home(home_of(hArray));
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (const CUresult bad = client::check(hArray); bad != CUDA_SUCCESS) return bad;
  if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& d = images().arrays.find(address_of(hArray))->descriptor;
  *pArrayDescriptor = {d.Width, d.Height, d.Format, d.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  const ContextOf home(home_of(hArray));
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (const CUresult bad = client::check(hArray); bad != CUDA_SUCCESS) return bad;
  if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pArrayDescriptor = images().arrays.find(address_of(hArray))->descriptor;
  return CUDA_SUCCESS;
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray array) {
  return array == nullptr ? CUDA_ERROR_INVALID_VALUE : has_no_such_thing(array);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*,
                                             CUmipmappedArray mipmap) {
  return mipmap == nullptr ? CUDA_ERROR_INVALID_VALUE : has_no_such_thing(mipmap);
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray array, CUdevice) {
  return array == nullptr ? CUDA_ERROR_INVALID_VALUE : has_no_such_thing(array);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*,
                                               CUmipmappedArray mipmap, CUdevice) {
  return mipmap == nullptr ? CUDA_ERROR_INVALID_VALUE : has_no_such_thing(mipmap);
}

CUresult cuArrayGetPlane(CUarray*, CUarray hArray, unsigned int) {
  return has_no_such_thing(hArray);
}

CUresult cuArrayDestroy(CUarray hArray) {
  const ContextOf home(home_of(hArray));
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  const ArrayState* state = images().arrays.find(address_of(hArray));
  if (state == nullptr || state->mipmapped != 0) return CUDA_ERROR_INVALID_HANDLE;
  // Only then: other threads' new arrays get the handles of those that the server has let go.
  const auto forget = [&](const auto&...) {
    images().arrays.drop(address_of(hArray));
    return CUDA_SUCCESS;
  };
  const CUresult result = ask_and_note(commands::DestroyArray{.array = hArray}, forget);
  if (result != CUDA_SUCCESS) forget();
  return result;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  if (pHandle == nullptr || pMipmappedArrayDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR& descriptor = *pMipmappedArrayDesc;
  if (const CUresult bad = check(descriptor, "cuMipmappedArrayCreate"); bad != CUDA_SUCCESS) {
    return bad;
  }
  const auto made = images().mipmapped_arrays.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  MipmappedArrayState& state = *made.state;
  state.context = &owner();
  state.descriptor = descriptor;
  state.levels = std::clamp(numMipmapLevels, 1U, cuda::levels_max(descriptor));
  state.arrays.assign(state.levels, 0);
  const auto array = static_cast<CUmipmappedArray>(pointer_at(made.handle));
  const commands::CreateMipmappedArray command{
      .array = array, .descriptor = state.descriptor, .levels = state.levels};
  const CUresult result = ask_and_note(command, [&](const auto&) {
    images().mipmapped_arrays.publish(made.handle);
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) {
    images().mipmapped_arrays.discard(made.handle);
    return result;
  }
  *pHandle = array;
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
  const ContextOf home(home_of(hMipmappedArray));
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (const CUresult bad = client::check(hMipmappedArray); bad != CUDA_SUCCESS) return bad;
  const Lock asking(images().asking);
  MipmappedArrayState* whole = images().mipmapped_arrays.find(address_of(hMipmappedArray));
  if (whole == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (pLevelArray == nullptr || level >= whole->levels) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t known = known_level(*whole, level);
  if (known == 0) {
    const auto made = images().arrays.make();
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    made.state->context = whole->context;
    made.state->descriptor = cuda::level_of(whole->descriptor, level);
    made.state->extent = cuda::extent_of(made.state->descriptor);
    made.state->mipmapped = address_of(hMipmappedArray);
    const auto array = static_cast<CUarray>(pointer_at(made.handle));
    const commands::GetArrayLevel command{
        .mipmapped = hMipmappedArray, .level = level, .array = array};
    const CUresult result = ask_and_note(command, [&](const auto&) {
      const Lock lock(images().mutex);
      images().arrays.publish(made.handle);
      whole->arrays[level] = made.handle;
      return CUDA_SUCCESS;
    });
    if (result != CUDA_SUCCESS) {
      images().arrays.discard(made.handle);
      return result;
    }
    known = made.handle;
  }
  *pLevelArray = static_cast<CUarray>(pointer_at(known));
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  const ContextOf home(home_of(hMipmappedArray));
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  const std::uint64_t handle = address_of(hMipmappedArray);
  // No level gets a handle meanwhile.
  const Lock asking(images().asking);
  const MipmappedArrayState* whole = images().mipmapped_arrays.find(handle);
  if (whole == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto forget = [&](const auto&...) {
    const Lock lock(images().mutex);
    for (const std::uint64_t level : whole->arrays) images().arrays.drop(level);
    images().mipmapped_arrays.drop(handle);
    return CUDA_SUCCESS;
  };
  const CUresult result =
      ask_and_note(commands::DestroyMipmappedArray{.array = hMipmappedArray}, forget);
  if (result != CUDA_SUCCESS) forget();
  return result;
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                         size_t ByteCount) {
  return flat(in_array(dstArray, dstOffset), on_host(srcHost), ByteCount, nullptr,
              Waiting::kStaged);
}

CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  return flat(on_host(dstHost), in_array(srcArray, srcOffset), ByteCount, nullptr,
              Waiting::kStaged);
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount) {
  return flat(in_array(dstArray, dstOffset), on_device(srcDevice), ByteCount, nullptr,
              Waiting::kStaged);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return flat(on_device(dstDevice), in_array(srcArray, srcOffset), ByteCount, nullptr,
              Waiting::kStaged);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return flat(in_array(dstArray, dstOffset), in_array(srcArray, srcOffset), ByteCount, nullptr,
              Waiting::kStaged);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                              size_t ByteCount, CUstream hStream) {
  return flat(in_array(dstArray, dstOffset), on_host(srcHost), ByteCount, hStream,
              Waiting::kStream);
}

CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  return flat(on_host(dstHost), in_array(srcArray, srcOffset), ByteCount, hStream,
              Waiting::kStream);
}

}  // namespace flyt::client::hooks
