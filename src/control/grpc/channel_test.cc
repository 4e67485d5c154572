#include "control/grpc/channel.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "control/pki/certificate.h"

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

TEST(GrpcChannel, AnAddressIsAPathOrAHostAndAPort) {
  for (const char* good : {"unix:///a", "a:1", "[::1]:7700"}) EXPECT_TRUE(check_address(good).ok());
  for (const char* bad : {"/a", "a", "tcp://a:1", "a:b", ""}) {
    const Status status = check_address(bad);
    ASSERT_FALSE(status.ok()) << bad;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalid);
    EXPECT_NE(status.error().message.find("unix:///PATH or HOST:PORT"), std::string::npos);
  }
}

// gRPC would only say that there is no address.
TEST(GrpcChannel, AKeyOfAnotherCertificateIsTold) {
  const std::string folder = ::testing::TempDir();
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder + name) << text;
    return folder + name;
  };
  const auto ca = pki::make_authority("site", 1);
  ASSERT_TRUE(ca.ok());
  const auto one = pki::issue(*ca, {"a", "admin", {}, 1});
  const auto other = pki::issue(*ca, {"b", "admin", {}, 1});
  ASSERT_TRUE(one.ok() && other.ok());
  const TlsFiles files{write("a.crt", one->certificate), write("b.key", other->key),
                       write("ca.crt", ca->certificate)};
  const auto channel = open_channel("localhost:1", files, ServerRole::kAny, {});
  ASSERT_FALSE(channel.ok());
  EXPECT_NE(channel.error().message.find("b.key: the key is not that"), std::string::npos);
  EXPECT_FALSE(server_credentials(files).ok());
}

}  // namespace
}  // namespace flyt::control
