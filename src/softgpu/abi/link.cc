// The just-in-time linker.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/host_object.h"
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

CUresult text_of_fatbin(const cuda::Fatbin& fatbin, cuda::ComputeCapability capability,
                        std::string& text) {
  const cuda::Candidates fitting = cuda::candidates(fatbin, capability);
  if (fitting.ptx.empty()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  const auto unpacked = cuda::unpack(fatbin.files()[fitting.ptx.front()]);
  if (!unpacked) return CUDA_ERROR_INVALID_IMAGE;
  text = std::string(text_of(*unpacked));
  return CUDA_SUCCESS;
}

CUresult texts_of_object(Bytes object, cuda::ComputeCapability capability,
                         std::vector<std::string>& texts) {
  const auto fatbins = cuda::fatbins_of_object(object);
  if (!fatbins) return CUDA_ERROR_INVALID_IMAGE;
  if (fatbins->empty()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  for (const cuda::Fatbin& fatbin : *fatbins) {
    const CUresult bad = text_of_fatbin(fatbin, capability, texts.emplace_back());
    if (bad != CUDA_SUCCESS) return bad;
  }
  return CUDA_SUCCESS;
}

// A library's file without PTX is left out: what is missing without it is told by name.
CUresult texts_of_library(Bytes library, cuda::ComputeCapability capability,
                          std::vector<std::string>& texts) {
  const auto members = cuda::members_of_archive(library);
  if (!members) return CUDA_ERROR_INVALID_IMAGE;
  for (const Bytes member : *members) {
    std::vector<std::string> those;
    const CUresult bad = texts_of_object(member, capability, those);
    if (bad == CUDA_ERROR_NO_BINARY_FOR_GPU) continue;
    if (bad != CUDA_SUCCESS) return bad;
    for (std::string& text : those) texts.push_back(std::move(text));
  }
  return CUDA_SUCCESS;
}

CUresult texts_of(CUjitInputType type, Bytes bytes, cuda::ComputeCapability capability,
                  std::vector<std::string>& texts) {
  if (type == CU_JIT_INPUT_OBJECT) return texts_of_object(bytes, capability, texts);
  if (type == CU_JIT_INPUT_LIBRARY) return texts_of_library(bytes, capability, texts);
  const auto image = cuda::image_of(bytes);
  const cuda::ImageKind wanted =
      type == CU_JIT_INPUT_PTX ? cuda::ImageKind::kPtx : cuda::ImageKind::kFatbin;
  if (!image || image->kind != wanted) return CUDA_ERROR_INVALID_IMAGE;
  if (wanted == cuda::ImageKind::kPtx) {
    texts.emplace_back(text_of(image->bytes));
    return CUDA_SUCCESS;
  }
  const auto fatbin = cuda::Fatbin::parse(image->bytes);
  if (!fatbin) return CUDA_ERROR_INVALID_IMAGE;
  return text_of_fatbin(*fatbin, capability, texts.emplace_back());
}

CUresult add(Context& context, Linker& linker, CUjitInputType type, Bytes bytes) {
  if (type >= CU_JIT_NUM_INPUT_TYPES || bytes.empty()) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(linker.mutex);
  if (linker.complete) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_JIT_INPUT_CUBIN || type == CU_JIT_INPUT_NVVM) {
    linker.log.error(0,
                     "the software GPU links PTX, and what PTX is in: fat binaries, objects "
                     "and libraries");
    linker.options.write(linker.log);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  const cuda::ComputeCapability capability = context.device().settings().capability;
  std::vector<std::string> texts;
  if (const CUresult bad = texts_of(type, bytes, capability, texts); bad != CUDA_SUCCESS)
    return bad;
  if (linker.texts.size() + linker.offers.size() + texts.size() > kInputsMax) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = CUDA_SUCCESS;
  std::vector<std::shared_ptr<const ptx::Module>> parts;
  for (const std::string& text : texts) {
    const cuda::Image ptx{cuda::ImageKind::kPtx, bytes_of(text), {}};
    result = parse_image(ptx, capability, linker.log, parts);
    if (result != CUDA_SUCCESS) break;
  }
  linker.options.write(linker.log);
  if (result != CUDA_SUCCESS) return result;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (type == CU_JIT_INPUT_LIBRARY) {
      linker.offers.push_back({std::move(parts[i]), std::move(texts[i])});
    } else {
      linker.parts.push_back(std::move(parts[i]));
      linker.texts.push_back(std::move(texts[i]));
    }
  }
  return CUDA_SUCCESS;
}

struct Names {
  std::set<std::string> defined;
  std::set<std::string> wanted;
};

void gather_names(const ptx::Module& part, Names& names) {
  for (const ptx::Function& each : part.functions()) {
    const bool internal = each.linkage == ptx::Linkage::kInternal;
    if (!each.defined) names.wanted.insert(each.name);
    if (each.defined && !internal) names.defined.insert(each.name);
  }
  for (const ptx::Variable& each : part.variables()) {
    if (each.linkage == ptx::Linkage::kInternal) continue;
    const bool elsewhere = each.linkage == ptx::Linkage::kExtern;
    (elsewhere ? names.wanted : names.defined).insert(each.name);
  }
}

// Of libraries only what something asks for that nothing before has, as linkers do.
void take_offers(std::vector<LinkerOffer>& offers,
                 std::vector<std::shared_ptr<const ptx::Module>>& parts,
                 std::vector<std::string>& texts) {
  Names all;
  for (const auto& part : parts) gather_names(*part, all);
  for (bool more = true; more;) {
    more = false;
    for (LinkerOffer& offer : offers) {
      if (offer.taken) continue;
      Names its;
      gather_names(*offer.part, its);
      offer.taken = std::any_of(its.defined.begin(), its.defined.end(), [&](const auto& name) {
        return all.wanted.contains(name) && !all.defined.contains(name);
      });
      if (!offer.taken) continue;
      gather_names(*offer.part, all);
      parts.push_back(std::move(offer.part));
      texts.push_back(std::move(offer.text));
      more = true;
    }
  }
  std::erase_if(offers, [](const LinkerOffer& offer) { return offer.taken; });
}

CUresult complete(Context& context, Linker& linker, void** out, std::size_t* size) {
  const Lock lock(linker.mutex);
  if (linker.complete) return CUDA_ERROR_INVALID_HANDLE;
  take_offers(linker.offers, linker.parts, linker.texts);
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
