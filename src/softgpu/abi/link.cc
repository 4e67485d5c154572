// The just-in-time linker.
#include <string>

#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

constexpr std::size_t kInputsMax = 4096;

template <class Body>
CUresult with_linker(CUlinkState handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto linker = driver.linkers().find(from_handle(handle));
    if (linker == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult bad = check_home(driver, linker->context);
    if (bad != CUDA_SUCCESS) return bad;
    const auto context = driver.contexts().find(linker->context);
    return context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : body(*context, *linker);
  });
}

CUresult add(Context& context, Linker& linker, CUjitInputType type, Bytes bytes) {
  if (type >= CU_JIT_NUM_INPUT_TYPES || bytes.empty()) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(linker.mutex);
  if (linker.complete) return CUDA_ERROR_INVALID_VALUE;
  if (linker.texts.size() == kInputsMax) return CUDA_ERROR_OUT_OF_MEMORY;
  if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY) {
    linker.log.error(0, "the software GPU links PTX and fat binaries only");
    linker.options.write(linker.log);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  const auto image = cuda::image_of(bytes);
  const cuda::ImageKind wanted =
      type == CU_JIT_INPUT_PTX ? cuda::ImageKind::kPtx : cuda::ImageKind::kFatbin;
  if (!image || image->kind != wanted) return CUDA_ERROR_INVALID_IMAGE;
  const cuda::ComputeCapability capability = context.device().settings().capability;
  std::string text;
  if (wanted == cuda::ImageKind::kPtx) {
    text = std::string(text_of(image->bytes));
  } else {
    const auto fatbin = cuda::Fatbin::parse(image->bytes);
    if (!fatbin) return CUDA_ERROR_INVALID_IMAGE;
    const cuda::Candidates fitting = cuda::candidates(*fatbin, capability);
    if (fitting.ptx.empty()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    const auto unpacked = cuda::unpack(fatbin->files()[fitting.ptx.front()]);
    if (!unpacked) return CUDA_ERROR_INVALID_IMAGE;
    text = std::string(text_of(*unpacked));
  }
  const cuda::Image ptx{cuda::ImageKind::kPtx, bytes_of(text), {}};
  const CUresult result = parse_image(ptx, capability, linker.log, linker.parts);
  linker.options.write(linker.log);
  if (result == CUDA_SUCCESS) linker.texts.push_back(std::move(text));
  return result;
}

CUresult complete(Context& context, Linker& linker, void** out, std::size_t* size) {
  const Lock lock(linker.mutex);
  if (linker.complete) return CUDA_ERROR_INVALID_HANDLE;
  Program program;
  auto whole = ptx::link(linker.parts, &linker.log);
  CUresult result = CUDA_ERROR_INVALID_PTX;
  if (whole) result = make_program({&*whole, 1}, linker.log, program);
  // The parts were good, so a symbol is missing or there twice: NVIDIA's driver calls it that.
  if (result == CUDA_ERROR_INVALID_PTX) result = CUDA_ERROR_UNKNOWN;
  linker.options.write(linker.log);
  if (result != CUDA_SUCCESS) return result;
  linker.image = linked_image(linker.texts, context.device().settings().capability);
  linker.complete = true;
  *out = linker.image.data();
  if (size != nullptr) *size = linker.image.size();
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) {
  return with_context([&](Driver& driver, Context& context) -> CUresult {
    if (stateOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto linker = std::make_shared<Linker>();
    linker->context = context.handle();
    {
      const Lock lock(linker->mutex);
      const CUresult bad = JitOptions::read(numOptions, options, optionValues, linker->options);
      if (bad != CUDA_SUCCESS) return bad;
    }
    *stateOut = to_handle<CUlinkState>(driver.linkers().add(std::move(linker)));
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                          const char*, unsigned int, CUjit_option*, void**) {
  return with_linker(state, [&](Context& context, Linker& linker) -> CUresult {
    if (data == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
    return add(context, linker, type, bytes_at(data, size));
  });
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned int,
                          CUjit_option*, void**) {
  return with_linker(state, [&](Context& context, Linker& linker) -> CUresult {
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<std::byte> bytes;
    if (const CUresult bad = read_file(path, bytes); bad != CUDA_SUCCESS) return bad;
    return add(context, linker, type, Bytes(bytes).first(bytes.size() - 1));
  });
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  return with_linker(state, [&](Context& context, Linker& linker) -> CUresult {
    if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return complete(context, linker, cubinOut, sizeOut);
  });
}

CUresult cuLinkDestroy(CUlinkState state) {
  return with_driver([&](Driver& driver) {
    return driver.linkers().take(from_handle(state)) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                                : CUDA_SUCCESS;
  });
}

CUresult cuLinkCreate(unsigned int numOptions, CUjit_option* options, void** optionValues,
                      CUlinkState* stateOut) {
  return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size,
                       const char* name, unsigned int numOptions, CUjit_option* options,
                       void** optionValues) {
  return cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path,
                       unsigned int numOptions, CUjit_option* options, void** optionValues) {
  return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}

}  // extern "C"
