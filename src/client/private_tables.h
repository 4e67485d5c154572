// Private tables: what CUDA's own libraries get from this library beyond its exports.
#pragma once

#include "cuda/types.h"

namespace flyt::client {

// The table for cuGetExportTable; null for one that we do not serve.
const void* find_private_table(const CUuuid& id);

}  // namespace flyt::client
