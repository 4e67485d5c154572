#include "client/image_sender.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "client/call.h"
#include "client/code_state.h"
#include "commands/module.h"
#include "cuda/fatbin.h"
#include "cuda/image.h"

namespace flyt::client {
namespace {

constexpr std::size_t kPieceBytes = 128 * kKiB;

cuda::ComputeCapability capability_of(CUdevice device) {
  const std::uint32_t number = session().devices().find(device)->capability();
  return {.major = number / 10, .minor = number % 10};
}

}  // namespace

CUresult upload(Bytes data, Upload& out) {
  out.handle = session().code().next_upload();
  std::size_t offset = 0;
  do {
    const Bytes piece = data.subspan(offset, std::min(kPieceBytes, data.size() - offset));
    const commands::Upload command{
        .upload = out.handle, .total = data.size(), .offset = offset, .data = piece};
    if (const CUresult lost = post(command); lost != CUDA_SUCCESS) return lost;
    offset += piece.size();
  } while (offset < data.size());
  return CUDA_SUCCESS;
}

CUresult upload_image(const void* image, CUdevice device, Upload& out) {
  const auto found = cuda::image_at(image);
  if (!found) {
    session().log().info("image not understood", {{"why", found.error().message}});
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (!found->linked.empty()) {
    return refused("fat binary wrapper version 2", "linking at load time is not remoted");
  }
  if (found->kind != cuda::ImageKind::kFatbin) return upload(found->bytes, out);
  const auto fatbin = cuda::Fatbin::parse(found->bytes);
  if (!fatbin) {
    session().log().info("fat binary not understood", {{"why", fatbin.error().message}});
    return CUDA_ERROR_INVALID_IMAGE;
  }
  const std::vector<std::byte> reduced = cuda::reduced_fatbin(*fatbin, capability_of(device));
  if (reduced.empty()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  return upload(reduced, out);
}

CUdevice code_device() {
  const ContextState* context = thread_state().current_state;
  return context == nullptr ? 0 : context->device;
}

CUresult read_code_file(const char* path, std::vector<std::byte>& out) {
  const Fd file(::open(path, O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return CUDA_ERROR_FILE_NOT_FOUND;
  }
  out.resize(static_cast<std::size_t>(status.st_size) + 1);
  std::size_t filled = 0;
  while (filled + 1 < out.size()) {
    const ssize_t got = ::read(file.get(), out.data() + filled, out.size() - 1 - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return CUDA_ERROR_FILE_NOT_FOUND;
    filled += static_cast<std::size_t>(got);
  }
  out.back() = std::byte{0};
  return CUDA_SUCCESS;
}

}  // namespace flyt::client
