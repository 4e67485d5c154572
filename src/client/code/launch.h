// Launches: one path for all the calls that start a kernel.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "client/code/function_facts.h"
#include "cuda/types.h"

namespace flyt::client {

struct LaunchShape {
  std::array<std::uint32_t, 3> grid{};
  std::array<std::uint32_t, 3> block{};
  std::uint32_t shared_bytes = 0;
  CUstream stream = nullptr;
};

// Parameters of one launch, packed as the kernel lays them out. Lives on the stack: no allocation
// for all but the rare kernels that take more than kInlineBytes.
class PackedParameters {
 public:
  static constexpr std::size_t kInlineBytes = 4096;
  static constexpr std::size_t kBytesMax = KernelCode::kParameterBytesMax;

  // From what cuLaunchKernel was given. CUDA_ERROR_INVALID_VALUE where native says so.
  CUresult pack(const KernelCode& code, void** parameters, void** extra);
  Bytes bytes() const { return bytes_; }
  // Whether they came as a buffer, whose size only the driver can judge.
  bool from_buffer() const { return from_buffer_; }

 private:
  CUresult take_extra(void** extra);

  Bytes bytes_;
  bool from_buffer_ = false;
  std::array<std::byte, kInlineBytes> inline_;
  std::vector<std::byte> large_;
};

// Launches `function` (a kernel's handle will do) in the current context. A function's first
// launch, and the first in a configuration that its known limits do not settle, waits for the
// driver's verdict, so that every immediate error is told at once; every other is one posted
// command: <= 300 ns, no allocation, no system call while the server keeps up. `attributes`:
// CUlaunchAttribute after one another.
CUresult launch(CUfunction function, const LaunchShape& shape, void** parameters, void** extra,
                Bytes attributes);

// The attributes of a launch configuration as they travel: CUDA_ERROR_INVALID_VALUE for a missing
// array, CUDA_ERROR_INVALID_HANDLE for a bad handle in one.
class PackedAttributes {
 public:
  static constexpr std::size_t kCountMax = 64;
  CUresult pack(const CUlaunchConfig& config);
  Bytes bytes() const { return bytes_at(attributes_.data(), count_ * sizeof(CUlaunchAttribute)); }

 private:
  std::size_t count_ = 0;
  std::array<CUlaunchAttribute, kCountMax> attributes_;
};

}  // namespace flyt::client
