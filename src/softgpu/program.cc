#include "softgpu/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/fd.h"
#include "softgpu/link_texts.h"

namespace flyt::softgpu {
namespace {

constexpr std::size_t kFileBytesMax = 1 * kGiB;

// PTX that is none at all is CUDA_ERROR_INVALID_IMAGE; other faults of it CUDA_ERROR_INVALID_PTX.
bool looks_like_ptx(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return false;
  return text[start] == '.' || text[start] == '/';
}

CUresult parse_text(std::string_view text, cuda::ComputeCapability capability, ptx::JitLog& log,
                    std::vector<std::shared_ptr<const ptx::Module>>& out) {
  text = text.substr(0, text.find('\0'));
  if (!looks_like_ptx(text)) return CUDA_ERROR_INVALID_IMAGE;
  auto module = ptx::parse(text, &log);
  if (!module) return CUDA_ERROR_INVALID_PTX;
  if ((*module)->target() > capability.number()) {
    log.error(1, "the target of the PTX is newer than the device");
    return CUDA_ERROR_INVALID_PTX;
  }
  out.push_back(std::move(module).value());
  return CUDA_SUCCESS;
}

// The texts of a linked_image(), in place of machine code.
constexpr std::string_view kLinkedMagic = "FLYTPTX1";

CUresult parse_linked(Bytes bytes, cuda::ComputeCapability capability, ptx::JitLog& log,
                      std::vector<std::shared_ptr<const ptx::Module>>& out) {
  Reader reader(bytes.subspan(kLinkedMagic.size()));
  const auto count = reader.take<std::uint32_t>();
  std::uint64_t room = kLinkTextBytesMax;
  if (count > kLinkTextsMax) return CUDA_ERROR_INVALID_IMAGE;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    const auto size = reader.take<std::uint64_t>();
    if (size > room) return CUDA_ERROR_INVALID_IMAGE;
    room -= size;
    const Bytes text = reader.take_bytes(static_cast<std::size_t>(size));
    if (!reader.ok()) return CUDA_ERROR_INVALID_IMAGE;
    if (const CUresult bad = parse_text(text_of(text), capability, log, out); bad != CUDA_SUCCESS) {
      return bad;
    }
  }
  return reader.ok() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

CUresult parse_fatbin(Bytes bytes, cuda::ComputeCapability capability, ptx::JitLog& log,
                      std::vector<std::shared_ptr<const ptx::Module>>& out) {
  const auto fatbin = cuda::Fatbin::parse(bytes);
  if (!fatbin) return CUDA_ERROR_INVALID_IMAGE;
  const cuda::Candidates fitting = cuda::candidates(*fatbin, capability);
  for (const std::size_t index : fitting.cubins) {
    const cuda::FatbinFile& file = fatbin->files()[index];
    if (file.packing == cuda::Packing::kNone && text_of(file.stored).starts_with(kLinkedMagic)) {
      return parse_linked(file.stored, capability, log, out);
    }
  }
  if (fitting.ptx.empty()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  const auto text = cuda::unpack(fatbin->files()[fitting.ptx.front()]);
  if (!text) return CUDA_ERROR_INVALID_IMAGE;
  return parse_text(text_of(*text), capability, log, out);
}

}  // namespace

std::optional<std::uint32_t> Program::kernel(std::string_view name) const {
  const auto index = module().find_function(name);
  if (!index) return std::nullopt;
  const auto& kernels = module().kernels();
  const auto found = std::find(kernels.begin(), kernels.end(), *index);
  if (found == kernels.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - kernels.begin());
}

CUresult JitOptions::read(unsigned count, const CUjit_option* options, void** values,
                          JitOptions& out) {
  if (count == 0) return CUDA_SUCCESS;
  if (options == nullptr || values == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const CUjit_option option = options[i];
    if (option >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
    // Other options steer a compiler that there is not.
    if (option == CU_JIT_INFO_LOG_BUFFER) out.info_.at = static_cast<char*>(values[i]);
    if (option == CU_JIT_ERROR_LOG_BUFFER) out.error_.at = static_cast<char*>(values[i]);
    if (option == CU_JIT_WALL_TIME) out.wall_time_ = &values[i];
    if (option == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) {
      out.info_.size = static_cast<std::uint32_t>(address_of(values[i]));
      out.info_.used = &values[i];
    }
    if (option == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
      out.error_.size = static_cast<std::uint32_t>(address_of(values[i]));
      out.error_.used = &values[i];
    }
  }
  return CUDA_SUCCESS;
}

void JitOptions::Buffer::fill(const std::string& text) const {
  std::size_t length = 0;
  if (at != nullptr && size != 0) {
    length = std::min(text.size(), size - 1);
    std::memcpy(at, text.data(), length);
    at[length] = '\0';
  }
  if (used != nullptr) *used = pointer_at(length);
}

void JitOptions::write(const ptx::JitLog& log) const {
  info_.fill(log.infos());
  error_.fill(log.errors());
  if (wall_time_ != nullptr) *wall_time_ = nullptr;
}

CUresult parse_image(const cuda::Image& image, cuda::ComputeCapability capability, ptx::JitLog& log,
                     std::vector<std::shared_ptr<const ptx::Module>>& out) {
  switch (image.kind) {
    case cuda::ImageKind::kCubin:
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case cuda::ImageKind::kPtx:
      return parse_text(text_of(image.bytes), capability, log, out);
    case cuda::ImageKind::kFatbin:
      break;
  }
  const CUresult result = parse_fatbin(image.bytes, capability, log, out);
  if (result != CUDA_ERROR_NO_BINARY_FOR_GPU || image.linked.empty()) return result;
  // Relocatable device code: the parts hold the PTX that the whole was linked from.
  // One without any, such as the device runtime's, is missed only if its symbols are.
  for (const Bytes& part : image.linked) {
    const CUresult bad = parse_fatbin(part, capability, log, out);
    if (bad != CUDA_SUCCESS && bad != CUDA_ERROR_NO_BINARY_FOR_GPU) return bad;
  }
  return out.empty() ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
}

CUresult make_program(std::span<const std::shared_ptr<const ptx::Module>> modules, ptx::JitLog& log,
                      Program& out) {
  if (modules.empty()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  std::shared_ptr<const ptx::Module> whole = modules.front();
  if (modules.size() > 1) {
    auto linked = ptx::link(modules, &log);
    if (!linked) return CUDA_ERROR_INVALID_PTX;
    whole = std::move(linked).value();
  }
  auto code = ptx::translate(std::move(whole), &log);
  if (!code) {
    return code.error().code == ErrorCode::kNotFound ? CUDA_ERROR_CDP_NOT_SUPPORTED
                                                     : CUDA_ERROR_INVALID_PTX;
  }
  out.code = std::move(code).value();
  return CUDA_SUCCESS;
}

CUresult load_program(const void* image, cuda::ComputeCapability capability, ptx::JitLog& log,
                      Program& out) {
  const auto found = cuda::image_at(image);
  if (!found) return CUDA_ERROR_INVALID_IMAGE;
  std::vector<std::shared_ptr<const ptx::Module>> modules;
  if (const CUresult bad = parse_image(*found, capability, log, modules); bad != CUDA_SUCCESS) {
    if (bad == CUDA_ERROR_NO_BINARY_FOR_GPU) {
      log.error(0,
                "no PTX for this GPU or an older one, and machine code does not run on the "
                "software GPU");
    }
    return bad;
  }
  return make_program(modules, log, out);
}

std::vector<std::byte> linked_image(std::span<const std::string_view> texts,
                                    cuda::ComputeCapability capability) {
  std::size_t size = kLinkedMagic.size() + sizeof(std::uint32_t);
  for (const std::string_view text : texts) size += sizeof(std::uint64_t) + text.size();
  std::vector<std::byte> payload(size);
  Writer writer(payload);
  writer.write_bytes(bytes_of(kLinkedMagic));
  writer.write(static_cast<std::uint32_t>(texts.size()));
  for (const std::string_view text : texts) {
    writer.write(static_cast<std::uint64_t>(text.size()));
    writer.write_bytes(bytes_of(text));
  }
  cuda::FatbinWriter fatbin;
  fatbin.add(cuda::FatbinFileKind::kElf, capability.number(), 0, payload);
  return fatbin.finish();
}

CUresult read_file(const char* path, std::vector<std::byte>& out) {
  if (*path == '\0') return CUDA_ERROR_INVALID_VALUE;
  const Fd file(::open(path, O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return CUDA_ERROR_FILE_NOT_FOUND;
  if (status.st_size < 0 || static_cast<std::size_t>(status.st_size) > kFileBytesMax) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  out.assign(size + 1, std::byte{0});
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = ::read(file.get(), out.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return CUDA_ERROR_FILE_NOT_FOUND;
    done += static_cast<std::size_t>(got);
  }
  return CUDA_SUCCESS;
}

}  // namespace flyt::softgpu
