#include "control/grpc/status.h"

#include <gtest/gtest.h>

namespace flyt::control {
namespace {

TEST(GrpcStatus, ErrorsComeOutAsTheyWentIn) {
  for (const ErrorCode code :
       {ErrorCode::kInvalid, ErrorCode::kLimit, ErrorCode::kNotFound, ErrorCode::kUnsupported,
        ErrorCode::kLost, ErrorCode::kDenied, ErrorCode::kSystem}) {
    const grpc::Status status = status_of({code, "why"});
    EXPECT_EQ(error_code_of(status.error_code()), code);
    EXPECT_EQ(status.error_message(), "why");
  }
  EXPECT_EQ(error_code_of(status_of({ErrorCode::kTimeout, ""}).error_code()), ErrorCode::kLost);
}

TEST(GrpcStatus, OneWhoCannotBeReachedIsNamed) {
  const grpc::Status away(grpc::StatusCode::UNAVAILABLE, "no route");
  EXPECT_EQ(error_of(away, "node n1", "flyt-node-manager").message,
            "node n1: no route; does flyt-node-manager run there, and is this user or certificate"
            " allowed?");
  const grpc::Status late(grpc::StatusCode::DEADLINE_EXCEEDED, "late");
  EXPECT_EQ(error_of(late, "node n1", "flyt-node-manager").message, "node n1: no answer in time");
  EXPECT_EQ(error_of(late, "node n1", "flyt-node-manager").code, ErrorCode::kLost);
}

}  // namespace
}  // namespace flyt::control
