#include "server/admin/request.h"

#include <string>
#include <utility>

namespace flyt::server::admin {

Request::Request(Request&& other) noexcept
    : controller_(other.controller_),
      sequence_(other.sequence_),
      payload_(other.payload_),
      answered_(std::exchange(other.answered_, true)) {}

Request::~Request() {
  if (!answered_) send(FLYT_ADMIN_FAILED, {});
}

void Request::send(FlytAdminResult result, Bytes fields) {
  answered_ = true;
  parts().endpoint.reply(sequence_, static_cast<std::uint32_t>(result), fields);
}

void Request::end_malformed(std::string_view command) {
  answered_ = true;
  parts().endpoint.end(wire::EndedCode::kProtocolViolation, "malformed " + std::string(command));
}

}  // namespace flyt::server::admin
