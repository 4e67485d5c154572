// The log of the driver's errors: here, of the calls that were refused.
#include "client/hooks_logs.h"

#include "client/call.h"

namespace flyt::client::hooks {

CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void* userData,
                                CUlogsCallbackHandle* callback_out) {
  return session().code().driver_log.register_callback(callbackFunc, userData, callback_out);
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  return session().code().driver_log.unregister_callback(callback);
}

CUresult cuLogsCurrent(CUlogIterator* iterator_out, unsigned int flags) {
  return session().code().driver_log.current(iterator_out, flags);
}

CUresult cuLogsDumpToFile(CUlogIterator* iterator, const char* pathToFile, unsigned int flags) {
  return session().code().driver_log.dump_to_file(iterator, pathToFile, flags);
}

CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size,
                            unsigned int flags) {
  return session().code().driver_log.dump_to_memory(iterator, buffer, size, flags);
}

}  // namespace flyt::client::hooks
