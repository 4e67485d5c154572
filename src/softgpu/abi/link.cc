// The just-in-time linker.
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "softgpu/abi/enter.h"
#include "softgpu/link_texts.h"

namespace flyt::softgpu {
namespace {

template <class Body>
CUresult with_linker(CUlinkState handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto linker = driver.linkers().find(from_handle(handle));
    if (linker == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult bad = check_home(driver, linker->context);
    if (bad != CUDA_SUCCESS) return bad;
    const auto context = driver.contexts().find(linker->context);
    return context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : body(driver, *context, *linker);
  });
}

LinkRoom room_of(Driver& driver, Linker& linker) REQUIRES(linker.mutex) {
  LinkRoom room;
  room.all = driver.link_text_bytes();
  room.texts -= linker.parts.size() + linker.offers.size();
  for (const LinkPart& each : linker.parts) room.bytes -= each.text.text.size();
  for (const LinkPart& each : linker.offers) room.bytes -= each.text.text.size();
  return room;
}

// A few words of text declare a million.
std::uint64_t registers_of(Linker& linker) REQUIRES(linker.mutex) {
  std::uint64_t count = 0;
  for (const LinkPart& each : linker.parts) count += each.module->register_count();
  for (const LinkPart& each : linker.offers) count += each.module->register_count();
  return count;
}

CUresult add(Driver& driver, Context& context, Linker& linker, CUjitInputType type, Bytes bytes) {
  if (type >= CU_JIT_NUM_INPUT_TYPES || bytes.empty()) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(linker.mutex);
  if (linker.complete) return CUDA_ERROR_INVALID_VALUE;
  const cuda::ComputeCapability capability = context.device().settings().capability;
  std::vector<LinkText> texts;
  CUresult result =
      texts_of_input(type, bytes, capability, room_of(driver, linker), linker.log, texts);
  std::vector<std::shared_ptr<const ptx::Module>> modules;
  std::uint64_t registers = registers_of(linker);
  for (const LinkText& each : texts) {
    if (result != CUDA_SUCCESS) break;
    const cuda::Image ptx{cuda::ImageKind::kPtx, bytes_of(each.text), {}};
    result = parse_image(ptx, capability, linker.log, modules);
    if (result == CUDA_SUCCESS) registers += modules.back()->register_count();
    if (registers <= ptx::kAllRegistersMax) continue;
    linker.log.error(0, "too many registers to link");
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  linker.options.write(linker.log);
  if (result != CUDA_SUCCESS) return result;
  auto& parts = type == CU_JIT_INPUT_LIBRARY ? linker.offers : linker.parts;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    parts.push_back({std::move(modules[i]), std::move(texts[i])});
  }
  return CUDA_SUCCESS;
}

struct Names {
  std::set<std::string> defined;
  std::set<std::string> wanted;
};

Names names_of(const ptx::Module& module) {
  Names names;
  for (const ptx::Function& each : module.functions()) {
    const bool internal = each.linkage == ptx::Linkage::kInternal;
    if (!each.defined) names.wanted.insert(each.name);
    if (each.defined && !internal) names.defined.insert(each.name);
  }
  for (const ptx::Variable& each : module.variables()) {
    if (each.linkage == ptx::Linkage::kInternal) continue;
    const bool elsewhere = each.linkage == ptx::Linkage::kExtern;
    (elsewhere ? names.wanted : names.defined).insert(each.name);
  }
  return names;
}

// Moves those offers to the parts that define what a part asks for and none has, as linkers do; of
// several that define it the first.
void take_offers(std::vector<LinkPart>& offers, std::vector<LinkPart>& parts) {
  std::map<std::string, std::size_t> offered;
  for (std::size_t i = 0; i < offers.size(); ++i) {
    for (const std::string& name : names_of(*offers[i].module).defined) offered.emplace(name, i);
  }
  std::set<std::string> defined;
  std::vector<std::string> wanted;
  const auto gather = [&](const LinkPart& part) {
    Names names = names_of(*part.module);
    defined.merge(names.defined);
    wanted.insert(wanted.end(), names.wanted.begin(), names.wanted.end());
  };
  for (const LinkPart& part : parts) gather(part);
  while (!wanted.empty()) {
    const std::string name = std::move(wanted.back());
    wanted.pop_back();
    const auto found = offered.find(name);
    if (defined.contains(name) || found == offered.end()) continue;
    // Its names are defined from here on, so that it is taken once.
    parts.push_back(std::move(offers[found->second]));
    gather(parts.back());
  }
  std::erase_if(offers, [](const LinkPart& offer) { return offer.module == nullptr; });
}

CUresult complete(Context& context, Linker& linker, void** out, std::size_t* size) {
  const Lock lock(linker.mutex);
  if (linker.complete) return CUDA_ERROR_INVALID_HANDLE;
  take_offers(linker.offers, linker.parts);
  std::vector<std::shared_ptr<const ptx::Module>> modules;
  std::vector<std::string_view> texts;
  for (const LinkPart& part : linker.parts) {
    modules.push_back(part.module);
    texts.push_back(part.text.text);
  }
  Program program;
  auto whole = ptx::link(modules, &linker.log);
  CUresult result = CUDA_ERROR_INVALID_PTX;
  if (whole) result = make_program({&*whole, 1}, linker.log, program);
  // The parts were good, so a symbol is missing or there twice: NVIDIA's driver calls it that.
  if (result == CUDA_ERROR_INVALID_PTX) result = CUDA_ERROR_UNKNOWN;
  linker.options.write(linker.log);
  if (result != CUDA_SUCCESS) return result;
  linker.image = linked_image(texts, context.device().settings().capability);
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
  return with_linker(state, [&](Driver& driver, Context& context, Linker& linker) -> CUresult {
    if (data == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
    return add(driver, context, linker, type, bytes_at(data, size));
  });
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned int,
                          CUjit_option*, void**) {
  return with_linker(state, [&](Driver& driver, Context& context, Linker& linker) -> CUresult {
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<std::byte> bytes;
    if (const CUresult bad = read_file(path, bytes); bad != CUDA_SUCCESS) return bad;
    return add(driver, context, linker, type, Bytes(bytes).first(bytes.size() - 1));
  });
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  return with_linker(state, [&](Driver&, Context& context, Linker& linker) -> CUresult {
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
