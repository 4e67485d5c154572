// Copy: moving and filling boxes of memory, in the order of a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "cuda/types.h"
#include "softgpu/array.h"
#include "softgpu/driver.h"

namespace flyt::softgpu {

// A box of bytes: `width` bytes a row, rows `pitch` apart, slices `slice` apart.
struct Box {
  std::uint64_t address = 0;
  std::uint64_t pitch = 0;
  std::uint64_t slice = 0;
};

struct Extent {
  std::uint64_t width = 0;  // Bytes.
  std::uint64_t height = 1;
  std::uint64_t depth = 1;
  bool empty() const { return width == 0 || height == 0 || depth == 0; }
};

// From the first to behind the last byte of the box; none where that is no range of addresses.
std::optional<std::uint64_t> span_bytes(const Box& box, const Extent& extent);

// What kind of memory a side of a copy is said or found to be.
enum class Side : std::uint8_t { kHost, kDevice, kUnified };

// A side of a copy that is an array, which it keeps: byte `x` of row `y` in slice `z`.
struct ArraySide {
  std::shared_ptr<const Array> array;  // Null: the side is memory.
  CUarray handle = nullptr;
  std::uint64_t x = 0;
  std::uint64_t y = 0;
  std::uint64_t z = 0;
};

struct CopyRequest {
  Box to;
  Box from;
  Extent extent;
  Side to_side = Side::kUnified;
  Side from_side = Side::kUnified;
  // Where a side is an array, its box has been found by place_in_array().
  ArraySide to_array;
  ArraySide from_array;
  bool source_now = false;  // The source is read before the call returns.
  // Of a graph's: the driver has known the memory since, and without it there is nothing to copy.
  bool to_known = false;
  bool from_known = false;
};

// One side of a two- or three-dimensional copy as CUDA describes it.
struct Corner {
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
  const void* host = nullptr;
  CUdeviceptr device = 0;
  std::size_t pitch = 0;
  std::size_t height = 0;  // Rows of a slice.
  std::size_t x = 0;
  std::size_t y = 0;
  std::size_t z = 0;
  CUarray array = nullptr;
};
// CUDA_ERROR_INVALID_VALUE where the corners cannot be.
CUresult place(Driver& driver, const Corner& to, const Corner& from, const Extent& extent,
               CopyRequest& request);
CUresult read_copy(Driver& driver, const CUDA_MEMCPY3D& copy, CopyRequest& request);
// What a graph says of a copy that was captured.
CUDA_MEMCPY3D describe_copy(const Regions& regions, const CopyRequest& request);

// Notes which sides of a copy that a graph is given are memory that the driver knows.
void note_known(const Regions& regions, CopyRequest& request);

// What the calls refuse at once.
CUresult check_copy(const Regions& regions, const CopyRequest& request);
// Does it now; memory that is not there any more is the context's error.
void run_copy(Regions& regions, Fate& fate, const CopyRequest& request);
// The box of `extent` in an array whose handle and offsets `side` tells; fills in the array.
// CUDA_ERROR_INVALID_VALUE where the array ends before, or the box does not begin or end with whole
// texels; CUDA_ERROR_INVALID_HANDLE where there is no such array.
CUresult place_in_array(Driver& driver, const Extent& extent, ArraySide& side, Box& box);
// The same for `bytes` of an array of one row, which may begin and end within a texel.
CUresult place_in_row(Driver& driver, std::uint64_t bytes, ArraySide& side, Box& box);

// Checks both sides against the regions and does the copy in the stream. Waits for its end where
// CUDA promises that: `blocking` copies with pageable memory or with host memory at all, and
// asynchronous ones that pageable memory forbids.
CUresult copy(Driver& driver, const std::shared_ptr<Context>& context,
              const std::shared_ptr<Stream>& stream, const CopyRequest& request, bool blocking);

struct FillRequest {
  Box to;
  Extent extent;  // Width in elements' bytes.
  std::uint32_t value = 0;
  std::uint32_t element_bytes = 1;  // 1, 2 or 4.
};

CUresult check_fill(const Regions& regions, const FillRequest& request);
void run_fill(Regions& regions, Fate& fate, const FillRequest& request);

CUresult fill(Driver& driver, const std::shared_ptr<Context>& context,
              const std::shared_ptr<Stream>& stream, const FillRequest& request, bool blocking);

}  // namespace flyt::softgpu
