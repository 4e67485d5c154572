// An NVML of three GPUs, as far as a node manager asks it. FLYT_FAKE_NVML has a letter for each: o,
// it works; l, it is lost; r, it needs a reset; u, nobody knows what it has; R, B and D, it works,
// and the driver says that it has to be reset, its machine restarted, or reset when that suits; n,
// it works and has no events; h, whoever asks for its memory waits for a writer of
// FLYT_FAKE_NVML_HANG. What is written to FLYT_FAKE_NVML_XIDS, a FIFO, are events: FakeEvent.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/bytes.h"
#include "control/node/testing/fake_nvml.h"
#include "nvml/functions.h"

namespace {

using flyt::node::FakeEvent;
using flyt::node::kFakeGpus;

constexpr unsigned int kRecoveryAction = 230;

char letter_of(std::uint64_t gpu) {
  const char* const states = std::getenv("FLYT_FAKE_NVML");
  return states == nullptr || gpu >= kFakeGpus ? '\0' : states[gpu];
}

nvmlReturn_t state_of(std::uint64_t gpu) {
  switch (letter_of(gpu)) {
    case '\0':
      return NVML_ERROR_UNINITIALIZED;
    case 'l':
      return NVML_ERROR_GPU_IS_LOST;
    case 'r':
      return NVML_ERROR_RESET_REQUIRED;
    case 'u':
      return NVML_ERROR_UNKNOWN;
    default:
      return NVML_SUCCESS;
  }
}

// Handles beyond are others of the same GPUs.
std::uint64_t index_of(nvmlDevice_t device) {
  return (flyt::address_of(device) - 1) % flyt::node::kFakeOtherHandle;
}

nvmlDevice_t device_of(std::uint64_t handle) {
  return static_cast<nvmlDevice_t>(flyt::pointer_at(handle + 1));
}

int file_of(nvmlEventSet_t set) { return static_cast<int>(flyt::address_of(set)); }

}  // namespace

extern "C" {

nvmlReturn_t nvmlInit_v2() { return NVML_SUCCESS; }
nvmlReturn_t nvmlShutdown() { return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = kFakeGpus;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  *device = device_of(index);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  std::snprintf(uuid, length, "GPU-%u", static_cast<unsigned>(index_of(device)));
  return state_of(index_of(device));
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  *memory = {};
  const char* const hang = std::getenv("FLYT_FAKE_NVML_HANG");
  // Opening waits for the other end.
  if (letter_of(index_of(device)) == 'h' && hang != nullptr) ::close(::open(hang, O_RDONLY));
  return state_of(index_of(device));
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  for (int i = 0; i < count; ++i) {
    const bool known = values[i].fieldId == kRecoveryAction;
    values[i].nvmlReturn = known ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    const char letter = letter_of(index_of(device));
    values[i].value.uiVal = letter == 'R' ? 1 : letter == 'B' ? 2 : letter == 'D' ? 4 : 0;
  }
  return state_of(index_of(device));
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  const char* const events = std::getenv("FLYT_FAKE_NVML_XIDS");
  if (events == nullptr) return NVML_ERROR_NOT_SUPPORTED;
  // Writing, too, so that it does not end when nobody else writes.
  const int file = ::open(events, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  *set = static_cast<nvmlEventSet_t>(flyt::pointer_at(static_cast<std::uint64_t>(file)));
  return file < 0 ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  ::close(file_of(set));
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long* types) {
  *types = letter_of(index_of(device)) == 'n' ? 0 : 0x1f;
  return state_of(index_of(device));
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set) {
  if (types != 8 || ::fcntl(file_of(set), F_GETFD) < 0) return NVML_ERROR_INVALID_ARGUMENT;
  return state_of(index_of(device));
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int timeout) {
  pollfd file{file_of(set), POLLIN, 0};
  FakeEvent event;
  if (::poll(&file, 1, static_cast<int>(timeout)) != 1) return NVML_ERROR_TIMEOUT;
  if (::read(file.fd, &event, sizeof event) != sizeof event) return NVML_ERROR_TIMEOUT;
  if (event.error != 0) return static_cast<nvmlReturn_t>(event.error);
  *data = {};
  data->device = device_of(event.handle);
  data->eventType = 8;
  data->eventData = event.xid;
  return NVML_SUCCESS;
}

}  // extern "C"
