// A CUDA program beside the one that asks NVML: this program again, as --client JOB NUMBER.
#pragma once

#include <cstdint>
#include <string>

namespace flyt::tests {

// "allocate": takes NUMBER MiB of GPU 1, says "ready", and keeps them until its input ends.
// "array": the same as two arrays, of which it has destroyed one. "graph": as a graph that has run
// allocates it; "trimmed": and after it was freed and given back.
// "describe": prints what CUDA says of each GPU, a line each, and ends.
// "monitor": asks NVML alone, says "ready", and waits likewise.
// "fork": asks NVML, then in a child, in a child's child and again itself; 0 if all were answered.
int run_client(const std::string& job, std::uint64_t number);

// One line of "describe".
std::string describe_line(const std::string& name, const std::string& uuid, const std::string& pci,
                          std::uint64_t bytes, int major, int minor);

}  // namespace flyt::tests
