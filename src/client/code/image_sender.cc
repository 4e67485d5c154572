#include "client/code/image_sender.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/fd.h"
#include "base/sha256.h"
#include "client/call.h"
#include "client/code/code_state.h"
#include "client/hooks_context.h"
#include "client/hooks_link.h"
#include "client/recovery/recovery.h"
#include "commands/module.h"
#include "cuda/code_packing.h"
#include "cuda/fatbin.h"
#include "cuda/image.h"
#include "wire/hello.h"

namespace flyt::client {
namespace {

constexpr std::size_t kPieceBytes = 128 * kKiB;
// Less than this costs as little to send as to name.
constexpr std::size_t kNamedBytesMin = 512;
constexpr std::size_t kPackedBytesMin = 16 * kKiB;
// A link is slow if the server's "I have not got it" takes this long.
constexpr Duration kSlowLink = std::chrono::milliseconds(2);

cuda::ComputeCapability capability_of(CUdevice device) {
  const std::uint32_t number = session().devices().find(device)->capability();
  return {.major = number / 10, .minor = number % 10};
}

// A context to link in: the thread's own, or the device's primary one, for libraries are loaded
// without any, too.
class LinkContext {
 public:
  explicit LinkContext(CUdevice device) : device_(device) {
    if (thread_state().current_state != nullptr) return;
    result_ = hooks::cuDevicePrimaryCtxRetain(&primary_, device_);
    if (result_ == CUDA_SUCCESS) result_ = hooks::cuCtxPushCurrent_v2(primary_);
  }
  ~LinkContext() {
    if (primary_ == nullptr) return;
    CUcontext popped = nullptr;
    if (result_ == CUDA_SUCCESS) static_cast<void>(hooks::cuCtxPopCurrent_v2(&popped));
    static_cast<void>(hooks::cuDevicePrimaryCtxRelease_v2(device_));
  }
  LinkContext(const LinkContext&) = delete;
  LinkContext& operator=(const LinkContext&) = delete;
  CUresult result() const { return result_; }

 private:
  const CUdevice device_;
  CUcontext primary_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
};

// Ends a link whatever becomes of it.
class LinkScope {
 public:
  LinkScope()
      : result_(hooks::cuLinkCreate_v2(static_cast<unsigned>(options_.size()), options_.data(),
                                       values_.data(), &link_)) {}
  ~LinkScope() {
    if (result_ == CUDA_SUCCESS) static_cast<void>(hooks::cuLinkDestroy(link_));
  }
  LinkScope(const LinkScope&) = delete;
  LinkScope& operator=(const LinkScope&) = delete;
  CUresult result() const { return result_; }
  CUlinkState link() const { return link_; }
  // Tells why it failed.
  CUresult failed(CUresult why) const {
    if (errors_[0] != '\0') tell_refused_code(errors_.data());
    return why;
  }

 private:
  std::array<char, 1 * kKiB> errors_{};
  std::array<CUjit_option, 2> options_ = {CU_JIT_ERROR_LOG_BUFFER,
                                          CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values_ = {errors_.data(), pointer_at(errors_.size())};
  CUlinkState link_ = nullptr;
  const CUresult result_;
};

// Relocatable device code that was not linked for this driver: links the parts that it consists
// of. One without anything for the device is missed only if its symbols are; if all are without it
// is CUDA_ERROR_NO_BINARY_FOR_GPU.
CUresult upload_linked(const std::vector<Bytes>& parts, CUdevice device, Upload& out) {
  const LinkContext context(device);
  if (context.result() != CUDA_SUCCESS) return context.result();
  const LinkScope scope;
  if (scope.result() != CUDA_SUCCESS) return scope.result();
  bool any = false;
  for (const Bytes& part : parts) {
    const auto fatbin = cuda::Fatbin::parse(part);
    if (!fatbin) return CUDA_ERROR_INVALID_IMAGE;
    std::vector<std::byte> reduced = cuda::reduced_fatbin(*fatbin, capability_of(device));
    if (reduced.empty()) continue;
    const CUresult added =
        hooks::cuLinkAddData_v2(scope.link(), CU_JIT_INPUT_FATBINARY, reduced.data(),
                                reduced.size(), "part", 0, nullptr, nullptr);
    // The driver has the last word about what fits: machine code alone does not everywhere.
    if (added == CUDA_ERROR_NO_BINARY_FOR_GPU) continue;
    if (added != CUDA_SUCCESS) return scope.failed(added);
    any = true;
  }
  if (!any) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  void* cubin = nullptr;
  std::size_t size = 0;
  const CUresult linked = hooks::cuLinkComplete(scope.link(), &cubin, &size);
  if (linked != CUDA_SUCCESS) return scope.failed(linked);
  const Bytes made = bytes_at(cubin, size);
  out.kept.assign(made.begin(), made.end());
  return upload(out.kept, out);
}

// A part of an upload is of one connection: when the session has gone on over another one it is
// not sent, and send_again() begins anew.
template <class Command>
CUresult post_part(const Upload& upload, const Command& command) {
  {
    const auto steady = session().steady();
    if (sent_elsewhere(upload) || session().post_once(command)) return CUDA_SUCCESS;
  }
  return session().after_loss();
}

// In pieces, each of which waits for credits only.
CUresult send_pieces(const Upload& upload, Bytes data) {
  std::size_t offset = 0;
  do {
    const Bytes piece = data.subspan(offset, std::min(kPieceBytes, data.size() - offset));
    const commands::Upload command{
        .upload = upload.handle, .total = data.size(), .offset = offset, .data = piece};
    if (const CUresult lost = post_part(upload, command); lost != CUDA_SUCCESS) return lost;
    offset += piece.size();
  } while (offset < data.size());
  return CUDA_SUCCESS;
}

// The bytes, packed if that is wished and makes them smaller.
CUresult send_code(const Upload& upload, bool packed_wished) {
  if (!packed_wished || upload.data.size() < kPackedBytesMin) {
    return send_pieces(upload, upload.data);
  }
  const std::vector<std::byte> packed = cuda::pack_code(upload.data);
  if (packed.empty()) return send_pieces(upload, upload.data);
  Digest digest;
  if (upload.named) digest = sha256(upload.data);
  const commands::DescribeUpload described{.upload = upload.handle,
                                           .total = upload.data.size(),
                                           .packed = packed.size(),
                                           .digest = upload.named ? Bytes(digest) : Bytes()};
  if (const CUresult lost = post_part(upload, described); lost != CUDA_SUCCESS) return lost;
  return send_pieces(upload, packed);
}

// A fat binary of it alone, or of nothing.
std::vector<std::byte> smallest_file(const cuda::Fatbin& fatbin) {
  const auto& files = fatbin.files();
  const auto smallest = std::min_element(
      files.begin(), files.end(), [](auto& a, auto& b) { return a.whole.size() < b.whole.size(); });
  cuda::FatbinWriter writer;
  if (smallest != files.end()) writer.add(*smallest);
  return std::move(writer).finish();
}

}  // namespace

bool interprets_code() { return session().channel().welcome().driver == wire::kSoftDriver; }

bool sent_elsewhere(const Upload& upload) { return upload.times != session().times_recovered(); }

CUresult send_again(Upload& upload) {
  upload.times = session().times_recovered();
  upload.named = false;
  return send_code(upload, session().code().sending.packed);
}

CUresult upload(Bytes data, Upload& out) {
  CodeState& code = session().code();
  out.times = session().times_recovered();
  out.handle = code.next_upload();
  out.data = data;
  out.named = code.names_code.load(std::memory_order_relaxed) && data.size() >= kNamedBytesMin;
  if (!out.named) return send_code(out, code.sending.packed);
  const Digest digest = sha256(data);
  return post_part(out,
                   commands::DescribeUpload{
                       .upload = out.handle, .total = data.size(), .packed = 0, .digest = digest});
}

CUresult send_named(Upload& upload, CUresult answer, Duration waited) {
  // A server that asks for what it was sent is beyond help.
  if (!upload.named) return CUDA_ERROR_UNKNOWN;
  CodeState& code = session().code();
  if (static_cast<std::uint32_t>(answer) == wire::kResultNoStore) code.names_code.store(false);
  const CUresult sent = send_code(upload, code.sending.packed || waited >= kSlowLink);
  upload.named = false;
  return sent;
}

CUresult upload_image(const void* image, CUdevice device, Upload& out) {
  const auto found = cuda::image_at(image);
  if (!found) {
    session().log().info("image not understood", {{"why", found.error().message}});
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (found->kind != cuda::ImageKind::kFatbin) return upload(found->bytes, out);
  const auto fatbin = cuda::Fatbin::parse(found->bytes);
  if (!fatbin) {
    session().log().info("fat binary not understood", {{"why", fatbin.error().message}});
    return CUDA_ERROR_INVALID_IMAGE;
  }
  const cuda::ComputeCapability capability = capability_of(device);
  // What nvcc linked is machine code, and fits a GPU of just this kind.
  const bool machine_code_only = cuda::candidates(*fatbin, capability).ptx.empty();
  if (!found->linked.empty() && machine_code_only && interprets_code()) {
    const CUresult linked = upload_linked(found->linked, device, out);
    if (linked != CUDA_ERROR_NO_BINARY_FOR_GPU) return linked;
  }
  if (cuda::all_fits(*fatbin, capability)) return upload(found->bytes, out);
  out.kept = cuda::reduced_fatbin(*fatbin, capability);
  if (!out.kept.empty()) return upload(out.kept, out);
  if (!found->linked.empty() && !interprets_code()) {
    const CUresult linked = upload_linked(found->linked, device, out);
    if (linked != CUDA_ERROR_NO_BINARY_FOR_GPU) return linked;
  }
  // When to say that there is nothing is the driver's: of a library it may be at its first use.
  if (!interprets_code()) tell_refused_code("the fat binary has nothing for this device");
  out.kept = smallest_file(*fatbin);
  return upload(out.kept, out);
}

void keep_code(std::uint64_t handle, const Upload& upload, const JitOptions& jit) {
  Recovery* const recovery = session().recovery();
  if (recovery != nullptr) recovery->keep_code(handle, upload.data, jit.options(), jit.values());
}

CUdevice code_device() {
  const ContextState* context = thread_state().current_state;
  return context == nullptr ? 0 : context->device;
}

CUresult read_code_file(const char* path, std::vector<std::byte>& out) {
  if (*path == '\0') return CUDA_ERROR_INVALID_VALUE;
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
