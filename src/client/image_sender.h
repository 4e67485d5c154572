// Sends code and other large data to the server, ahead of the command that uses it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cuda/types.h"

namespace flyt::client {

// Data on its way: the command that uses it names `handle`.
struct Upload {
  std::uint64_t handle = 0;
};

// Posts `data` in pieces. CUDA_ERROR_DEVICE_UNAVAILABLE when the server is lost.
CUresult upload(Bytes data, Upload& out);

// Finds out what image a module call points at and sends of it what the device can use.
// CUDA_ERROR_INVALID_IMAGE, or CUDA_ERROR_NO_BINARY_FOR_GPU where a fat binary has nothing for it.
CUresult upload_image(const void* image, CUdevice device, Upload& out);

// The device whose code is wanted: the current context's, or the first where there is none.
CUdevice code_device();

// A whole file, with a zero byte behind it, as PTX needs. CUDA_ERROR_FILE_NOT_FOUND.
CUresult read_code_file(const char* path, std::vector<std::byte>& out);

}  // namespace flyt::client
