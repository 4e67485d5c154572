// The facts of the CUDA toolkit's headers; the macros ask for all versions of every function.
#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL_ODR
#include <cuda.h>
#include <cudaProfiler.h>

#include "tests/compat/collect_facts.h"

namespace {

const flyt::compat::Fact kFacts[] = {
#include "tests/facts.inc"
};

}  // namespace

namespace flyt::compat {

std::span<const Fact> toolkit_facts() { return kFacts; }

}  // namespace flyt::compat
