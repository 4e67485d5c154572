// BoxCopy: 2D and 3D copies, checked as the driver checks them and brought to one form.
#pragma once

#include <cstdint>

#include "client/memory/images.h"
#include "client/memory/memory_map.h"
#include "cuda/types.h"

namespace flyt::client {

// One end of a copy: where its first byte is, and how rows and slices follow.
struct BoxSide {
  enum class Memory : std::uint8_t { kHost, kDevice, kArray };
  Memory memory = Memory::kHost;
  std::uint64_t address = 0;
  std::uint64_t pitch = 0;
  std::uint64_t slice_pitch = 0;
  bool pinned = false;  // Host memory that CUDA knows.
  // Host memory that kernels reach: memory is kDevice, and the address theirs.
  bool mirrored = false;

  bool of_host = false;        // The program has it as host memory, mirrored or not.
  std::uint64_t distance = 0;  // From the program's address to the GPU's.

  // What the program says of its memory. What begins in page-locked memory and leaves it may be
  // host memory only where it was said to be.
  enum class Said : std::uint8_t { kHost, kUnified };
  enum class Use : std::uint8_t { kRead, kWrite };
  // Takes over what memory it is, once `address` is known. False: it may not be used so.
  bool place_in(const MemoryMap::Placed& placed, Said said, Use use);
  // kArray: the first byte of a row, the first row and the first slice in it.
  CUarray array = nullptr;
  std::uint64_t x = 0;
  std::uint64_t y = 0;
  std::uint64_t z = 0;
  CUcontext context = nullptr;  // Of a peer copy that names one.

  bool on_gpu() const { return memory != Memory::kHost; }
};

// `slices` times `rows` rows of `width` bytes.
struct BoxCopy {
  BoxSide from;
  BoxSide to;
  std::uint64_t width = 0;
  std::uint64_t rows = 0;
  std::uint64_t slices = 0;

  bool empty() const { return width == 0 || rows == 0 || slices == 0; }
};

// What sides of a copy are looked up in.
struct CopyTables {
  const MemoryMap& map;
  const ArrayTable& arrays;
};

// CUDA_ERROR_INVALID_VALUE for what native refuses, CUDA_ERROR_INVALID_HANDLE for what is no array.
CUresult make_box_copy(const CopyTables& tables, const CUDA_MEMCPY2D& copy, BoxCopy& out);
CUresult make_box_copy(const CopyTables& tables, const CUDA_MEMCPY3D& copy, BoxCopy& out);
CUresult make_box_copy(const CopyTables& tables, const CUDA_MEMCPY3D_PEER& copy, BoxCopy& out);

// Packs `rows` rows of one slice, from `row` on, into `out` (width * rows bytes).
void pack_rows(const BoxCopy& copy, std::uint64_t slice, std::uint64_t row, std::uint64_t rows,
               void* out);
// Host to host.
void copy_on_host(const BoxCopy& copy);

}  // namespace flyt::client
