// One copy of a 3D batch, as the other 3D copies are described.
#pragma once

#include <cstddef>

#include "cuda/types.h"

namespace flyt::cuda {

// Null: the operand is memory.
CUarray array_of(const CUmemcpy3DOperand& operand);

// `element_bytes`: of the array among the operands, whose elements widths count then; else 1.
// CUDA_ERROR_INVALID_VALUE for an operand that is neither, or a box that no address space holds.
CUresult describe_batch_copy(const CUDA_MEMCPY3D_BATCH_OP& operation, std::size_t element_bytes,
                             CUDA_MEMCPY3D& out);

}  // namespace flyt::cuda
