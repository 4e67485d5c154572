// mmap() of flyt-server, for itself and for the libraries that it loads, the driver among them.
#include "server/memory/driver_ranges.h"

// ThreadSanitizer wants to see each mapping, and allows none where the ranges are.
#ifndef __SANITIZE_THREAD__

// The loader binds libraries' calls to these.
extern "C" {

// Both are one and the same here: off_t has 64 bits.
__attribute__((visibility("default"))) void* mmap(void* address, std::size_t bytes, int protection,
                                                  int flags, int file, off_t offset) noexcept {
  return flyt::server::map_memory(address, bytes, protection, flags, file, offset);
}
__attribute__((visibility("default"))) void* mmap64(void* address, std::size_t bytes,
                                                    int protection, int flags, int file,
                                                    off_t offset) noexcept {
  return flyt::server::map_memory(address, bytes, protection, flags, file, offset);
}

}  // extern "C"

#endif
