// Modules: code loaded into one context.
#include "client/hooks_module.h"

#include <algorithm>
#include <cstring>

#include "client/call.h"
#include "client/code/code_state.h"
#include "client/code/function_facts.h"
#include "client/code/image_sender.h"
#include "client/code/jit_options.h"
#include "client/code/module_globals.h"
#include "client/code/names.h"
#include "client/hooks_library.h"
#include "client/memory_state.h"
#include "commands/module.h"

namespace flyt::client::hooks {
namespace {

CUresult load(CUmodule* out, const void* image, JitOptions& jit) {
  CodeState& code = session().code();
  Upload upload;
  const bool told = interprets_code() && jit.ask_for_errors();
  if (const CUresult no = upload_image(image, context().device, upload); no != CUDA_SUCCESS) {
    return no;
  }
  const auto made = code.modules.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto handle = static_cast<CUmodule>(pointer_at(made.handle));
  const auto turn = session().memory().transfers().code_turn();
  const commands::LoadModule command{.module = handle,
                                     .upload = upload.handle,
                                     .options = wire::List<std::int32_t>(jit.options()),
                                     .values = wire::List<std::uint64_t>(jit.values())};
  commands::LoadModule::Reply reply;
  rpc::Reply answer;
  const CUresult result = ask_with(upload, command, reply, answer, [&] {
    made.state->handle = made.handle;
    made.state->context = &owner();
    keep_code(made.handle, upload, jit);
    code.modules.publish(made.handle);
    return CUDA_SUCCESS;
  });
  jit.deliver(reply.info_log, reply.error_log, reply.wall_time);
  if (told && !reply.error_log.empty()) tell_refused_code(reply.error_log);
  if (result != CUDA_SUCCESS) {
    code.modules.discard(made.handle);
    return result;
  }
  jit.deliver_threads_per_block(reply.threads_per_block);
  *out = handle;
  return CUDA_SUCCESS;
}

// A function by its name, as the module or the kernel that it comes from.
CUresult find_function(ModuleState& module, std::string_view name, CUfunction* out) {
  CodeState& code = session().code();
  const std::lock_guard lookup(code.lookups.of(module.handle, name));
  {
    const std::lock_guard lock(code.mutex);
    const auto found = module.functions.find(name);
    if (found != module.functions.end()) {
      *out = static_cast<CUfunction>(pointer_at(found->second));
      return CUDA_SUCCESS;
    }
  }
  const auto made = code.functions.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto turn = session().memory().transfers().code_turn();
  const commands::GetFunction command{.module = static_cast<CUmodule>(pointer_at(module.handle)),
                                      .name = name,
                                      .function = static_cast<CUfunction>(pointer_at(made.handle))};
  bool sound = true;
  const CUresult result = ask_and_note(command, [&](const commands::GetFunction::Reply& reply) {
    made.state->handle = made.handle;
    made.state->context = module.context;
    made.state->module = module.handle;
    made.state->code = make_code(name, reply);
    made.state->facts.fill(reply);
    sound = made.state->code != nullptr;
    if (sound) code.functions.publish(made.handle);
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS || !sound) {
    code.functions.discard(made.handle);
    return sound ? result : distrust("get_function: parameters that no kernel has");
  }
  const std::lock_guard lock(code.mutex);
  module.functions.emplace(std::string(name), made.handle);
  *out = static_cast<CUfunction>(pointer_at(made.handle));
  return CUDA_SUCCESS;
}

CUresult function_names(CUmodule module, std::vector<std::string>& out) {
  const commands::ModuleFunctionNames command{.module = module};
  commands::ModuleFunctionNames::Reply reply;
  rpc::Reply answer;
  const CUresult result = ask(command, reply, answer);
  if (result == CUDA_SUCCESS) out = split_names(reply.names);
  return result;
}

}  // namespace

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  if (const CUresult no = jit.take(numOptions, options, optionValues); no != CUDA_SUCCESS) {
    return no;
  }
  return load(module, image, jit);
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return cuModuleLoadData(module, fatCubin);
}

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  if (module == nullptr || fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> file;
  if (const CUresult no = read_code_file(fname, file); no != CUDA_SUCCESS) return no;
  return cuModuleLoadData(module, file.data());
}

CUresult cuModuleUnload(CUmodule hmod) {
  CodeState& code = session().code();
  const ModuleState* module = code.modules.find(address_of(hmod));
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(module->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (module->library != 0) return CUDA_ERROR_NOT_PERMITTED;
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  forget_globals(module->globals);
  // Only now: other threads' new functions get the handles of those that the server has let go.
  const auto forget = [&] {
    session().memory().images.on_module_unloaded(address_of(hmod));
    code.forget_module(address_of(hmod));
  };
  const auto turn = session().memory().transfers().code_turn();
  const CUresult result = ask_and_note(commands::UnloadModule{.module = hmod}, [&](const auto&) {
    forget();
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) forget();
  return result;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  if (hfunc == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
  ModuleState* module = session().code().modules.find(address_of(hmod));
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(module->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (std::strlen(name) > kNameBytesMax) return CUDA_ERROR_NOT_FOUND;
  return find_function(*module, name, hfunc);
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ModuleState* module = session().code().modules.find(address_of(mod));
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(module->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  std::vector<std::string> names;
  const CUresult result = function_names(mod, names);
  if (result == CUDA_SUCCESS) *count = static_cast<unsigned int>(names.size());
  return result;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                    CUmodule mod) {
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ModuleState* module = session().code().modules.find(address_of(mod));
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(module->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  std::vector<std::string> names;
  if (const CUresult no = function_names(mod, names); no != CUDA_SUCCESS) return no;
  const std::size_t count = std::min<std::size_t>(names.size(), numFunctions);
  for (std::size_t i = 0; i < count; ++i) {
    if (const CUresult no = find_function(*module, names[i], &functions[i]); no != CUDA_SUCCESS) {
      return no;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  if ((dptr == nullptr && bytes == nullptr) || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ModuleState* module = session().code().modules.find(address_of(hmod));
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(module->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  using Reply = commands::GetGlobal::Reply;
  return find_global<Reply>(
      module->globals, *module->context, module->library != 0, name, dptr, bytes,
      [&](Reply& reply) { return ask(commands::GetGlobal{.module = hmod, .name = name}, reply); });
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  if (hmod == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CodeState& code = session().code();
  const FunctionState* function = code.functions.find(address_of(hfunc));
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(function->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (function->module != 0) {
    *hmod = static_cast<CUmodule>(pointer_at(function->module));
    return CUDA_SUCCESS;
  }
  const KernelState* kernel = code.kernels.find(function->kernel);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return cuLibraryGetModule(hmod, static_cast<CUlibrary>(pointer_at(kernel->library)));
}

}  // namespace flyt::client::hooks
