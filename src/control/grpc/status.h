// Errors on their way through gRPC, and its times.
#pragma once

#include <grpc/support/time.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"

namespace flyt::control {

// A server's error, for its client.
grpc::Status status_of(const Error& error);

// What a client makes of it. Whoever cannot be reached, or does not answer in time, is kLost.
ErrorCode error_code_of(grpc::StatusCode code);

// Its words, without what gRPC puts before them; they may go to a terminal or into a store.
std::string words_of(const grpc::Status& status);

// The same with its words, which may go to a terminal or into a store. Of one who cannot be
// reached: "WHO: ...; does PROGRAM run there, ...?"
Error error_of(const grpc::Status& status, const std::string& who, std::string_view program);

// As gRPC takes deadlines.
gpr_timespec time_in(std::chrono::milliseconds time);

}  // namespace flyt::control
