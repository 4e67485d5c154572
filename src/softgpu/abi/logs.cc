// The log of the driver's errors: here, of kernels that failed.
#include "softgpu/abi/enter.h"

using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void* userData,
                                CUlogsCallbackHandle* callback_out) {
  return with_driver([&](Driver& driver) {
    return driver.driver_log().register_callback(callbackFunc, userData, callback_out);
  });
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  return with_driver(
      [&](Driver& driver) { return driver.driver_log().unregister_callback(callback); });
}

CUresult cuLogsCurrent(CUlogIterator* iterator_out, unsigned int flags) {
  return with_driver(
      [&](Driver& driver) { return driver.driver_log().current(iterator_out, flags); });
}

CUresult cuLogsDumpToFile(CUlogIterator* iterator, const char* pathToFile, unsigned int flags) {
  return with_driver([&](Driver& driver) {
    return driver.driver_log().dump_to_file(iterator, pathToFile, flags);
  });
}

CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size,
                            unsigned int flags) {
  return with_driver([&](Driver& driver) {
    return driver.driver_log().dump_to_memory(iterator, buffer, size, flags);
  });
}

}  // extern "C"
