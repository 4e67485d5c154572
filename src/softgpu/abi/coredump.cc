// GPU core dumps: none is made, and that is said; the settings are kept.
#include "softgpu/abi/enter.h"

using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  return with_context([&](Driver& driver, Context& context) {
    return driver.core_dumps().get(to_handle<CUcontext>(context.handle()), attrib, value, size);
  });
}

CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  return with_driver(
      [&](Driver& driver) { return driver.core_dumps().get(nullptr, attrib, value, size); });
}

CUresult cuCoredumpSetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  return with_context([&](Driver& driver, Context& context) {
    return driver.core_dumps().set(to_handle<CUcontext>(context.handle()), attrib, value, size);
  });
}

CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  return with_driver(
      [&](Driver& driver) { return driver.core_dumps().set(nullptr, attrib, value, size); });
}

}  // extern "C"
