#include "control/grpc/channel.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace flyt::control {
namespace {

std::vector<const char*> variables() {
  std::vector<const char*> all;
  for (char** one = ::environ; *one != nullptr; ++one) all.push_back(*one);
  return all;
}

// Other threads may be reading it.
TEST(GrpcChannel, LeavesTheEnvironmentAlone) {
  EXPECT_STREQ("native", std::getenv("GRPC_DNS_RESOLVER"));
  char** const place = ::environ;
  const std::vector<const char*> before = variables();
  EXPECT_NE(open_clear_channel("127.0.0.1:1", {}), nullptr);
  EXPECT_NE(open_clear_channel("unix:///nowhere", {}), nullptr);
  EXPECT_EQ(place, ::environ);
  EXPECT_EQ(before, variables());
}

}  // namespace
}  // namespace flyt::control
