#include "control/daemon/serving.h"

#include "base/listening.h"
#include "transport/transport.h"

namespace flyt::control {

Error cannot_serve(std::string_view key, const std::string& address) {
  const std::string front = std::string(key) + ": cannot serve at " + address + ": ";
  const auto url = transport::parse_url("tcp://" + address);
  if (!url) return {url.error().code, front + url.error().message};
  // Who tries it is told more.
  const auto listener = transport::listen(*url);
  if (listener) return {ErrorCode::kSystem, front + "a certificate or a key is bad"};
  Error error = with_listening_advice(listener.error(), key);
  error.message = front + error.message;
  return error;
}

}  // namespace flyt::control
