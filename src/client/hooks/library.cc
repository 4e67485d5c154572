// Libraries and kernels: code that no context owns.
#include "client/hooks_library.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "client/call.h"
#include "client/code/code_state.h"
#include "client/code/function_facts.h"
#include "client/code/image_sender.h"
#include "client/code/jit_options.h"
#include "client/code/module_globals.h"
#include "client/code/names.h"
#include "client/memory_state.h"
#include "commands/library.h"

namespace flyt::client::hooks {
namespace {

// Options of libraries concern memory that the program promises to keep; what is sent is a copy.
CUresult check_library_options(unsigned int count, const CUlibraryOption* options) {
  if (count == 0) return CUDA_SUCCESS;
  if (options == nullptr || count > CU_LIBRARY_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    if (options[i] < 0 || options[i] >= CU_LIBRARY_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult load(CUlibrary* out, const void* image, JitOptions& jit) {
  CodeState& code = session().code();
  Upload upload;
  const bool told = interprets_code() && jit.ask_for_errors();
  if (const CUresult no = upload_image(image, code_device(), upload); no != CUDA_SUCCESS) {
    return no;
  }
  const auto made = code.libraries.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto handle = static_cast<CUlibrary>(pointer_at(made.handle));
  const auto turn = session().memory().transfers().code_turn();
  const commands::LoadLibrary command{.library = handle,
                                      .upload = upload.handle,
                                      .options = wire::List<std::int32_t>(jit.options()),
                                      .values = wire::List<std::uint64_t>(jit.values())};
  commands::LoadLibrary::Reply reply;
  rpc::Reply answer;
  const CUresult result = ask_with(upload, command, reply, answer, [&] {
    made.state->handle = made.handle;
    keep_code(made.handle, upload, jit);
    code.libraries.publish(made.handle);
    return CUDA_SUCCESS;
  });
  jit.deliver(reply.info_log, reply.error_log, reply.wall_time);
  if (told && !reply.error_log.empty()) tell_refused_code(reply.error_log);
  if (result != CUDA_SUCCESS) {
    code.libraries.discard(made.handle);
    return result;
  }
  jit.deliver_threads_per_block(reply.threads_per_block);
  *out = handle;
  return CUDA_SUCCESS;
}

CUresult find_kernel(LibraryState& library, std::string_view name, CUkernel* out) {
  CodeState& code = session().code();
  const std::lock_guard lookup(code.lookups.of(library.handle, name));
  {
    const std::lock_guard lock(code.mutex);
    const auto found = library.kernels.find(name);
    if (found != library.kernels.end()) {
      *out = static_cast<CUkernel>(pointer_at(found->second));
      return CUDA_SUCCESS;
    }
  }
  const auto made = code.kernels.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUdevice device = code_device();
  const auto turn = session().memory().transfers().code_turn();
  const commands::GetKernel command{.library = static_cast<CUlibrary>(pointer_at(library.handle)),
                                    .name = name,
                                    .kernel = static_cast<CUkernel>(pointer_at(made.handle)),
                                    .device = device};
  bool sound = true;
  const CUresult result = ask_and_note(command, [&](const commands::GetKernel::Reply& reply) {
    KernelState& kernel = *made.state;
    kernel.handle = made.handle;
    kernel.library = library.handle;
    kernel.code = make_code(name, reply);
    kernel.facts =
        std::make_unique<FunctionFacts[]>(static_cast<std::size_t>(session().devices().count()));
    kernel.facts[static_cast<std::size_t>(device)].fill(reply);
    sound = kernel.code != nullptr;
    if (sound) code.kernels.publish(made.handle);
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS || !sound) {
    code.kernels.discard(made.handle);
    return sound ? result : distrust("get_kernel: parameters that no kernel has");
  }
  const std::lock_guard lock(code.mutex);
  library.kernels.emplace(std::string(name), made.handle);
  *out = static_cast<CUkernel>(pointer_at(made.handle));
  return CUDA_SUCCESS;
}

CUresult kernel_names(CUlibrary library, std::vector<std::string>& out) {
  const commands::LibraryKernelNames command{.library = library};
  commands::LibraryKernelNames::Reply reply;
  rpc::Reply answer;
  const CUresult result = ask(command, reply, answer);
  if (result == CUDA_SUCCESS) out = split_names(reply.names);
  return result;
}

// A kernel's function in the current context.
CUresult find_function(KernelState& kernel, std::uint64_t& out) {
  CodeState& code = session().code();
  const std::lock_guard lookup(code.lookups.of(kernel.handle));
  out = in_this_context(kernel.functions);
  if (out != 0) return CUDA_SUCCESS;
  const auto made = code.functions.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto turn = session().memory().transfers().code_turn();
  const commands::GetKernelFunction command{
      .kernel = static_cast<CUkernel>(pointer_at(kernel.handle)),
      .function = static_cast<CUfunction>(pointer_at(made.handle))};
  const auto note = [&](const commands::GetKernelFunction::Reply& reply) {
    made.state->handle = made.handle;
    made.state->context = &owner();
    made.state->kernel = kernel.handle;
    made.state->code = kernel.code;
    made.state->facts.fill(reply);
    code.functions.publish(made.handle);
    return CUDA_SUCCESS;
  };
  if (const CUresult result = ask_and_note(command, note); result != CUDA_SUCCESS) {
    code.functions.discard(made.handle);
    return result;
  }
  const std::lock_guard lock(code.mutex);
  kernel.functions.emplace_back(&owner(), made.handle);
  out = made.handle;
  return CUDA_SUCCESS;
}

// A library's module in the current context.
CUresult find_module(LibraryState& library, std::uint64_t& out) {
  CodeState& code = session().code();
  const std::lock_guard lookup(code.lookups.of(library.handle));
  out = in_this_context(library.modules);
  if (out != 0) return CUDA_SUCCESS;
  const auto made = code.modules.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto turn = session().memory().transfers().code_turn();
  const commands::GetLibraryModule command{
      .library = static_cast<CUlibrary>(pointer_at(library.handle)),
      .module = static_cast<CUmodule>(pointer_at(made.handle))};
  const CUresult result = ask_and_note(command, [&](const auto&) {
    made.state->handle = made.handle;
    made.state->context = &owner();
    made.state->library = library.handle;
    code.modules.publish(made.handle);
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) {
    code.modules.discard(made.handle);
    return result;
  }
  const std::lock_guard lock(code.mutex);
  library.modules.emplace_back(&owner(), made.handle);
  out = made.handle;
  return CUDA_SUCCESS;
}

// Before the library goes, which takes its managed variables with it.
void forget_managed(CUlibrary library) {
  MemoryState& state = session().memory();
  for (const Memory& memory : state.map().within(0, ~std::uint64_t{0})) {
    if (memory.kind != MemoryKind::kManagedVariable || memory.allocation != address_of(library)) {
      continue;
    }
    const auto removed = state.map().remove(memory.base, MemoryKind::kManagedVariable);
    if (removed) state.remove_managed_variable(*removed);
  }
}

// With what came of it.
void forget_library(LibraryState& library, const std::vector<std::uint64_t>& modules) {
  CodeState& code = session().code();
  code.forget_code(library.handle);
  {
    const std::lock_guard lock(code.mutex);
    for (const auto& [name, handle] : library.kernels) {
      if (KernelState* kernel = code.kernels.find(handle)) {
        for (const auto& [owner, function] : kernel->functions) code.functions.drop(function);
      }
      code.kernels.drop(handle);
    }
  }
  for (const std::uint64_t handle : modules) {
    session().memory().images.on_module_unloaded(handle);
    code.forget_module(handle);
  }
  code.libraries.drop(library.handle);
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void**,
                           unsigned int numLibraryOptions) {
  if (library == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  CUresult no = jit.take(numJitOptions, jitOptions, jitOptionsValues);
  if (no == CUDA_SUCCESS) no = check_library_options(numLibraryOptions, libraryOptions);
  return no == CUDA_SUCCESS ? load(library, code, jit) : no;
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void** libraryOptionValues,
                               unsigned int numLibraryOptions) {
  if (library == nullptr || fileName == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult bad = check_library_options(numLibraryOptions, libraryOptions);
  if (bad != CUDA_SUCCESS) return bad;
  std::vector<std::byte> file;
  if (const CUresult no = read_code_file(fileName, file); no != CUDA_SUCCESS) return no;
  // A program keeps no code that came from a file.
  const std::span given(libraryOptions, numLibraryOptions);
  if (std::find(given.begin(), given.end(), CU_LIBRARY_BINARY_IS_PRESERVED) != given.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return cuLibraryLoadData(library, file.data(), jitOptions, jitOptionsValues, numJitOptions,
                           libraryOptions, libraryOptionValues, numLibraryOptions);
}

CUresult cuLibraryUnload(CUlibrary library) {
  CodeState& code = session().code();
  LibraryState* state = code.libraries.find(address_of(library));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<std::uint64_t> modules;
  {
    const std::lock_guard lock(code.mutex);
    for (const auto& [owner, module] : state->modules) modules.push_back(module);
  }
  for (const std::uint64_t handle : modules) {
    if (const ModuleState* module = code.modules.find(handle)) forget_globals(module->globals);
  }
  forget_managed(library);
  // Only now: other threads' new objects get the handles of those that the server has let go.
  const auto forget = [&](const auto&) {
    forget_library(*state, modules);
    return CUDA_SUCCESS;
  };
  const auto turn = session().memory().transfers().code_turn();
  const CUresult result = ask_and_note(commands::UnloadLibrary{.library = library}, forget);
  if (result != CUDA_SUCCESS) forget(result);
  return result;
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LibraryState* state = session().code().libraries.find(address_of(library));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (*name == '\0' || std::strlen(name) > kNameBytesMax) return CUDA_ERROR_NOT_FOUND;
  return find_kernel(*state, name, pKernel);
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult no = check(lib); no != CUDA_SUCCESS) return no;
  std::vector<std::string> names;
  const CUresult result = kernel_names(lib, names);
  if (result == CUDA_SUCCESS) *count = static_cast<unsigned int>(names.size());
  return result;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LibraryState* state = session().code().libraries.find(address_of(lib));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<std::string> names;
  if (const CUresult no = kernel_names(lib, names); no != CUDA_SUCCESS) return no;
  const std::size_t count = std::min<std::size_t>(names.size(), numKernels);
  for (std::size_t i = 0; i < count; ++i) {
    if (const CUresult no = find_kernel(*state, names[i], &kernels[i]); no != CUDA_SUCCESS) {
      return no;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LibraryState* state = session().code().libraries.find(address_of(library));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t handle = in_this_context(state->modules);
  if (handle == 0) {
    if (const CUresult no = find_module(*state, handle); no != CUDA_SUCCESS) return no;
  }
  *pMod = static_cast<CUmodule>(pointer_at(handle));
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelState* state = session().code().kernels.find(address_of(kernel));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t handle = in_this_context(state->functions);
  if (handle == 0) {
    if (const CUresult no = find_function(*state, handle); no != CUDA_SUCCESS) return no;
  }
  *pFunc = static_cast<CUfunction>(pointer_at(handle));
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const KernelState* state = session().code().kernels.find(address_of(kernel));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pLib = static_cast<CUlibrary>(pointer_at(state->library));
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  if ((dptr == nullptr && bytes == nullptr) || name == nullptr || *name == '\0') {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUmodule module = nullptr;
  if (const CUresult no = cuLibraryGetModule(&module, library); no != CUDA_SUCCESS) return no;
  ModuleState* state = session().code().modules.find(address_of(module));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  using Reply = commands::GetLibraryGlobal::Reply;
  return find_global<Reply>(state->globals, owner(), true, name, dptr, bytes, [&](Reply& reply) {
    return ask(commands::GetLibraryGlobal{.library = library, .name = name}, reply);
  });
}

// Works without a context, which the runtime library has none of yet when it asks.
CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                             const char* name) {
  if (const CUresult no = enter(Needs::kInit); no != CUDA_SUCCESS) return no;
  if ((dptr == nullptr && bytes == nullptr) || name == nullptr || *name == '\0') {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult no = check(library); no != CUDA_SUCCESS) return no;
  if (std::strlen(name) > kNameBytesMax) return CUDA_ERROR_NOT_FOUND;
  commands::FindManaged::Reply found;
  CUresult result = ask(commands::FindManaged{.library = library, .name = name}, found);
  if (result != CUDA_SUCCESS) return result;
  const ContextState* current = thread_state().current_state;
  MemoryState& memory = session().memory();
  result = memory.add_managed_variable(found.address, found.size, 0,
                                       current == nullptr ? 0 : current->device);
  if (result != CUDA_SUCCESS) return result;
  memory.map().update(found.address,
                      [&](Memory& variable) { variable.allocation = address_of(library); });
  if (dptr != nullptr) *dptr = found.address;
  if (bytes != nullptr) *bytes = found.size;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  KernelState* state = session().code().kernels.find(address_of(kernel));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult no = check_device(dev); no != CUDA_SUCCESS) return no;
  const auto index = static_cast<std::uint32_t>(attrib);
  if (pi == nullptr || index >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  FunctionFacts* facts = nullptr;
  if (const CUresult no = kernel_facts(*state, dev, facts); no != CUDA_SUCCESS) return no;
  if ((facts->known.load(std::memory_order_relaxed) >> index & 1) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pi = facts->attributes[index].load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  CodeState& code = session().code();
  KernelState* state = code.kernels.find(address_of(kernel));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult no = check_device(dev); no != CUDA_SUCCESS) return no;
  const auto index = static_cast<std::uint32_t>(attrib);
  if (index >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  FunctionFacts& facts = state->facts[static_cast<std::size_t>(dev)];
  if (facts.has(index, val)) return CUDA_SUCCESS;
  const commands::SetKernelAttribute command{.kernel = kernel,
                                             .attribute = static_cast<std::int32_t>(attrib),
                                             .value = val,
                                             .device = dev};
  return ask_and_note(command, [&](const auto&) {
    facts.set(index, val);
    const std::lock_guard lock(code.mutex);
    for (const auto& [owner, handle] : state->functions) {
      FunctionState* function = code.functions.find(handle);
      if (function != nullptr && owner->device == dev) function->facts.set(index, val);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  if (const CUresult no = check(kernel); no != CUDA_SUCCESS) return no;
  if (const CUresult no = check_device(dev); no != CUDA_SUCCESS) return no;
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return post(commands::SetKernelCache{
      .kernel = kernel, .config = static_cast<std::int32_t>(config), .device = dev});
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  if (name == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const KernelState* state = session().code().kernels.find(address_of(hfunc));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = state->code->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                              size_t* paramSize) {
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  const KernelState* state = session().code().kernels.find(address_of(kernel));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (paramOffset == nullptr || paramIndex >= state->code->parameters.size()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *paramOffset = state->code->parameters[paramIndex].offset;
  if (paramSize != nullptr) *paramSize = state->code->parameters[paramIndex].size;
  return CUDA_SUCCESS;
}

// Code has no unified functions: that takes a host that shares the GPU's page tables. NVIDIA's
// driver on an ordinary host says this of any name.
CUresult cuLibraryGetUnifiedFunction(void**, CUlibrary library, const char*) {
  const CUresult no = check(library);
  return no == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : no;
}

}  // namespace flyt::client::hooks
