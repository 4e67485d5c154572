#include "server/code_taking.h"

#include "cuda/code_packing.h"
#include "server/code_store.h"
#include "server/code_subjects.h"
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

}  // namespace flyt::server
