#include "tests/conformance/fixture.h"

#include <chrono>
#include <thread>

#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

void expect_ok(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) ADD_FAILURE() << what << ": " << name_of(result);
}

CUcontext primary_context() {
  static const CUcontext context = [] {
    CUcontext made = nullptr;
    expect_ok(cu().cuDevicePrimaryCtxRetain(&made, 0), "cuDevicePrimaryCtxRetain");
    return made;
  }();
  return context;
}

}  // namespace

bool eventually(const std::function<bool()>& done) {
  const Unrecorded quiet;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kDeadlineSeconds);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

void DriverTest::SetUp() {
  const Unrecorded quiet;
  CU_OK(cu().cuInit(0));
  CU_OK(cu().cuCtxSetCurrent(nullptr));
}

void DriverTest::TearDown() {
  const Unrecorded quiet;
  cu().cuCtxSetCurrent(nullptr);
}

void ContextTest::SetUp() {
  const Unrecorded quiet;
  CU_OK(cu().cuInit(0));
  context = primary_context();
  ASSERT_NE(nullptr, context);
  CU_OK(cu().cuCtxSetCurrent(context));
}

int attribute(CUdevice_attribute which) {
  const Unrecorded quiet;
  int value = -1;
  expect_ok(cu().cuDeviceGetAttribute(&value, which, 0), "cuDeviceGetAttribute");
  return value;
}

bool has_peer() {
  const Unrecorded quiet;
  int count = 0;
  int reaches = 0;
  cu().cuDeviceGetCount(&count);
  if (count > 1) cu().cuDeviceCanAccessPeer(&reaches, 1, 0);
  return reaches != 0;
}

DeviceMemory::DeviceMemory(std::size_t bytes) : size_(bytes) {
  const Unrecorded quiet;
  expect_ok(cu().cuMemAlloc_v2(&address_, bytes), "cuMemAlloc");
}

DeviceMemory::~DeviceMemory() {
  const Unrecorded quiet;
  cu().cuMemFree_v2(address_);
}

void DeviceMemory::fill(std::uint8_t value) const {
  const Unrecorded quiet;
  expect_ok(cu().cuMemsetD8_v2(address_, value, size_), "cuMemsetD8");
  expect_ok(cu().cuCtxSynchronize(), "cuCtxSynchronize");
}

void DeviceMemory::read_into(void* out, std::size_t bytes) const {
  const Unrecorded quiet;
  expect_ok(cu().cuMemcpyDtoH_v2(out, address_, bytes), "cuMemcpyDtoH");
}

void DeviceMemory::write_from(const void* in, std::size_t bytes) const {
  const Unrecorded quiet;
  expect_ok(cu().cuMemcpyHtoD_v2(address_, in, bytes), "cuMemcpyHtoD");
  // From pageable memory it may return before the bytes have arrived; other streams do not wait.
  expect_ok(cu().cuStreamSynchronize(CU_STREAM_LEGACY), "cuStreamSynchronize");
}

PinnedMemory::PinnedMemory(std::size_t bytes, unsigned flags) {
  const Unrecorded quiet;
  expect_ok(cu().cuMemHostAlloc(&memory_, bytes, flags), "cuMemHostAlloc");
}

PinnedMemory::~PinnedMemory() {
  const Unrecorded quiet;
  cu().cuMemFreeHost(memory_);
}

Stream::Stream(unsigned flags, int priority) {
  const Unrecorded quiet;
  expect_ok(cu().cuStreamCreateWithPriority(&stream_, flags, priority), "cuStreamCreate");
}

Stream::~Stream() {
  const Unrecorded quiet;
  cu().cuStreamDestroy_v2(stream_);
}

Event::Event(unsigned flags) {
  const Unrecorded quiet;
  expect_ok(cu().cuEventCreate(&event_, flags), "cuEventCreate");
}

Event::~Event() {
  const Unrecorded quiet;
  cu().cuEventDestroy_v2(event_);
}

Module::Module(const std::string& ptx) {
  const Unrecorded quiet;
  expect_ok(cu().cuModuleLoadData(&module_, ptx.c_str()), "cuModuleLoadData");
}

Module::~Module() {
  const Unrecorded quiet;
  cu().cuModuleUnload(module_);
}

CUfunction Module::function(const char* name) const {
  const Unrecorded quiet;
  CUfunction function = nullptr;
  expect_ok(cu().cuModuleGetFunction(&function, module_, name), name);
  return function;
}

CUdeviceptr Module::global(const char* name) const {
  const Unrecorded quiet;
  CUdeviceptr address = 0;
  expect_ok(cu().cuModuleGetGlobal_v2(&address, nullptr, module_, name), name);
  return address;
}

// Greater than any; the driver takes its greatest.
constexpr int kUrgent = -100;

Gate::Gate()
    : module_(kGatePtx),
      watch_(module_.function("watch")),
      word_(4),
      one_(4),
      own_(CU_STREAM_NON_BLOCKING, kUrgent) {
  *one_.as<std::uint32_t>() = 1;
  word_.fill(0);
}

Gate::~Gate() { open(); }

void Gate::close(CUstream stream) {
  const Unrecorded quiet;
  expect_ok(launch(watch_, 1, 1, stream, static_cast<CUdeviceptr>(word_)), "gate");
}

void Gate::open() {
  const Unrecorded quiet;
  expect_ok(cu().cuMemcpyHtoDAsync_v2(word_, one_.data(), 4, own_), "gate");
  expect_ok(cu().cuStreamSynchronize(own_), "gate");
}

}  // namespace flyt::conformance
