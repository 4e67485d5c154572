// Host object: what nvcc and the host's compiler made of a source, and archives of such files; the
// code for GPUs in them.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cuda/fatbin.h"

namespace flyt::cuda {

// Limits of hostile input.
inline constexpr std::size_t kObjectFatbinsMax = 4096;
inline constexpr std::size_t kArchiveMembersMax = 65536;

// The fat binaries of relocatable code (`nvcc -dc`) in a host's 64-bit, little-endian ELF file, in
// their order. None if it has no such code; whole code is not linked again, as nvlink has it. Views
// into `object`. ErrorCode::kUnsupported for files of other kinds, a GPU's among them; other codes
// if it is cut off, damaged or beyond the limits.
Result<std::vector<Fatbin>> fatbins_of_object(Bytes object);

// The files in an archive, in their order, without its tables. Views into `archive`.
Result<std::vector<Bytes>> members_of_archive(Bytes archive);

}  // namespace flyt::cuda
