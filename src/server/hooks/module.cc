// Modules: code loaded into one context.
#include "server/hooks_module.h"

#include <algorithm>
#include <memory>
#include <string>

#include "server/code/code_subjects.h"
#include "server/code/code_taking.h"
#include "server/code/function_facts.h"
#include "server/memory_subjects.h"
#include "server/session.h"
#include "wire/code.h"

namespace flyt::server::hooks {
namespace {

std::shared_ptr<CodeOrigin> in_context(const Request& request) {
  auto origin = std::make_shared<CodeOrigin>();
  origin->context = request.home();
  return origin;
}

}  // namespace

CUresult upload(Request& request, const commands::Upload& command) {
  Uploads& uploads = request.session().code().uploads();
  if (!uploads.add_piece(command.upload, command.total, command.offset, command.data)) {
    request.session().end("an upload out of order or beyond its limits");
  }
  return CUDA_SUCCESS;
}

CUresult describe_upload(Request& request, const commands::DescribeUpload& command) {
  UploadFacts facts{.total = command.total, .packed = command.packed};
  const bool hashed = command.digest.size() == wire::kCodeHashBytes;
  if (hashed) {
    std::copy(command.digest.begin(), command.digest.end(), facts.digest.emplace().begin());
  }
  if ((!hashed && !command.digest.empty()) ||
      !request.session().code().uploads().describe(command.upload, facts)) {
    request.session().end("an upload described wrongly, or beyond its limits");
  }
  return CUDA_SUCCESS;
}

CUresult drop_upload(Request& request, const commands::DropUpload& command) {
  request.session().code().uploads().take(command.upload);
  return CUDA_SUCCESS;
}

void load_module(Request request, const commands::LoadModule& command) {
  commands::LoadModule::Reply reply;
  Image image;
  JitArguments jit;
  const CUresult none = take_image(request, command, image, jit);
  if (none != CUDA_SUCCESS) return request.reply(none, reply);
  auto origin = in_context(request);
  CUmodule native = nullptr;
  CUresult result = charge_code(request, image, *origin);
  request.session().code().variables().load_as_before(request, address_of(command.module));
  if (result == CUDA_SUCCESS) {
    result = request.driver().cuModuleLoadDataEx(&native, image.bytes.data(), jit.count(),
                                                 jit.options(), jit.values());
  }
  if (result == CUDA_SUCCESS &&
      !request.adopt(wire::HandleKind::kModule, command.module, native, std::move(origin))) {
    return;
  }
  if (result == CUDA_SUCCESS && image.facts.has_variables) {
    const Bytes code = Bytes(image.bytes).first(image.bytes.size() - 1);
    request.session().code().variables().on_module(request, address_of(command.module), code);
  }
  reply.threads_per_block = jit.threads_per_block();
  jit.fill_told(reply);
  request.reply(result, reply);
}

CUresult unload_module(Request& request, const commands::UnloadModule& command) {
  const Lock lock(request.session().endings());
  CUmodule native = command.module;
  if (!request.resolve(native)) return CUDA_ERROR_INVALID_HANDLE;
  // Keeps the charge until the driver is done.
  const auto kept =
      request.session().handles().entry(wire::HandleKind::kModule, address_of(command.module));
  {
    const auto alone = request.session().alone();
    request.session().code().on_module_unload(address_of(command.module));
  }
  return request.driver().cuModuleUnload(native);
}

void get_function(Request request, const commands::GetFunction& command) {
  const driver::Table& driver = request.driver();
  commands::GetFunction::Reply reply;
  const Handles::Entry module =
      request.session().handles().entry(wire::HandleKind::kModule, address_of(command.module));
  if (!module) return request.reply(CUDA_ERROR_INVALID_HANDLE, reply);
  CUfunction native = nullptr;
  const CUresult result = driver.cuModuleGetFunction(&native, static_cast<CUmodule>(module.native),
                                                     std::string(command.name).c_str());
  if (result != CUDA_SUCCESS) return request.reply(result, reply);
  // Loaded here on a worker, so that its first launch does not hold up the main thread.
  driver.cuFuncLoad(native);
  FunctionFacts facts;
  collect_attributes(facts, [&](int* value, CUfunction_attribute attribute) {
    return driver.cuFuncGetAttribute(value, attribute, native);
  });
  collect_parameters(facts, [&](std::size_t index, std::size_t* offset, std::size_t* size) {
    return driver.cuFuncGetParamInfo(native, index, offset, size);
  });
  auto origin = in_context(request);
  origin->module = address_of(command.module);
  // A library takes the functions of its modules with it.
  origin->library = static_cast<const CodeOrigin&>(*module.attachment).library;
  if (!request.adopt(wire::HandleKind::kFunction, command.function, native, origin)) return;
  facts.fill_attributes(reply);
  facts.fill_parameters(reply);
  request.reply(result, reply);
}

void module_function_names(Request request, const commands::ModuleFunctionNames& command) {
  const driver::Table& driver = request.driver();
  commands::ModuleFunctionNames::Reply reply;
  CUmodule module = command.module;
  if (!request.resolve(module)) return request.reply(CUDA_ERROR_INVALID_HANDLE, reply);
  unsigned int count = 0;
  CUresult result = driver.cuModuleGetFunctionCount(&count, module);
  std::vector<CUfunction> functions(count);
  if (result == CUDA_SUCCESS && count != 0) {
    result = driver.cuModuleEnumerateFunctions(functions.data(), count, module);
  }
  std::string names;
  for (const CUfunction function : functions) {
    const char* name = nullptr;
    if (result == CUDA_SUCCESS) result = driver.cuFuncGetName(&name, function);
    if (result == CUDA_SUCCESS) names.append(name).push_back('\0');
  }
  if (names.size() > reply.kNamesBytesMax) result = CUDA_ERROR_NOT_SUPPORTED;
  if (result == CUDA_SUCCESS) reply.names = bytes_of(names);
  request.reply(result, reply);
}

CUresult get_global(Request& request, const commands::GetGlobal& command,
                    commands::GetGlobal::Reply& reply) {
  const Handles::Entry module =
      request.session().handles().entry(wire::HandleKind::kModule, address_of(command.module));
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  CUdeviceptr address = 0;
  std::size_t size = 0;
  const CUresult result = request.driver().cuModuleGetGlobal_v2(
      &address, &size, static_cast<CUmodule>(module.native), std::string(command.name).c_str());
  if (result != CUDA_SUCCESS) return result;
  reply.address = address;
  reply.size = size;
  reply.managed = is_managed(request.driver(), address);
  auto& origin = static_cast<CodeOrigin&>(*module.attachment);
  CodeSubjects& code = request.session().code();
  code.note_global(origin, request.home(), address, size);
  const Variables::Told told{command.name, address, size, reply.managed};
  if (origin.library == 0) {
    code.variables().on_told(request, address_of(command.module), false, told);
  } else {
    code.variables().on_library(request, origin.library);
    code.variables().on_told(request, origin.library, true, told);
  }
  return result;
}

}  // namespace flyt::server::hooks
