// What tests write for the NVML of testing/fake_nvml.cc.
#pragma once

#include <cstdint>

namespace flyt::node {

inline constexpr unsigned kFakeGpus = 3;
// A handle and one more by so much are of the same GPU.
inline constexpr std::uint64_t kFakeOtherHandle = 100;

struct FakeEvent {
  std::uint64_t handle = 0;  // A GPU's index, plus multiples of kFakeOtherHandle.
  std::uint64_t xid = 0;
  std::uint64_t error = 0;  // Other than 0: no event, but this nvmlReturn_t.
};

}  // namespace flyt::node
