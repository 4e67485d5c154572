// GPU core dumps: none is made, and that is said; the settings are kept.
#include "client/hooks_coredump.h"

#include "client/call.h"
#include "client/code/code_state.h"

namespace flyt::client::hooks {
namespace {

CUcontext current() { return static_cast<CUcontext>(pointer_at(owner().handle)); }

CUresult set(CUcontext context, CUcoredumpSettings attribute, void* value, size_t* size,
             const char* name) {
  const CUresult result = session().code().core_dumps.set(context, attribute, value, size);
  return result == CUDA_ERROR_NOT_SUPPORTED ? refused(name, "no GPU core dumps are made") : result;
}

}  // namespace

CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  return session().code().core_dumps.get(current(), attrib, value, size);
}

CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  return session().code().core_dumps.get(nullptr, attrib, value, size);
}

CUresult cuCoredumpSetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  return set(current(), attrib, value, size, "cuCoredumpSetAttribute");
}

CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  return set(nullptr, attrib, value, size, "cuCoredumpSetAttributeGlobal");
}

}  // namespace flyt::client::hooks
