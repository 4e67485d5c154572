// Libraries and kernels: code that no context owns.
#include "server/hooks_library.h"

#include <memory>
#include <optional>
#include <string>

#include "server/code/code_subjects.h"
#include "server/code/code_taking.h"
#include "server/code/function_facts.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

std::shared_ptr<CodeOrigin> of_library(CUlibrary library, std::uint32_t context) {
  auto origin = std::make_shared<CodeOrigin>();
  origin->library = address_of(library);
  origin->context = context;
  return origin;
}

// A caller without a context may ask for kernels, but the driver tells of their parameters only
// with one current: the device's primary context is lent for as long as this lives.
class LentContext {
 public:
  LentContext(const Request& request, CUdevice device)
      : driver_(request.driver()), device_(device) {
    CUcontext primary = nullptr;
    if (request.context() != 0) return;
    lent_ = driver_.cuDevicePrimaryCtxRetain(&primary, device) == CUDA_SUCCESS;
    if (lent_) driver_.cuCtxSetCurrent(primary);
  }
  ~LentContext() {
    if (!lent_) return;
    driver_.cuCtxSetCurrent(nullptr);
    driver_.cuDevicePrimaryCtxRelease_v2(device_);
  }
  LentContext(const LentContext&) = delete;
  LentContext& operator=(const LentContext&) = delete;

 private:
  const driver::Table& driver_;
  CUdevice device_;
  bool lent_ = false;
};

void collect_kernel_attributes(const driver::Table& driver, CUkernel kernel, CUdevice device,
                               FunctionFacts& facts) {
  collect_attributes(facts, [&](int* value, CUfunction_attribute attribute) {
    return driver.cuKernelGetAttribute(value, attribute, kernel, device);
  });
}

// A library's variables are of one context each, managed ones of none.
void note_global(Request& request, const Handles::Entry& library, bool managed,
                 std::uint64_t address, std::uint64_t size) {
  auto& origin = static_cast<CodeOrigin&>(*library.attachment);
  request.session().code().note_global(origin, managed ? 0 : request.home(), address, size);
}

}  // namespace

void load_library(Request request, const commands::LoadLibrary& command) {
  const driver::Table& driver = request.driver();
  CodeSubjects& code = request.session().code();
  commands::LoadLibrary::Reply reply;
  Image image;
  JitArguments jit;
  CUlibrary native = nullptr;
  const CUresult none = take_library(request, command, image, jit, native);
  if (none != CUDA_SUCCESS) return request.reply(none, reply);
  const auto name =
      image.named && may_be_foreseen(command.options) ? std::optional(image.name()) : std::nullopt;
  auto origin = of_library(command.library, 0);
  CUresult result = charge_code(request, image, *origin);
  origin->image = std::move(image.bytes);
  origin->has_variables = image.facts.has_variables;
  if (result != CUDA_SUCCESS) {
    if (native != nullptr) driver.cuLibraryUnload(native);
  } else if (native == nullptr) {
    code.variables().before_library(request, address_of(command.library));
    result = load_preserved(driver, origin->image, jit, native);
  }
  if (result == CUDA_SUCCESS &&
      !request.adopt(wire::HandleKind::kLibrary, command.library, native, std::move(origin))) {
    return;
  }
  reply.threads_per_block = jit.threads_per_block();
  jit.fill_told(reply);
  request.reply(result, reply);
  // Nothing is said of errors when it is loaded ahead.
  if (result == CUDA_SUCCESS && name && jit.error_log().empty()) code.foresight().on_load(*name);
}

CUresult unload_library(Request& request, const commands::UnloadLibrary& command) {
  const Lock lock(request.session().endings());
  CUlibrary native = command.library;
  if (!request.resolve(native)) return CUDA_ERROR_INVALID_HANDLE;
  // Keeps the charge until the driver is done.
  const auto kept =
      request.session().handles().entry(wire::HandleKind::kLibrary, address_of(command.library));
  {
    const auto alone = request.session().alone();
    request.session().code().on_library_unload(address_of(command.library));
  }
  return request.driver().cuLibraryUnload(native);
}

void get_kernel(Request request, const commands::GetKernel& command) {
  const driver::Table& driver = request.driver();
  commands::GetKernel::Reply reply;
  CUlibrary library = command.library;
  if (!request.resolve(library)) return request.reply(CUDA_ERROR_INVALID_HANDLE, reply);
  request.session().code().variables().load_as_before(request, address_of(command.library));
  const LentContext lent(request, command.device);
  CUkernel native = nullptr;
  const CUresult result =
      driver.cuLibraryGetKernel(&native, library, std::string(command.name).c_str());
  if (result != CUDA_SUCCESS) return request.reply(result, reply);
  CUfunction function = nullptr;
  // Loaded here on a worker, so that its first launch does not hold up the main thread.
  if (request.context() != 0 && driver.cuKernelGetFunction(&function, native) == CUDA_SUCCESS) {
    driver.cuFuncLoad(function);
  }
  FunctionFacts facts;
  collect_kernel_attributes(driver, native, command.device, facts);
  collect_parameters(facts, [&](std::size_t index, std::size_t* offset, std::size_t* size) {
    return driver.cuKernelGetParamInfo(native, index, offset, size);
  });
  if (!request.adopt(wire::HandleKind::kKernel, command.kernel, native,
                     of_library(command.library, 0))) {
    return;
  }
  Variables& variables = request.session().code().variables();
  variables.on_kernel(address_of(command.library));
  if (function != nullptr) variables.on_library(request, address_of(command.library));
  facts.fill_attributes(reply);
  facts.fill_parameters(reply);
  request.reply(result, reply);
}

void describe_kernel(Request request, const commands::DescribeKernel& command) {
  commands::DescribeKernel::Reply reply;
  CUkernel kernel = command.kernel;
  if (!request.resolve(kernel)) return request.reply(CUDA_ERROR_INVALID_HANDLE, reply);
  const LentContext lent(request, command.device);
  FunctionFacts facts;
  collect_kernel_attributes(request.driver(), kernel, command.device, facts);
  facts.fill_attributes(reply);
  request.reply(CUDA_SUCCESS, reply);
}

void library_kernel_names(Request request, const commands::LibraryKernelNames& command) {
  const driver::Table& driver = request.driver();
  commands::LibraryKernelNames::Reply reply;
  CUlibrary library = command.library;
  if (!request.resolve(library)) return request.reply(CUDA_ERROR_INVALID_HANDLE, reply);
  unsigned int count = 0;
  CUresult result = driver.cuLibraryGetKernelCount(&count, library);
  std::vector<CUkernel> kernels(count);
  if (result == CUDA_SUCCESS && count != 0) {
    result = driver.cuLibraryEnumerateKernels(kernels.data(), count, library);
  }
  std::string names;
  for (const CUkernel kernel : kernels) {
    const char* name = nullptr;
    if (result == CUDA_SUCCESS) result = driver.cuKernelGetName(&name, kernel);
    if (result == CUDA_SUCCESS) names.append(name).push_back('\0');
  }
  if (names.size() > reply.kNamesBytesMax) result = CUDA_ERROR_NOT_SUPPORTED;
  if (result == CUDA_SUCCESS) reply.names = bytes_of(names);
  request.reply(result, reply);
}

CUresult get_library_module(Request& request, const commands::GetLibraryModule& command) {
  CUlibrary library = command.library;
  if (!request.resolve(library)) return CUDA_ERROR_INVALID_HANDLE;
  CUmodule native = nullptr;
  request.session().code().variables().load_as_before(request, address_of(command.library));
  const CUresult result = request.driver().cuLibraryGetModule(&native, library);
  if (result == CUDA_SUCCESS) {
    static_cast<void>(request.adopt(wire::HandleKind::kModule, command.module, native,
                                    of_library(command.library, request.home())));
    request.session().code().variables().on_library(request, address_of(command.library));
  }
  return result;
}

CUresult get_library_global(Request& request, const commands::GetLibraryGlobal& command,
                            commands::GetLibraryGlobal::Reply& reply) {
  const Handles::Entry library =
      request.session().handles().entry(wire::HandleKind::kLibrary, address_of(command.library));
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  CUdeviceptr address = 0;
  std::size_t size = 0;
  const CUresult result = request.driver().cuLibraryGetGlobal(
      &address, &size, static_cast<CUlibrary>(library.native), std::string(command.name).c_str());
  if (result != CUDA_SUCCESS) return result;
  reply.address = address;
  reply.size = size;
  reply.managed = is_managed(request.driver(), address);
  note_global(request, library, reply.managed, address, size);
  Variables& variables = request.session().code().variables();
  variables.on_library(request, address_of(command.library));
  variables.on_told(request, address_of(command.library), true,
                    {command.name, address, size, reply.managed});
  return result;
}

CUresult find_managed(Request& request, const commands::FindManaged& command,
                      commands::FindManaged::Reply& reply) {
  const Handles::Entry library =
      request.session().handles().entry(wire::HandleKind::kLibrary, address_of(command.library));
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  CUdeviceptr address = 0;
  std::size_t size = 0;
  const CUresult result = request.driver().cuLibraryGetManaged(
      &address, &size, static_cast<CUlibrary>(library.native), std::string(command.name).c_str());
  if (result != CUDA_SUCCESS) return result;
  reply.address = address;
  reply.size = size;
  note_global(request, library, true, address, size);
  return result;
}

void get_kernel_function(Request request, const commands::GetKernelFunction& command) {
  const driver::Table& driver = request.driver();
  commands::GetKernelFunction::Reply reply;
  const Handles::Entry kernel =
      request.session().handles().entry(wire::HandleKind::kKernel, address_of(command.kernel));
  if (!kernel) return request.reply(CUDA_ERROR_INVALID_HANDLE, reply);
  const auto library = static_cast<const CodeOrigin&>(*kernel.attachment).library;
  request.session().code().variables().load_as_before(request, library);
  CUfunction native = nullptr;
  const CUresult result = driver.cuKernelGetFunction(&native, static_cast<CUkernel>(kernel.native));
  if (result != CUDA_SUCCESS) return request.reply(result, reply);
  driver.cuFuncLoad(native);
  FunctionFacts facts;
  collect_attributes(facts, [&](int* value, CUfunction_attribute attribute) {
    return driver.cuFuncGetAttribute(value, attribute, native);
  });
  auto origin = std::make_shared<CodeOrigin>();
  origin->context = request.home();
  origin->library = library;
  if (!request.adopt(wire::HandleKind::kFunction, command.function, native, origin)) return;
  request.session().code().variables().on_library(request, origin->library);
  facts.fill_attributes(reply);
  request.reply(result, reply);
}

CUresult set_kernel_attribute(Request& request, const commands::SetKernelAttribute& command) {
  CUkernel kernel = command.kernel;
  if (!request.resolve(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_function_attribute(command.attribute)) return CUDA_ERROR_INVALID_VALUE;
  return request.driver().cuKernelSetAttribute(static_cast<CUfunction_attribute>(command.attribute),
                                               command.value, kernel, command.device);
}

CUresult set_kernel_cache(Request& request, const commands::SetKernelCache& command) {
  CUkernel kernel = command.kernel;
  if (!request.resolve(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  return request.driver().cuKernelSetCacheConfig(kernel, static_cast<CUfunc_cache>(command.config),
                                                 command.device);
}

}  // namespace flyt::server::hooks
