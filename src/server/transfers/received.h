// Received bytes on their way to the device, straight from the chunk that they came in.
#pragma once

#include <array>
#include <cstring>
#include <utility>

#include "server/graphs/graphs.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server {

// The driver copies host memory that it does not know as pinned before its call returns, and for
// little data that is cheaper than to keep the chunk: no event is needed.
inline constexpr std::size_t kCopiedBytesMax = 8 * kKiB;

// Issues `copy(source)` for received bytes, which lie in `chunk`, and keeps them as long as the GPU
// reads them.
template <class Copy>
CUresult from_received(Request& request, CUstream stream, Bytes data, const rpc::ChunkRef& chunk,
                       Copy&& copy) {
  // A graph would read them when it is launched, long after they are gone.
  if (request.session().graphs().capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  request.session().memory().depths.count(request.context(), stream);
  if (data.size() <= kCopiedBytesMax) {
    std::array<std::byte, kCopiedBytesMax> unpinned;
    std::memcpy(unpinned.data(), data.data(), data.size());
    return copy(unpinned.data());
  }
  const CUresult result = copy(data.data());
  if (result == CUDA_SUCCESS) {
    request.session().memory().holds.hold(request.context(), stream, chunk, data.size());
  }
  return result;
}

// The same for bytes that came with the command.
template <class Copy>
CUresult from_received(Request& request, CUstream stream, Bytes data, Copy&& copy) {
  return from_received(request, stream, data, request.chunk(), std::forward<Copy>(copy));
}

}  // namespace flyt::server
