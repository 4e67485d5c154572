#include "softgpu/link_texts.h"

#include <utility>

#include "cuda/host_object.h"
#include "cuda/image.h"

namespace flyt::softgpu {
namespace {

class Gathering {
 public:
  Gathering(cuda::ComputeCapability capability, LinkRoom room, ptx::JitLog& log,
            std::vector<LinkText>& texts)
      : capability_(capability), room_(std::move(room)), log_(log), texts_(texts) {}

  CUresult add(CUjitInputType type, Bytes bytes) {
    switch (type) {
      case CU_JIT_INPUT_PTX:
        return add_ptx(bytes);
      case CU_JIT_INPUT_FATBINARY:
        return add_fatbin(bytes);
      case CU_JIT_INPUT_OBJECT:
        return add_object(bytes);
      case CU_JIT_INPUT_LIBRARY:
        return add_library(bytes);
      case CU_JIT_INPUT_CUBIN:
      case CU_JIT_INPUT_NVVM:
        return refuse(CUDA_ERROR_NO_BINARY_FOR_GPU,
                      "the software GPU links PTX, and what PTX is in: fat binaries, objects and "
                      "libraries");
      case CU_JIT_NUM_INPUT_TYPES:
        break;
    }
    return CUDA_ERROR_INVALID_VALUE;
  }

 private:
  CUresult refuse(CUresult result, std::string_view why) {
    log_.error(0, why);
    return result;
  }

  CUresult refuse_file(const Error& error) {
    const bool limit = error.code == ErrorCode::kLimit;
    return refuse(limit ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE, error.message);
  }

  CUresult refuse_machine_code() {
    return refuse(CUDA_ERROR_NO_BINARY_FOR_GPU,
                  "no PTX for this GPU or an older one, and machine code is not linked on the "
                  "software GPU");
  }

  // Room for one more text, before it is made.
  CUresult make_room(std::uint64_t bytes, LinkText& text) {
    const bool room = room_.texts != 0 && bytes <= room_.bytes &&
                      text.counted.take(room_.all, bytes, kLinksTextBytesMax);
    if (!room) return refuse(CUDA_ERROR_OUT_OF_MEMORY, "too much PTX to link");
    --room_.texts;
    room_.bytes -= bytes;
    return CUDA_SUCCESS;
  }

  CUresult add_ptx(Bytes bytes) {
    const auto image = cuda::image_of(bytes);
    if (!image) return refuse_file(image.error());
    if (image->kind != cuda::ImageKind::kPtx) return refuse(CUDA_ERROR_INVALID_IMAGE, "not PTX");
    LinkText text;
    if (const CUresult bad = make_room(image->bytes.size(), text); bad != CUDA_SUCCESS) return bad;
    text.text = std::string(text_of(image->bytes));
    texts_.push_back(std::move(text));
    return CUDA_SUCCESS;
  }

  CUresult add_fatbin(Bytes bytes) {
    const auto fatbin = cuda::Fatbin::parse(bytes);
    if (!fatbin) return refuse_file(fatbin.error());
    const CUresult result = add_best(*fatbin);
    return result == CUDA_ERROR_NO_BINARY_FOR_GPU ? refuse_machine_code() : result;
  }

  CUresult add_object(Bytes bytes) {
    const auto fatbins = cuda::fatbins_of_object(bytes);
    if (!fatbins) return refuse_file(fatbins.error());
    for (const cuda::Fatbin& fatbin : *fatbins) {
      const CUresult bad = add_best(fatbin);
      if (bad == CUDA_ERROR_NO_BINARY_FOR_GPU) return refuse_machine_code();
      if (bad != CUDA_SUCCESS) return bad;
    }
    return CUDA_SUCCESS;
  }

  // What is missing without the files that are left out is told by name when all is there.
  CUresult add_library(Bytes bytes) {
    const auto members = cuda::members_of_archive(bytes);
    if (!members) return refuse_file(members.error());
    for (const Bytes member : *members) {
      const auto fatbins = cuda::fatbins_of_object(member);
      if (!fatbins && fatbins.error().code == ErrorCode::kUnsupported) continue;
      if (!fatbins) return refuse_file(fatbins.error());
      for (const cuda::Fatbin& fatbin : *fatbins) {
        const CUresult bad = add_best(fatbin);
        if (bad != CUDA_SUCCESS && bad != CUDA_ERROR_NO_BINARY_FOR_GPU) return bad;
      }
    }
    return CUDA_SUCCESS;
  }

  // CUDA_ERROR_NO_BINARY_FOR_GPU, without a word of it, if it has no text for the GPU.
  CUresult add_best(const cuda::Fatbin& fatbin) {
    const cuda::Candidates fitting = cuda::candidates(fatbin, capability_);
    if (fitting.ptx.empty()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    const cuda::FatbinFile& file = fatbin.files()[fitting.ptx.front()];
    LinkText text;
    if (const CUresult bad = make_room(file.unpacked_bytes, text); bad != CUDA_SUCCESS) return bad;
    const auto unpacked = cuda::unpack(file);
    if (!unpacked) return refuse_file(unpacked.error());
    text.text = std::string(text_of(*unpacked));
    texts_.push_back(std::move(text));
    return CUDA_SUCCESS;
  }

  const cuda::ComputeCapability capability_;
  LinkRoom room_;
  ptx::JitLog& log_;
  std::vector<LinkText>& texts_;
};

}  // namespace

CUresult texts_of_input(CUjitInputType type, Bytes bytes, cuda::ComputeCapability capability,
                        LinkRoom room, ptx::JitLog& log, std::vector<LinkText>& texts) {
  return Gathering(capability, std::move(room), log, texts).add(type, bytes);
}

}  // namespace flyt::softgpu
