// Host object: what nvcc and the host's compiler made of a source, and archives of such files; the
// fat binaries in them.
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

// The fat binaries of a 64-bit ELF object file for a host, in their order; none if there is no code
// for GPUs in it. Views into `object`, which is refused if it is cut off or a GPU's.
Result<std::vector<Fatbin>> fatbins_of_object(Bytes object);

// The files in an archive, in their order, without its tables. Views into `archive`.
Result<std::vector<Bytes>> members_of_archive(Bytes archive);

}  // namespace flyt::cuda
