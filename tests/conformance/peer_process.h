// PeerProcess: another process with the same driver, that does what a test tells it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/fd.h"
#include "cuda/types.h"

namespace flyt::conformance {

using HandleBytes = std::array<char, CU_IPC_HANDLE_SIZE>;

// It has the primary context of device 0 and a stream. Ends with the object.
class PeerProcess {
 public:
  PeerProcess();
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Works with that device from then on.
  CUresult use_device(CUdevice device);
  // Opens memory (cuIpcOpenMemHandle), or imports and maps it; the others then work on it.
  CUresult open(const HandleBytes& handle);
  CUresult import(int file, std::size_t bytes);
  CUresult close();
  CUresult read(std::uint32_t& word);
  // Adds one to the first `words` words with a kernel, and waits.
  CUresult add_one(std::uint32_t words);
  // Makes memory of its own whose first word is `word`, and hands it out.
  CUresult make(std::size_t bytes, std::uint32_t word, Fd& file);
  // Imports a pool, and a pointer of it (cuMemPoolImportPointer); an allocation from the pool; and
  // the pointer's end.
  CUresult import_pool(int file);
  CUresult import_pointer(const HandleBytes& handle);
  // Opens the pool to a device.
  CUresult open_pool_to(CUdevice device);
  CUresult allocate_from_pool();
  CUresult free_pointer();
  CUresult open_event(const HandleBytes& handle);
  // Lets its stream wait for the event and then copy the first word out; whether it is still
  // waiting.
  CUresult wait_for_event();
  // The word, when the stream is done.
  CUresult finish(std::uint32_t& word);

  // The other side: the life of such a process.
  static int serve();

 private:
  struct Order;
  CUresult tell(const Order& order, int file, std::uint32_t* word, Fd* received);

  Fd line_;
  int process_ = -1;
};

// Whether this process was started as one, and its life then.
bool is_peer();
int serve_as_peer();

}  // namespace flyt::conformance
