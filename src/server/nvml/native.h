// Native: NVIDIA's NVML on the server's machine, and which of its GPUs are ours.
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "driver/nvml_load.h"
#include "server/nvml/fleet.h"

namespace flyt::server::nvml {

// Belongs to one thread.
class Native {
 public:
  // Starts NVML and looks the GPUs up by their UUIDs. Where there is none, or where one GPU is not
  // known to it, everything answers NVML_ERROR_NOT_SUPPORTED.
  Native(const Fleet& fleet, const Log& log);
  // The same with a table in place of the machine's own.
  Native(const Fleet& fleet, const Log& log, const driver::NvmlTable& table);

  bool present() const { return present_; }
  const driver::NvmlTable& table() const { return table_; }
  // Null if NVML is not there.
  nvmlDevice_t device(std::uint32_t index) const {
    return index < devices_.size() ? devices_[index] : nullptr;
  }
  // Empty if NVML is not there.
  std::string driver_version() const;
  std::string nvml_version() const;

 private:
  void start(const Fleet& fleet, const Log& log);

  driver::NvmlTable table_;
  std::vector<nvmlDevice_t> devices_;
  bool present_ = false;
};

}  // namespace flyt::server::nvml
