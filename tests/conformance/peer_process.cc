// PeerProcess: another process with the same driver, that does what a test tells it.
#include "tests/conformance/peer_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

extern char** environ;

namespace flyt::conformance {
namespace {

constexpr const char* kPeerVariable = "FLYT_CONFORMANCE_PEER";
constexpr int kLine = 3;

enum class What : std::uint32_t {
  kUseDevice,
  kOpen,
  kImport,
  kClose,
  kRead,
  kAddOne,
  kMake,
  kImportPool,
  kImportPointer,
  kOpenPool,
  kAllocateFromPool,
  kFreePointer,
  kOpenEvent,
  kWaitForEvent,
  kFinish,
};

struct Answer {
  CUresult result{};
  std::uint32_t word = 0;
};

template <class T>
bool send_with_file(int line, const T& message, int file) {
  iovec part{const_cast<T*>(&message), sizeof message};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (file >= 0) {
    header.msg_control = space;
    header.msg_controllen = sizeof space;
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(control), &file, sizeof file);
  }
  return ::sendmsg(line, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
}

template <class T>
bool receive_with_file(int line, T& message, Fd& file) {
  iovec part{&message, sizeof message};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = space;
  header.msg_controllen = sizeof space;
  if (::recvmsg(line, &header, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof message)) {
    return false;
  }
  if (const cmsghdr* control = CMSG_FIRSTHDR(&header)) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(control), sizeof number);
    file = Fd(number);
  }
  return true;
}

}  // namespace

struct PeerProcess::Order {
  What what{};
  HandleBytes handle{};
  std::uint64_t number = 0;
  std::uint32_t word = 0;

  // What the peer itself does with it.
  class Hands;
};

class PeerProcess::Order::Hands {
 public:
  Hands() {
    cu().cuInit(0);
    cu().cuDevicePrimaryCtxRetain(&context_, 0);
    cu().cuCtxSetCurrent(context_);
    cu().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    word_ = std::make_unique<PinnedMemory>(4);
  }

  Answer obey(const Order& order, Fd file, Fd& out) {
    Answer answer;
    switch (order.what) {
      case What::kUseDevice:
        answer.result =
            cu().cuDevicePrimaryCtxRetain(&context_, static_cast<CUdevice>(order.number));
        if (answer.result == CUDA_SUCCESS) answer.result = cu().cuCtxSetCurrent(context_);
        break;
      case What::kOpen: {
        CUipcMemHandle handle;
        std::memcpy(handle.reserved, order.handle.data(), sizeof handle.reserved);
        answer.result =
            cu().cuIpcOpenMemHandle_v2(&memory_, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        break;
      }
      case What::kImport: {
        CUmemGenericAllocationHandle allocation = 0;
        answer.result = cu().cuMemImportFromShareableHandle(
            &allocation, reinterpret_cast<void*>(static_cast<std::intptr_t>(file.get())),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        if (answer.result == CUDA_SUCCESS) answer.result = map(allocation, order.number);
        break;
      }
      case What::kClose:
        answer.result = cu().cuIpcCloseMemHandle(memory_);
        break;
      case What::kRead:
        answer.result = cu().cuMemcpyDtoH_v2(&answer.word, memory_, 4);
        break;
      case What::kAddOne: {
        const Module module(kBasicPtx);
        answer.result = launch(module.function("add_one"), (order.word + 255) / 256, 256, nullptr,
                               memory_, order.word);
        if (answer.result == CUDA_SUCCESS) answer.result = cu().cuCtxSynchronize();
        break;
      }
      case What::kMake:
        answer.result = make(order.number, order.word, out);
        break;
      case What::kImportPool:
      case What::kImportPointer:
      case What::kOpenPool:
      case What::kAllocateFromPool:
      case What::kFreePointer:
        answer.result = obey_about_pools(order, file);
        break;
      case What::kOpenEvent: {
        CUipcEventHandle handle;
        std::memcpy(handle.reserved, order.handle.data(), sizeof handle.reserved);
        answer.result = cu().cuIpcOpenEventHandle(&event_, handle);
        break;
      }
      case What::kWaitForEvent:
        answer.result = cu().cuStreamWaitEvent(stream_, event_, 0);
        if (answer.result == CUDA_SUCCESS) {
          answer.result = cu().cuMemcpyDtoHAsync_v2(word_->data(), memory_, 4, stream_);
        }
        if (answer.result == CUDA_SUCCESS) answer.result = cu().cuStreamQuery(stream_);
        break;
      case What::kFinish:
        answer.result = cu().cuStreamSynchronize(stream_);
        answer.word = *word_->as<std::uint32_t>();
        break;
    }
    return answer;
  }

 private:
  CUresult obey_about_pools(const Order& order, const Fd& file) {
    CUresult result = CUDA_SUCCESS;
    if (order.what == What::kImportPool) {
      result = cu().cuMemPoolImportFromShareableHandle(
          &pool_, reinterpret_cast<void*>(static_cast<std::intptr_t>(file.get())),
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    } else if (order.what == What::kImportPointer) {
      CUmemPoolPtrExportData data;
      std::memcpy(data.reserved, order.handle.data(), sizeof data.reserved);
      result = cu().cuMemPoolImportPointer(&memory_, pool_, &data);
    } else if (order.what == What::kOpenPool) {
      CUmemAccessDesc access{};
      access.location = {CU_MEM_LOCATION_TYPE_DEVICE, static_cast<CUdevice>(order.number)};
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      result = cu().cuMemPoolSetAccess(pool_, &access, 1);
    } else if (order.what == What::kAllocateFromPool) {
      CUdeviceptr own = 0;
      result = cu().cuMemAllocFromPoolAsync(&own, 4096, pool_, stream_);
    } else {
      result = cu().cuMemFreeAsync(memory_, stream_);
      if (result == CUDA_SUCCESS) result = cu().cuStreamSynchronize(stream_);
    }
    return result;
  }

  CUresult map(CUmemGenericAllocationHandle allocation, std::uint64_t bytes) {
    CUresult result = cu().cuMemAddressReserve(&memory_, bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) result = cu().cuMemMap(memory_, bytes, 0, allocation, 0);
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (result == CUDA_SUCCESS) result = cu().cuMemSetAccess(memory_, bytes, &access, 1);
    if (result == CUDA_SUCCESS) result = cu().cuMemRelease(allocation);
    return result;
  }

  CUresult make(std::uint64_t bytes, std::uint32_t word, Fd& out) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle allocation = 0;
    CUresult result = cu().cuMemCreate(&allocation, bytes, &properties, 0);
    int number = -1;
    if (result == CUDA_SUCCESS) {
      result = cu().cuMemExportToShareableHandle(&number, allocation,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    }
    out = Fd(number);
    if (result == CUDA_SUCCESS) result = map(allocation, bytes);
    if (result == CUDA_SUCCESS) result = cu().cuMemcpyHtoD_v2(memory_, &word, 4);
    return result == CUDA_SUCCESS ? cu().cuCtxSynchronize() : result;
  }

  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUdeviceptr memory_ = 0;
  CUmemoryPool pool_ = nullptr;
  std::unique_ptr<PinnedMemory> word_;
};

PeerProcess::PeerProcess() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  line_ = Fd(ends[0]);
  const Fd theirs(ends[1]);
  const timeval patience{kDeadlineSeconds, 0};
  ::setsockopt(line_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::vector<std::string> variables = {std::string(kPeerVariable) + "=1"};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!text.starts_with("FLYT_CONFORMANCE_TRANSCRIPT=") &&
        !text.starts_with("FLYT_CONFORMANCE_WORKER=")) {
      variables.push_back(text);
    }
  }
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe";
  char* arguments[] = {program.data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), kLine);
  if (::posix_spawn(&process_, program.c_str(), &actions, nullptr, arguments, environment.data()) !=
      0) {
    process_ = -1;
  }
  ::posix_spawn_file_actions_destroy(&actions);
}

// It leaves when its line ends.
PeerProcess::~PeerProcess() {
  line_.close();
  if (process_ > 0) ::waitpid(process_, nullptr, 0);
}

CUresult PeerProcess::tell(const Order& order, int file, std::uint32_t* word, Fd* received) {
  Answer answer{CUDA_ERROR_UNKNOWN, 0};
  Fd got;
  if (!send_with_file(line_.get(), order, file) || !receive_with_file(line_.get(), answer, got)) {
    ADD_FAILURE() << "the other process is gone or hangs";
    return CUDA_ERROR_UNKNOWN;
  }
  if (word != nullptr) *word = answer.word;
  if (received != nullptr) *received = std::move(got);
  return answer.result;
}

CUresult PeerProcess::use_device(CUdevice device) {
  return tell({.what = What::kUseDevice, .number = static_cast<std::uint64_t>(device)}, -1, nullptr,
              nullptr);
}
CUresult PeerProcess::open(const HandleBytes& handle) {
  return tell({.what = What::kOpen, .handle = handle}, -1, nullptr, nullptr);
}
CUresult PeerProcess::import(int file, std::size_t bytes) {
  return tell({.what = What::kImport, .number = bytes}, file, nullptr, nullptr);
}
CUresult PeerProcess::close() { return tell({.what = What::kClose}, -1, nullptr, nullptr); }
CUresult PeerProcess::read(std::uint32_t& word) {
  return tell({.what = What::kRead}, -1, &word, nullptr);
}
CUresult PeerProcess::add_one(std::uint32_t words) {
  return tell({.what = What::kAddOne, .word = words}, -1, nullptr, nullptr);
}
CUresult PeerProcess::make(std::size_t bytes, std::uint32_t word, Fd& file) {
  return tell({.what = What::kMake, .number = bytes, .word = word}, -1, nullptr, &file);
}
CUresult PeerProcess::import_pool(int file) {
  return tell({.what = What::kImportPool}, file, nullptr, nullptr);
}
CUresult PeerProcess::import_pointer(const HandleBytes& handle) {
  return tell({.what = What::kImportPointer, .handle = handle}, -1, nullptr, nullptr);
}
CUresult PeerProcess::open_pool_to(CUdevice device) {
  return tell({.what = What::kOpenPool, .number = static_cast<std::uint64_t>(device)}, -1, nullptr,
              nullptr);
}
CUresult PeerProcess::allocate_from_pool() {
  return tell({.what = What::kAllocateFromPool}, -1, nullptr, nullptr);
}
CUresult PeerProcess::free_pointer() {
  return tell({.what = What::kFreePointer}, -1, nullptr, nullptr);
}
CUresult PeerProcess::open_event(const HandleBytes& handle) {
  return tell({.what = What::kOpenEvent, .handle = handle}, -1, nullptr, nullptr);
}
CUresult PeerProcess::wait_for_event() {
  return tell({.what = What::kWaitForEvent}, -1, nullptr, nullptr);
}
CUresult PeerProcess::finish(std::uint32_t& word) {
  return tell({.what = What::kFinish}, -1, &word, nullptr);
}

bool is_peer() { return std::getenv(kPeerVariable) != nullptr; }

int serve_as_peer() {
  const Unrecorded quiet;
  return PeerProcess::serve();
}

int PeerProcess::serve() {
  Order::Hands hands;
  for (;;) {
    Order order;
    Fd file;
    if (!receive_with_file(kLine, order, file)) return 0;
    Fd out;
    const Answer answer = hands.obey(order, std::move(file), out);
    if (!send_with_file(kLine, answer, out.valid() ? out.get() : -1)) return 0;
  }
}

}  // namespace flyt::conformance
