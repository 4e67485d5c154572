// Request: one question of a monitor's client, and the way to answer it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "driver/nvml_table.h"
#include "rpc/endpoint.h"
#include "server/nvml/monitor.h"
#include "wire/fields.h"

namespace flyt::server::nvml {

// Lives while its command is handled, and is answered once. Destroyed unanswered, it answers
// NVML_ERROR_UNKNOWN: a client never waits in vain.
class Request {
 public:
  Request(Monitor& monitor, const rpc::Command& command)
      : monitor_(&monitor), sequence_(command.header.sequence), payload_(command.payload) {}
  Request(Request&& other) noexcept;
  Request& operator=(Request&&) = delete;
  ~Request();

  const MonitorParts& monitor() const { return monitor_->parts(); }
  // NVIDIA's NVML; where there is none, all of it answers NVML_ERROR_NOT_SUPPORTED.
  const driver::NvmlTable& driver() const { return monitor().native.table(); }

  // Reads the payload. False: the session has been ended, the handler just returns.
  template <class Command>
  bool decode(Command& command) {
    if (wire::decode(payload_, command)) return true;
    end_malformed(Command::kName);
    return false;
  }

  // Which GPU a client's handle means; false if none.
  bool index(nvmlDevice_t handle, std::uint32_t& index) const;
  // Client's handle -> NVML's, in place; null where NVML is not there. False if it means no GPU.
  bool resolve(nvmlDevice_t& handle) const;

  void reply(nvmlReturn_t result) { send(result, {}); }
  // Views in the fields need to live only during this call. What failed has no values: not even
  // those that NVML left in its variables.
  template <class Reply>
  void reply(nvmlReturn_t result, const Reply& fields) {
    const Reply nothing{};
    const Reply& told = result == NVML_SUCCESS ? fields : nothing;
    std::vector<std::byte> bytes(wire::encoded_size(told));
    Writer writer(bytes);
    wire::encode(writer, told);
    send(result, bytes);
  }

 private:
  void send(nvmlReturn_t result, Bytes fields);
  void end_malformed(std::string_view command);

  Monitor* monitor_;
  std::uint64_t sequence_;
  Bytes payload_;
  bool answered_ = false;
};

}  // namespace flyt::server::nvml
