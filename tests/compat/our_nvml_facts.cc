// The facts of our own description of NVML.
#include "nvml/functions.h"
#include "tests/compat/collect_facts.h"

namespace {

const flyt::compat::Fact kFacts[] = {
#include "tests/nvml_facts.inc"
};

}  // namespace

namespace flyt::compat {

std::span<const Fact> our_facts() { return kFacts; }

}  // namespace flyt::compat
