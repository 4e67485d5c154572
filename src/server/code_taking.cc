#include "server/code_taking.h"

#include "cuda/code_packing.h"
#include "cuda/code_size.h"
#include "cuda/image.h"
#include "server/code_store.h"
#include "server/code_subjects.h"
#include "server/memory_subjects.h"
#include "server/session.h"
#include "wire/code.h"

namespace flyt::server {

CUresult take_code(Request& request, std::uint64_t upload, std::vector<std::byte>& code) {
  Session& session = request.session();
  Uploads& uploads = session.code().uploads();
  CodeStore* const store = session.code_store();
  if (const auto named = uploads.unsent(upload)) {
    auto stored = store == nullptr ? std::nullopt : store->find(*named->digest, named->total);
    if (!stored) {
      return static_cast<CUresult>(store == nullptr ? wire::kResultNoStore : wire::kResultSendCode);
    }
    uploads.take(upload);
    code = std::move(*stored);
    return CUDA_SUCCESS;
  }
  auto taken = uploads.take(upload);
  if (!taken || !taken->complete) return CUDA_ERROR_INVALID_VALUE;
  code = std::move(taken->bytes);
  if (taken->facts.packed != 0) {
    auto unpacked = cuda::unpack_code(Bytes(code).first(code.size() - 1), taken->facts.total);
    if (!unpacked) return CUDA_ERROR_INVALID_VALUE;
    code = std::move(*unpacked);
  }
  if (!taken->facts.digest) return CUDA_SUCCESS;
  const Bytes bytes = Bytes(code).first(code.size() - 1);
  if (sha256(bytes) != *taken->facts.digest) return CUDA_ERROR_INVALID_VALUE;
  if (store != nullptr) store->keep(*taken->facts.digest, bytes);
  return CUDA_SUCCESS;
}

CUresult take_image(Request& request, std::uint64_t upload, const wire::List<std::int32_t>& options,
                    const wire::List<std::uint64_t>& values, std::vector<std::byte>& image,
                    JitArguments& jit) {
  const CUresult none = take_code(request, upload, image);
  if (none != CUDA_SUCCESS) return none;
  if (!jit.take(options, values)) return CUDA_ERROR_INVALID_VALUE;
  const Bytes bytes = Bytes(image).first(image.size() - 1);
  if (!cuda::image_of(bytes)) return CUDA_ERROR_INVALID_IMAGE;
  request.session().code().note_code(bytes);
  return CUDA_SUCCESS;
}

CUresult charge_code(const Request& request, Bytes image, UsedMemory& charge) {
  CUdevice device = 0;
  if (request.context() != 0) static_cast<void>(request.driver().cuCtxGetDevice(&device));
  std::uint64_t bytes = cuda::code_bytes(image);
  if (own_usage().quota().limit == 0) {
    bytes = bytes == cuda::kCodeBytesUnknown ? image.size() : bytes;
  } else if (bytes > own_usage().quota().left()) {
    request.session().memory().make_room(device);
  }
  return charge.reserve(device, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace flyt::server
