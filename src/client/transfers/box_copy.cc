// BoxCopy: 2D and 3D copies, checked as the driver checks them and brought to one form.
#include "client/transfers/box_copy.h"

#include <cstring>
#include <optional>

#include "base/bytes.h"

namespace flyt::client {
namespace {

// The driver's largest pitch for device memory (CU_DEVICE_ATTRIBUTE_MAX_PITCH).
constexpr std::uint64_t kDevicePitchMax = 0x7fffffff;

// One side as the program describes it.
struct RawSide {
  CUmemorytype type{};
  std::uint64_t host = 0;
  std::uint64_t device = 0;
  CUarray array = nullptr;
  std::uint64_t x = 0;
  std::uint64_t y = 0;
  std::uint64_t z = 0;
  std::uint64_t pitch = 0;
  std::uint64_t height = 0;
};

struct Extent {
  std::uint64_t width = 0;
  std::uint64_t rows = 0;
  std::uint64_t slices = 0;
};

// address + a * b, if that is an address.
std::optional<std::uint64_t> plus_product(std::uint64_t base, std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  std::uint64_t sum = 0;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(base, product, &sum)) {
    return std::nullopt;
  }
  return sum;
}

// The bytes from the first one of the box to behind its last one.
std::optional<std::uint64_t> span_of(const BoxSide& side, const Extent& extent) {
  const auto rows = plus_product(extent.width, side.pitch, extent.rows - 1);
  return rows ? plus_product(*rows, side.slice_pitch, extent.slices - 1) : std::nullopt;
}

// Where the box starts and how it is pitched. A pitch or height of 0 means that there are no gaps.
CUresult lay_out(const RawSide& raw, const Extent& extent, std::uint64_t base, BoxSide& side) {
  std::uint64_t row_end = 0;
  if (__builtin_add_overflow(raw.x, extent.width, &row_end)) return CUDA_ERROR_INVALID_VALUE;
  side.pitch = raw.pitch != 0 ? raw.pitch : row_end;
  if (side.pitch < row_end) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t column_end = 0;
  if (__builtin_add_overflow(raw.y, extent.rows, &column_end)) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t height = raw.height != 0 ? raw.height : column_end;
  if (height < column_end) return CUDA_ERROR_INVALID_VALUE;
  const auto slice_pitch = plus_product(0, side.pitch, height);
  if (!slice_pitch) return CUDA_ERROR_INVALID_VALUE;
  side.slice_pitch = *slice_pitch;
  auto start = plus_product(base, side.slice_pitch, raw.z);
  if (start) start = plus_product(*start, side.pitch, raw.y);
  if (start) start = plus_product(*start, raw.x, 1);
  if (!start) return CUDA_ERROR_INVALID_VALUE;
  side.address = *start;
  return CUDA_SUCCESS;
}

CUresult make_array_side(const ArrayTable& arrays, const RawSide& raw, const Extent& extent,
                         BoxSide& side) {
  if (raw.array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ArrayState* state = arrays.find(address_of(raw.array));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!state->extent.holds(raw.x, raw.y, raw.z, extent.width, extent.rows, extent.slices)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  side.memory = BoxSide::Memory::kArray;
  side.array = raw.array;
  side.x = raw.x;
  side.y = raw.y;
  side.z = raw.z;
  return CUDA_SUCCESS;
}

CUresult make_side(const CopyTables& tables, const RawSide& raw, const Extent& extent,
                   BoxSide::Use use, BoxSide& side) {
  const bool host = raw.type == CU_MEMORYTYPE_HOST;
  const bool device = raw.type == CU_MEMORYTYPE_DEVICE;
  if (raw.type == CU_MEMORYTYPE_ARRAY) return make_array_side(tables.arrays, raw, extent, side);
  if (!host && !device && raw.type != CU_MEMORYTYPE_UNIFIED) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t base = host ? raw.host : raw.device;
  if (base == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = lay_out(raw, extent, base, side); result != CUDA_SUCCESS) {
    return result;
  }
  const auto bytes = span_of(side, extent);
  std::uint64_t end = 0;
  if (!bytes || __builtin_add_overflow(side.address, *bytes, &end)) return CUDA_ERROR_INVALID_VALUE;
  const MemoryMap::Placed placed = tables.map.place(side.address, *bytes);
  // A device address where host memory was announced works natively, by unified addressing.
  const BoxSide::Said said = host ? BoxSide::Said::kHost : BoxSide::Said::kUnified;
  if (!side.place_in(placed, said, use)) return CUDA_ERROR_INVALID_VALUE;
  const bool too_wide =
      placed.place == MemoryMap::Place::kDevice && side.pitch > kDevicePitchMax && extent.rows > 1;
  // Nor is a box beside the device memory that it names one of the program's own memory.
  const bool unknown = placed.place == MemoryMap::Place::kPageable &&
                       (device || tables.map.place(base, 1).place == MemoryMap::Place::kDevice);
  return too_wide || unknown ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult make(const CopyTables& tables, const RawSide& from, const RawSide& to,
              const Extent& extent, BoxCopy& out) {
  out = {};
  out.width = extent.width;
  out.rows = extent.rows;
  out.slices = extent.slices;
  if (out.empty()) return CUDA_SUCCESS;
  const CUresult result = make_side(tables, from, extent, BoxSide::Use::kRead, out.from);
  return result == CUDA_SUCCESS ? make_side(tables, to, extent, BoxSide::Use::kWrite, out.to)
                                : result;
}

// The two 3D structures have the same fields, but for contexts.
template <class Copy>
CUresult make_3d(const CopyTables& tables, const Copy& copy, BoxCopy& out) {
  const RawSide from{copy.srcMemoryType, address_of(copy.srcHost),
                     copy.srcDevice,     copy.srcArray,
                     copy.srcXInBytes,   copy.srcY,
                     copy.srcZ,          copy.srcPitch,
                     copy.srcHeight};
  const RawSide to{copy.dstMemoryType, address_of(copy.dstHost),
                   copy.dstDevice,     copy.dstArray,
                   copy.dstXInBytes,   copy.dstY,
                   copy.dstZ,          copy.dstPitch,
                   copy.dstHeight};
  return make(tables, from, to, {copy.WidthInBytes, copy.Height, copy.Depth}, out);
}

const std::byte* row_of(const BoxSide& side, std::uint64_t slice, std::uint64_t row) {
  return static_cast<const std::byte*>(
      pointer_at(side.address + slice * side.slice_pitch + row * side.pitch));
}

}  // namespace

bool BoxSide::place_in(const MemoryMap::Placed& placed, Said said, Use use) {
  const bool beyond = placed.place == MemoryMap::Place::kBeyond;
  if (placed.place == MemoryMap::Place::kBad || (beyond && said != Said::kHost)) return false;
  of_host = placed.place != MemoryMap::Place::kDevice;
  if (placed.place == MemoryMap::Place::kPageable || beyond) return true;
  if (use == Use::kWrite && !placed.writable) return false;
  mirrored = placed.memory.mirrored;
  if (placed.place == MemoryMap::Place::kDevice || mirrored) {
    memory = Memory::kDevice;
    distance = placed.memory.device_address(address) - address;
    address += distance;
  } else {
    pinned = true;
  }
  return true;
}

CUresult make_box_copy(const CopyTables& tables, const CUDA_MEMCPY2D& copy, BoxCopy& out) {
  const RawSide from{copy.srcMemoryType,
                     address_of(copy.srcHost),
                     copy.srcDevice,
                     copy.srcArray,
                     copy.srcXInBytes,
                     copy.srcY,
                     0,
                     copy.srcPitch,
                     0};
  const RawSide to{copy.dstMemoryType,
                   address_of(copy.dstHost),
                   copy.dstDevice,
                   copy.dstArray,
                   copy.dstXInBytes,
                   copy.dstY,
                   0,
                   copy.dstPitch,
                   0};
  return make(tables, from, to, {copy.WidthInBytes, copy.Height, 1}, out);
}

CUresult make_box_copy(const CopyTables& tables, const CUDA_MEMCPY3D& copy, BoxCopy& out) {
  return make_3d(tables, copy, out);
}

CUresult make_box_copy(const CopyTables& tables, const CUDA_MEMCPY3D_PEER& copy, BoxCopy& out) {
  const CUresult result = make_3d(tables, copy, out);
  out.from.context = copy.srcContext;
  out.to.context = copy.dstContext;
  return result;
}

void pack_rows(const BoxCopy& copy, std::uint64_t slice, std::uint64_t row, std::uint64_t rows,
               void* out) {
  auto* packed = static_cast<std::byte*>(out);
  for (std::uint64_t i = 0; i < rows; ++i) {
    std::memcpy(packed + i * copy.width, row_of(copy.from, slice, row + i), copy.width);
  }
}

void copy_on_host(const BoxCopy& copy) {
  for (std::uint64_t slice = 0; slice < copy.slices; ++slice) {
    for (std::uint64_t row = 0; row < copy.rows; ++row) {
      std::memmove(const_cast<std::byte*>(row_of(copy.to, slice, row)),
                   row_of(copy.from, slice, row), copy.width);
    }
  }
}

}  // namespace flyt::client
