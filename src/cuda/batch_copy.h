// One copy of a 3D batch, as the other 3D copies are described.
#pragma once

#include <cstddef>

#include "cuda/types.h"

namespace flyt::cuda {

// Null: the operand is memory.
CUarray array_of(const CUmemcpy3DOperand& operand);

// Whether an operand is a null pointer: of such a copy the driver does not tell which one it is.
bool names_nothing(const CUDA_MEMCPY3D_BATCH_OP& operation);

// `element_bytes`: of the array among the operands, whose elements widths count then; else 1.
// CUDA_ERROR_INVALID_VALUE for an operand that is neither, a box without extent or that no address
// space holds, layers of fewer rows than are copied, and orders and flags that there are not.
CUresult describe_batch_copy(const CUDA_MEMCPY3D_BATCH_OP& operation, std::size_t element_bytes,
                             CUDA_MEMCPY3D& out);

// Whether there are such an order, such places on `devices` devices, and such flags.
bool good_attributes(const CUmemcpyAttributes& attributes, int devices);

}  // namespace flyt::cuda
