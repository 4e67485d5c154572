#include "control/grpc/status.h"

#include "base/text.h"
#include "base/wall_clock.h"

namespace flyt::control {
namespace {

// Details of every status of ours: who asks knows that a manager has answered, and not gRPC.
constexpr const char* kTold = "told";
// As much as gRPC takes of one.
constexpr std::size_t kMessageBytesMax = 8 << 10;

grpc::StatusCode code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case ErrorCode::kLimit:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case ErrorCode::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case ErrorCode::kUnsupported:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case ErrorCode::kLost:
    case ErrorCode::kTimeout:
      return grpc::StatusCode::UNAVAILABLE;
    case ErrorCode::kDenied:
      return grpc::StatusCode::ALREADY_EXISTS;
    case ErrorCode::kSystem:
      return grpc::StatusCode::INTERNAL;
  }
  return grpc::StatusCode::INTERNAL;
}

// What gRPC puts before the reason tells nobody more.
std::string own_words(std::string said) {
  for (const std::string_view front :
       {"failed to connect to all addresses; last error: ",
        "Getting metadata from plugin failed with error: ", "UNKNOWN: ", "UNAVAILABLE: "}) {
    if (said.starts_with(front)) said.erase(0, front.size());
  }
  return said;
}

}  // namespace

grpc::Status status_of(const Error& error) { return {code_of(error.code), error.message, kTold}; }

ErrorCode error_code_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::INVALID_ARGUMENT:
      return ErrorCode::kInvalid;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return ErrorCode::kLimit;
    case grpc::StatusCode::NOT_FOUND:
      return ErrorCode::kNotFound;
    case grpc::StatusCode::FAILED_PRECONDITION:
      return ErrorCode::kUnsupported;
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return ErrorCode::kDenied;
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:
      return ErrorCode::kLost;
    default:
      return ErrorCode::kSystem;
  }
}

std::string words_of(const grpc::Status& status) {
  return own_words(plain_text(status.error_message(), kMessageBytesMax));
}

Error error_of(const grpc::Status& status, const std::string& who, std::string_view program) {
  const ErrorCode code = error_code_of(status.error_code());
  const std::string said = words_of(status);
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return {code, who + " answers, but is no " + std::string(program) + ", or is an older one"};
  }
  if (code != ErrorCode::kLost) return {code, said};
  if (status.error_details() == kTold) return {code, who + ": " + said};
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return {code, who + ": no answer in time"};
  }
  if (said.find("certificate verify failed") != std::string::npos) {
    return {code, who + ": " + said + "; its certificate is not signed by the authority that" +
                      " is believed here, has ended, or is of another name"};
  }
  return {code, who + ": " + said + "; does " + std::string(program) +
                    " run there, and is this user or certificate allowed?"};
}

gpr_timespec time_in(std::chrono::milliseconds time) {
  return gpr_time_from_millis(unix_milliseconds() + time.count(), GPR_CLOCK_REALTIME);
}

}  // namespace flyt::control
