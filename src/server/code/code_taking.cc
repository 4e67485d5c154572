#include "server/code/code_taking.h"

#include "cuda/code_packing.h"
#include "cuda/image.h"
#include "server/code/code_store.h"
#include "server/code/code_subjects.h"
#include "server/memory_subjects.h"
#include "server/recovery/recovery.h"
#include "server/session.h"
#include "wire/code.h"

namespace flyt::server {

namespace {

// Most kernels of PyTorch's libraries come packed, in 30 to 600 KiB; less than this is soon
// unpacked.
constexpr std::size_t kFactsKeptBytesMin = 16 * kKiB;

Bytes without_zero(const std::vector<std::byte>& code) {
  return Bytes(code).first(code.size() - 1);
}

// What a session must know of code that it loads.
void note_image(Request& request, const Image& image) {
  request.session().code().note_code(image.facts);
  Recovery* const recovery = request.session().recovery();
  if (recovery != nullptr && image.facts.may_remember) recovery->marks().spoil(request.op());
}

}  // namespace

cuda::CodeFacts facts_of(CodeStore* store, Bytes code, const std::optional<Digest>& named) {
  if (store == nullptr || code.size() < kFactsKeptBytesMin || !cuda::has_packed_code(code)) {
    return cuda::code_facts(code);
  }
  const Digest digest = named ? *named : sha256(code);
  if (const auto kept = store->find_facts(digest)) return *kept;
  const cuda::CodeFacts facts = cuda::code_facts(code);
  store->keep_facts(digest, facts);
  return facts;
}

TakenCode take_code(Request& request, std::uint64_t upload, std::vector<std::byte>& code) {
  constexpr TakenCode kInvalid{.result = CUDA_ERROR_INVALID_VALUE, .digest = {}};
  Session& session = request.session();
  Uploads& uploads = session.code().uploads();
  CodeStore* const store = session.code_store();
  if (const auto named = uploads.unsent(upload)) {
    auto stored = store == nullptr ? std::nullopt : store->find(*named->digest, named->total);
    if (!stored) {
      return {
          static_cast<CUresult>(store == nullptr ? wire::kResultNoStore : wire::kResultSendCode),
          {}};
    }
    uploads.take(upload);
    code = std::move(*stored);
    return {CUDA_SUCCESS, named->digest};
  }
  auto taken = uploads.take(upload);
  if (!taken || !taken->complete) return kInvalid;
  code = std::move(taken->bytes);
  if (taken->facts.packed != 0) {
    auto unpacked = cuda::unpack_code(without_zero(code), taken->facts.total);
    if (!unpacked) return kInvalid;
    code = std::move(*unpacked);
  }
  if (!taken->facts.digest) return {};
  if (sha256(without_zero(code)) != *taken->facts.digest) return kInvalid;
  if (store != nullptr) store->keep(*taken->facts.digest, without_zero(code));
  return {CUDA_SUCCESS, taken->facts.digest};
}

CUresult take_image(Request& request, std::uint64_t upload, const wire::List<std::int32_t>& options,
                    const wire::List<std::uint64_t>& values, Image& image, JitArguments& jit) {
  const TakenCode taken = take_code(request, upload, image.bytes);
  if (taken.result != CUDA_SUCCESS) return taken.result;
  if (!jit.take(options, values)) return CUDA_ERROR_INVALID_VALUE;
  const Bytes bytes = without_zero(image.bytes);
  if (!cuda::image_of(bytes)) return CUDA_ERROR_INVALID_IMAGE;
  image.facts = facts_of(request.session().code_store(), bytes, taken.digest);
  image.named = taken.digest;
  note_image(request, image);
  return CUDA_SUCCESS;
}

bool may_be_foreseen(const wire::List<std::int32_t>& options) {
  return options.empty() ||
         (options.size() == 1 && options[0] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
}

CUresult take_library(Request& request, const commands::LoadLibrary& command, Image& image,
                      JitArguments& jit, CUlibrary& native) {
  CodeSubjects& subjects = request.session().code();
  const auto named = subjects.uploads().unsent(command.upload);
  const bool plain =
      may_be_foreseen(command.options) && command.values.size() == command.options.size();
  auto ahead = named && named->digest && plain
                   ? subjects.foresight().take({*named->digest, named->total})
                   : std::nullopt;
  if (!ahead) return take_image(request, command, image, jit);
  subjects.uploads().take(command.upload);
  static_cast<void>(jit.take(command.options, command.values));
  native = ahead->native;
  image = {std::move(ahead->code), ahead->facts, named->digest};
  note_image(request, image);
  return CUDA_SUCCESS;
}

CUresult load_preserved(const driver::Table& driver, const std::vector<std::byte>& code,
                        JitArguments& jit, CUlibrary& native) {
  CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
  void* yes = pointer_at(1);
  return driver.cuLibraryLoadData(&native, code.data(), jit.options(), jit.values(), jit.count(),
                                  &option, &yes, 1);
}

CUresult charge_code(const Request& request, const Image& image, CodeOrigin& origin) {
  const bool room = origin.loaded.take(request.session().code().loaded_bytes(), image.bytes.size(),
                                       CodeSubjects::kLoadedBytesMax);
  if (!room) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdevice device = 0;
  if (request.context() != 0) static_cast<void>(request.driver().cuCtxGetDevice(&device));
  std::uint64_t bytes = image.facts.loaded_bytes;
  if (own_usage().quota().limit == 0) {
    bytes = bytes == cuda::kCodeBytesUnknown ? image.bytes.size() : bytes;
  } else if (bytes > own_usage().quota().left()) {
    request.session().memory().make_room(device);
  }
  return origin.charge.reserve(device, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace flyt::server
