// Texts that NVIDIA's NVML has of a GPU.
#include "server/hooks_nvml_device.h"

#include <array>

#include "nvml/text.h"

namespace flyt::server::nvml::hooks {
namespace {

using flyt::nvml::DeviceText;

nvmlReturn_t ask(const driver::NvmlTable& nvml, nvmlDevice_t device, DeviceText what, char* out,
                 unsigned int length) {
  switch (what) {
    case DeviceText::kSerial:
      return nvml.nvmlDeviceGetSerial(device, out, length);
    case DeviceText::kBoardPartNumber:
      return nvml.nvmlDeviceGetBoardPartNumber(device, out, length);
    case DeviceText::kVbiosVersion:
      return nvml.nvmlDeviceGetVbiosVersion(device, out, length);
    case DeviceText::kInforomImageVersion:
      return nvml.nvmlDeviceGetInforomImageVersion(device, out, length);
    case DeviceText::kGspFirmwareVersion:
      return nvml.nvmlDeviceGetGspFirmwareVersion(device, out);
  }
  return NVML_ERROR_NOT_SUPPORTED;
}

}  // namespace

void nvml_device_text(Request request, const commands::NvmlDeviceText& command) {
  std::array<char, commands::NvmlDeviceText::Reply::kTextBytesMax> text{};
  nvmlDevice_t device = command.device;
  commands::NvmlDeviceText::Reply reply;
  if (!request.resolve(device)) return request.reply(NVML_ERROR_INVALID_ARGUMENT, reply);
  const auto length = static_cast<unsigned int>(text.size());
  const nvmlReturn_t result =
      ask(request.driver(), device, static_cast<DeviceText>(command.what), text.data(), length);
  text.back() = '\0';
  reply.text = text.data();
  request.reply(result, reply);
}

}  // namespace flyt::server::nvml::hooks
