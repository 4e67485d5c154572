// The facts of the toolkit's nvml.h, whose macros would give old names new meanings.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include "tests/compat/collect_facts.h"

namespace {

const flyt::compat::Fact kFacts[] = {
#include "tests/nvml_facts.inc"
};

}  // namespace

namespace flyt::compat {

std::span<const Fact> toolkit_facts() { return kFacts; }

}  // namespace flyt::compat
