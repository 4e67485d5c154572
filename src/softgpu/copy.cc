#include "softgpu/copy.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/pages.h"
#include "cuda/array_facts.h"
#include "softgpu/capture.h"

namespace flyt::softgpu {
namespace {

// Pageable memory up to this size is taken along at the call; larger copies are waited for.
constexpr std::uint64_t kStagedBytesMax = 16 * kMiB;
constexpr std::uint64_t kStagedBytesMaxOfOthers = 64 * kKiB;  // FLYT_SOFTGPU_HOST_MEMORY_WAITS

enum class Kind : std::uint8_t { kPageable, kPinned, kDevice, kArray };

bool on_device(Kind kind) { return kind == Kind::kDevice || kind == Kind::kArray; }

// One side: checked, and known for what it is. None where the box is no memory of that side.
struct Resolved {
  Kind kind = Kind::kPageable;
  bool sync_memops = false;
};

std::optional<Resolved> resolve(const Regions& regions, const Box& box, const Extent& extent,
                                Side side, bool write) {
  const auto size = span_bytes(box, extent);
  if (!size || box.address == 0) return std::nullopt;
  const auto region = regions.find(box.address);
  if (!region) {
    // A pageable host range may reach into page-locked memory.
    if (side == Side::kDevice || regions.reaches_device(box.address, *size)) return std::nullopt;
    return Resolved{};
  }
  // It may also begin there and go on behind it: in the pages, which are locked as a whole, or
  // where it is said to be of the host.
  if (!regions.covers(box.address, *size, write)) {
    const bool beyond = !regions.covers(box.address, *size, false);
    const bool in_pages = *size <= Pages::whole(region->end()) - box.address;
    const bool host = side == Side::kHost || (side == Side::kUnified && in_pages);
    return region->is_host() && beyond && host ? std::optional(Resolved{}) : std::nullopt;
  }
  return Resolved{region->is_host() || region->managed ? Kind::kPinned : Kind::kDevice,
                  region->sync_memops};
}

// An array stays while a copy keeps it, so there is nothing to look up.
std::optional<Resolved> resolve_to(const Regions& regions, const CopyRequest& request) {
  if (request.to_array.array != nullptr) return Resolved{Kind::kArray, false};
  return resolve(regions, request.to, request.extent, request.to_side, true);
}
std::optional<Resolved> resolve_from(const Regions& regions, const CopyRequest& request) {
  if (request.from_array.array != nullptr) return Resolved{Kind::kArray, false};
  return resolve(regions, request.from, request.extent, request.from_side, false);
}

void move_rows(const Box& to, const Box& from, const Extent& extent) {
  for (std::uint64_t z = 0; z < extent.depth; ++z) {
    const std::uint64_t to_slice = to.address + z * to.slice;
    const std::uint64_t from_slice = from.address + z * from.slice;
    const bool tight = to.pitch == extent.width && from.pitch == extent.width;
    const std::uint64_t rows = tight ? 1 : extent.height;
    const std::uint64_t bytes = tight ? extent.width * extent.height : extent.width;
    for (std::uint64_t y = 0; y < rows; ++y) {
      std::memmove(pointer_at(to_slice + y * to.pitch), pointer_at(from_slice + y * from.pitch),
                   bytes);
    }
  }
}

// Source rows in memory of our own.
std::shared_ptr<std::vector<std::byte>> stage(Box& from, const Extent& extent) {
  auto bytes =
      std::make_shared<std::vector<std::byte>>(extent.width * extent.height * extent.depth);
  const Box tight{address_of(bytes->data()), extent.width, extent.width * extent.height};
  move_rows(tight, from, extent);
  from = tight;
  return bytes;
}

void fill_row(std::uint64_t address, std::uint64_t bytes, const FillRequest& request) {
  auto* at = static_cast<std::byte*>(pointer_at(address));
  if (request.element_bytes == 1) {
    std::memset(at, static_cast<int>(request.value & 0xFF), bytes);
    return;
  }
  for (std::uint64_t i = 0; i < bytes; i += request.element_bytes) {
    std::memcpy(at + i, &request.value, request.element_bytes);
  }
}

// Memory that a pending operation needs may be gone by then: a program's mistake that must not
// take the process with it.
bool still_there(const Regions& regions, Kind kind, const Box& box, const Extent& extent,
                 bool write) {
  if (kind == Kind::kPageable || kind == Kind::kArray) return true;
  return regions.reaches(box.address, *span_bytes(box, extent), write);
}

// A width that has wrapped to nothing is looked at all the same.
Extent at_least_a_byte(Extent extent) {
  extent.width = std::max<std::uint64_t>(extent.width, 1);
  return extent;
}

CUresult place_one(const Regions& regions, const Corner& corner, const Extent& extent, Box& box,
                   Side& side) {
  switch (corner.type) {
    case CU_MEMORYTYPE_HOST:
      side = Side::kHost;
      box.address = address_of(corner.host);
      break;
    case CU_MEMORYTYPE_DEVICE:
      side = Side::kDevice;
      box.address = corner.device;
      break;
    case CU_MEMORYTYPE_UNIFIED: {
      // A box beside the device memory that it names is no box of the program's own memory.
      const auto named = regions.find(corner.device);
      side = named && !named->is_host() ? Side::kDevice : Side::kUnified;
      box.address = corner.device;
      break;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  box.pitch = corner.pitch == 0 ? corner.x + extent.width : corner.pitch;
  if (box.pitch < extent.width || box.pitch - extent.width < corner.x) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::size_t rows = corner.height == 0 ? corner.y + extent.height : corner.height;
  if (rows < extent.height || rows - extent.height < corner.y) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::size_t offset = 0;
  std::size_t part = 0;
  if (__builtin_mul_overflow(box.pitch, rows, &box.slice) ||
      __builtin_mul_overflow(corner.z, box.slice, &offset) ||
      __builtin_mul_overflow(corner.y, box.pitch, &part) ||
      __builtin_add_overflow(offset, part, &offset) ||
      __builtin_add_overflow(offset, corner.x, &offset) ||
      __builtin_add_overflow(box.address, offset, &box.address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

namespace {

CUresult find_array(Driver& driver, ArraySide& side) {
  if (side.handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  side.array = driver.arrays().find(from_handle(side.handle));
  return side.array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace

CUresult place_in_row(Driver& driver, std::uint64_t bytes, ArraySide& side, Box& box) {
  if (const CUresult bad = find_array(driver, side); bad != CUDA_SUCCESS) return bad;
  const cuda::ArrayExtent inside = cuda::extent_of(side.array->descriptor());
  if (side.array->shape() != ptx::ImageShape::k1D || !inside.holds_bytes(side.x, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const ptx::ImageLevel& level = side.array->level();
  box = {level.row(0, 0) + side.x, level.pitch, level.slice_pitch};
  return CUDA_SUCCESS;
}

CUresult place_in_array(Driver& driver, const Extent& extent, ArraySide& side, Box& box) {
  if (const CUresult bad = find_array(driver, side); bad != CUDA_SUCCESS) return bad;
  const cuda::ArrayExtent inside = cuda::extent_of(side.array->descriptor());
  if (!inside.holds(side.x, side.y, side.z, extent.width, extent.height, extent.depth)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const ptx::ImageLevel& level = side.array->level();
  box = {level.row(side.y, side.z) + side.x, level.pitch, level.slice_pitch};
  return CUDA_SUCCESS;
}

CUresult place(Driver& driver, const Corner& to, const Corner& from, const Extent& extent,
               CopyRequest& request) {
  request.extent = extent;
  const auto one = [&](const Corner& corner, Box& box, Side& side, ArraySide& array) {
    if (corner.type != CU_MEMORYTYPE_ARRAY)
      return place_one(driver.regions(), corner, extent, box, side);
    array = {nullptr, corner.array, corner.x, corner.y, corner.z};
    return place_in_array(driver, extent, array, box);
  };
  const CUresult bad = one(to, request.to, request.to_side, request.to_array);
  return bad != CUDA_SUCCESS ? bad : one(from, request.from, request.from_side, request.from_array);
}

CUresult read_copy(Driver& driver, const CUDA_MEMCPY3D& c, CopyRequest& request) {
  const Corner to{c.dstMemoryType, c.dstHost, c.dstDevice, c.dstPitch, c.dstHeight,
                  c.dstXInBytes,   c.dstY,    c.dstZ,      c.dstArray};
  const Corner from{c.srcMemoryType, c.srcHost, c.srcDevice, c.srcPitch, c.srcHeight,
                    c.srcXInBytes,   c.srcY,    c.srcZ,      c.srcArray};
  return place(driver, to, from, {c.WidthInBytes, c.Height, c.Depth}, request);
}

CUDA_MEMCPY3D describe_copy(const Regions& regions, const CopyRequest& request) {
  const auto is_host = [&regions](const Box& box, Side side) {
    if (side != Side::kUnified) return side == Side::kHost;
    const auto region = regions.find(box.address);
    return !region || region->is_host();
  };
  CUDA_MEMCPY3D c{};
  c.WidthInBytes = request.extent.width;
  c.Height = request.extent.height;
  c.Depth = request.extent.depth;
  c.dstPitch = request.to.pitch;
  c.dstHeight = request.to.pitch == 0 ? 0 : request.to.slice / request.to.pitch;
  c.srcPitch = request.from.pitch;
  c.srcHeight = request.from.pitch == 0 ? 0 : request.from.slice / request.from.pitch;
  if (request.to_array.array != nullptr) {
    c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    c.dstArray = request.to_array.handle;
    c.dstXInBytes = request.to_array.x;
    c.dstY = request.to_array.y;
    c.dstZ = request.to_array.z;
  } else if (is_host(request.to, request.to_side)) {
    c.dstMemoryType = CU_MEMORYTYPE_HOST;
    c.dstHost = pointer_at(request.to.address);
  } else {
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.dstDevice = request.to.address;
  }
  if (request.from_array.array != nullptr) {
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    c.srcArray = request.from_array.handle;
    c.srcXInBytes = request.from_array.x;
    c.srcY = request.from_array.y;
    c.srcZ = request.from_array.z;
  } else if (is_host(request.from, request.from_side)) {
    c.srcMemoryType = CU_MEMORYTYPE_HOST;
    c.srcHost = pointer_at(request.from.address);
  } else {
    c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    c.srcDevice = request.from.address;
  }
  return c;
}

CUresult check_copy(const Regions& regions, const CopyRequest& request) {
  if (request.extent.empty()) return CUDA_SUCCESS;
  return resolve_to(regions, request) && resolve_from(regions, request) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
}

void note_known(const Regions& regions, CopyRequest& request) {
  const auto to = resolve_to(regions, request);
  const auto from = resolve_from(regions, request);
  request.to_known = to && to->kind != Kind::kPageable;
  request.from_known = from && from->kind != Kind::kPageable;
}

void run_copy(Regions& regions, Fate& fate, const CopyRequest& request) {
  if (request.extent.empty()) return;
  bool gone = false;
  if (request.to_known || request.from_known) {
    CopyRequest now = request;
    note_known(regions, now);
    gone = (request.to_known && !now.to_known) || (request.from_known && !now.from_known);
  }
  if (gone || check_copy(regions, request) != CUDA_SUCCESS) {
    fate.fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    return;
  }
  move_rows(request.to, request.from, request.extent);
}

CUresult check_fill(const Regions& regions, const FillRequest& request) {
  if (request.to.address % request.element_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  if (request.extent.height == 0) return CUDA_SUCCESS;
  return resolve(regions, request.to, at_least_a_byte(request.extent), Side::kDevice, true)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

void run_fill(Regions& regions, Fate& fate, const FillRequest& request) {
  if (request.extent.empty()) return;
  if (check_fill(regions, request) != CUDA_SUCCESS) {
    fate.fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    return;
  }
  for (std::uint64_t y = 0; y < request.extent.height; ++y) {
    fill_row(request.to.address + y * request.to.pitch, request.extent.width, request);
  }
}

std::optional<std::uint64_t> span_bytes(const Box& box, const Extent& extent) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 47;
  if (extent.empty()) return 0;
  std::uint64_t rows = 0;
  std::uint64_t slices = 0;
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(extent.height - 1, box.pitch, &rows) ||
      __builtin_mul_overflow(extent.depth - 1, box.slice, &slices) ||
      __builtin_add_overflow(rows, slices, &bytes) ||
      __builtin_add_overflow(bytes, extent.width, &bytes) || bytes > kMost || box.address > kMost ||
      bytes > kMost - box.address) {
    return std::nullopt;
  }
  return bytes;
}

// Memory that is mapped must be open to the device that copies it to another one, as for NVIDIA's
// driver; what was allocated need not be.
bool open_between_devices(const Regions& regions, const Context& context,
                          const CopyRequest& request) {
  if (request.to_array.array != nullptr || request.from_array.array != nullptr) return true;
  const auto to = regions.find(request.to.address);
  const auto from = regions.find(request.from.address);
  if (!to || !from || to->device == from->device) return true;
  const DeviceSet copier = device_set(context.device().number());
  return (to->kind != RegionKind::kMapped || (to->writers & copier) != 0) &&
         (from->kind != RegionKind::kMapped || ((from->readers | from->writers) & copier) != 0);
}

CUresult copy(Driver& driver, const std::shared_ptr<Context>& context,
              const std::shared_ptr<Stream>& stream, const CopyRequest& request, bool blocking) {
  if (request.extent.empty()) return CUDA_SUCCESS;
  Regions& regions = driver.regions();
  const auto to = resolve_to(regions, request);
  const auto from = resolve_from(regions, request);
  if (!to || !from) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capturing()) return capture_copy(driver, *stream, *context, request);
  if (!open_between_devices(regions, *context, request)) return CUDA_ERROR_INVALID_VALUE;
  const bool device_only = on_device(to->kind) && on_device(from->kind);
  const bool told_to_wait = to->sync_memops || from->sync_memops;
  bool wait = (blocking && (!device_only || told_to_wait)) || to->kind == Kind::kPageable ||
              (request.source_now && on_device(from->kind));
  Box source = request.from;
  std::shared_ptr<std::vector<std::byte>> staged;
  const bool taken_along = from->kind == Kind::kPageable || request.source_now;
  if (taken_along && !wait) {
    const std::uint64_t bytes = request.extent.width * request.extent.height * request.extent.depth;
    if (bytes <=
        (driver.settings().host_memory_waits ? kStagedBytesMaxOfOthers : kStagedBytesMax)) {
      staged = stage(source, request.extent);
    } else {
      wait = true;
    }
  }
  stream->await_room();
  const Ticket ticket =
      context->submit(*stream, [&regions, fate = context->fate(), request, source, staged,
                                to_kind = to->kind, from_kind = from->kind] {
        if (!still_there(regions, to_kind, request.to, request.extent, true) ||
            !still_there(regions, from_kind, request.from, request.extent, false)) {
          fate->fail(CUDA_ERROR_ILLEGAL_ADDRESS);
          return;
        }
        move_rows(request.to, source, request.extent);
      });
  if (!wait) return CUDA_SUCCESS;
  ticket.wait();
  if (blocking) driver.output().flush();
  return context->fate()->error();
}

CUresult fill(Driver& driver, const std::shared_ptr<Context>& context,
              const std::shared_ptr<Stream>& stream, const FillRequest& request, bool blocking) {
  if (request.to.address % request.element_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  Regions& regions = driver.regions();
  const auto to =
      resolve(regions, request.to, at_least_a_byte(request.extent), Side::kDevice, true);
  if (!to) return CUDA_ERROR_INVALID_VALUE;
  if (request.extent.empty()) return CUDA_SUCCESS;
  if (stream->capturing()) return capture_fill(driver, *stream, *context, request);
  stream->await_room();
  const Ticket ticket =
      context->submit(*stream, [&regions, fate = context->fate(), request, kind = to->kind] {
        if (!still_there(regions, kind, request.to, request.extent, true)) {
          fate->fail(CUDA_ERROR_ILLEGAL_ADDRESS);
          return;
        }
        for (std::uint64_t y = 0; y < request.extent.height; ++y) {
          fill_row(request.to.address + y * request.to.pitch, request.extent.width, request);
        }
      });
  if (!blocking || (to->kind == Kind::kDevice && !to->sync_memops)) return CUDA_SUCCESS;
  ticket.wait();
  return context->fate()->error();
}

}  // namespace flyt::softgpu
