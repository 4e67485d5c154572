// LaunchAttributes: a client's launch attributes as the array that the driver takes.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "cuda/types.h"
#include "server/request.h"

namespace flyt::server {

// A value type for one launch.
class LaunchAttributes {
 public:
  static constexpr std::size_t kCountMax = 64;

  // A window of the cache over memory that is not the client's is CUDA_ERROR_INVALID_VALUE.
  static CUresult admit_window(const Request& request, const CUaccessPolicyWindow& window);

  // CUDA_ERROR_INVALID_VALUE for attributes that nobody knows, CUDA_ERROR_NOT_SUPPORTED for those
  // that hand out pointers, CUDA_ERROR_INVALID_HANDLE for a bad event in one.
  CUresult take(const Request& request, Bytes attributes);

  // Checks one, and puts the driver's handles in place of the client's; errors as of take().
  static CUresult admit(const Request& request, CUlaunchAttribute& attribute);

  bool empty() const { return count_ == 0; }
  // A configuration with these attributes, valid as long as this.
  template <class Command>
  CUlaunchConfig config(const Command& command, CUstream stream) {
    return CUlaunchConfig{.gridDimX = command.grid_x,
                          .gridDimY = command.grid_y,
                          .gridDimZ = command.grid_z,
                          .blockDimX = command.block_x,
                          .blockDimY = command.block_y,
                          .blockDimZ = command.block_z,
                          .sharedMemBytes = command.shared_bytes,
                          .hStream = stream,
                          .attrs = attributes_.data(),
                          .numAttrs = count_};
  }

 private:
  unsigned int count_ = 0;
  std::array<CUlaunchAttribute, kCountMax> attributes_;
};

}  // namespace flyt::server
