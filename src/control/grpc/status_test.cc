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

TEST(GrpcStatus, WhetherOneWhoAnswersIsThereIsNotAsked) {
  const grpc::Status told = status_of({ErrorCode::kLost, "etcd does not answer"});
  EXPECT_EQ(error_of(told, "cluster c1", "flyt-cluster-manager").message,
            "cluster c1: etcd does not answer");
}

TEST(GrpcStatus, WhatGrpcPutsBeforeTheReasonIsLeftOut) {
  const grpc::Status away(grpc::StatusCode::UNAVAILABLE,
                          "failed to connect to all addresses; last error: UNKNOWN: unix:/a: No"
                          " such file or directory");
  EXPECT_EQ(error_of(away, "node n1", "flyt-node-manager").message.find("node n1: unix:/a: No"),
            0u);
  EXPECT_EQ(words_of(away), "unix:/a: No such file or directory");
}

TEST(GrpcStatus, ACertificateOfAnotherAuthorityIsTold) {
  const grpc::Status away(grpc::StatusCode::UNAVAILABLE, "x: certificate verify failed");
  const Error error = error_of(away, "node n1", "flyt-node-manager");
  EXPECT_NE(error.message.find("not signed by the authority"), std::string::npos);
  EXPECT_EQ(error.code, ErrorCode::kLost);
}

// A node manager that is taken for a cluster's says nothing but that.
TEST(GrpcStatus, OneWhoDoesNotKnowTheCallIsAnotherProgram) {
  const grpc::Status unknown(grpc::StatusCode::UNIMPLEMENTED, "");
  EXPECT_EQ(error_of(unknown, "cluster c1", "flyt-cluster-manager").message,
            "cluster c1 answers, but is no flyt-cluster-manager, or is an older one");
}

}  // namespace
}  // namespace flyt::control
