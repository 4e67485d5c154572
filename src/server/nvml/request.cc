#include "server/nvml/request.h"

#include <string>
#include <utility>

namespace flyt::server::nvml {

Request::Request(Request&& other) noexcept
    : monitor_(other.monitor_),
      sequence_(other.sequence_),
      payload_(other.payload_),
      answered_(std::exchange(other.answered_, true)) {}

Request::~Request() {
  if (!answered_) send(NVML_ERROR_UNKNOWN, {});
}

bool Request::index(nvmlDevice_t handle, std::uint32_t& index) const {
  const auto count = static_cast<std::uint32_t>(monitor().fleet.gpus.size());
  index = flyt::nvml::index_of(handle, count);
  return index < count;
}

bool Request::resolve(nvmlDevice_t& handle) const {
  std::uint32_t found = 0;
  if (!index(handle, found)) return false;
  handle = monitor().native.device(found);
  return true;
}

void Request::send(nvmlReturn_t result, Bytes fields) {
  answered_ = true;
  monitor().endpoint.reply(sequence_, static_cast<std::uint32_t>(result), fields);
}

void Request::end_malformed(std::string_view command) {
  answered_ = true;
  monitor().endpoint.end(wire::EndedCode::kProtocolViolation, "malformed " + std::string(command));
}

}  // namespace flyt::server::nvml
