#include "control/daemon/page_token.h"

#include "base/hmac.h"
#include "control/settings/settings.h"

namespace flyt::control {
namespace {

Error denied(std::string message) { return {ErrorCode::kDenied, std::move(message)}; }

Result<std::string> token_in(const std::string& path) {
  auto text = read_file(path);
  if (!text) return denied("metrics.token cannot be read");
  const std::size_t end = text->find_last_not_of(" \t\r\n");
  text->resize(end == std::string::npos ? 0 : end + 1);
  if (text->size() < kPageTokenBytesMin || text->size() > kPageTokenBytesMax) {
    return denied("metrics.token names a file of " + std::to_string(text->size()) +
                  " bytes; expected one token of " + std::to_string(kPageTokenBytesMin) + " to " +
                  std::to_string(kPageTokenBytesMax));
  }
  return text;
}

}  // namespace

PageAdmission admit_token(std::string path) {
  return [path = std::move(path)](const PageRequest& request) -> Status {
    if (request.path == "/healthz") return {};
    if (path.empty()) {
      return denied(
          "this needs a token: name a file with one as metrics.token, and send it as"
          " Authorization: Bearer");
    }
    const auto token = token_in(path);
    if (!token) return token.error();
    const bool same = equal_in_constant_time(std::as_bytes(std::span(*token)),
                                             std::as_bytes(std::span(request.bearer)));
    return same ? Status()
                : denied("this needs the token of metrics.token as Authorization: Bearer");
  };
}

}  // namespace flyt::control
