#include "base/listening.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace flyt {
namespace {

TEST(ListeningAdvice, IsGivenWhereTheAddressIsTakenAndNowhereElse) {
  const Error taken = system_error("tcp://a:1: bind", EADDRINUSE);
  const Error advised = with_listening_advice(taken, "--listen");
  EXPECT_EQ(advised.code, taken.code);
  EXPECT_EQ(advised.message, taken.message +
                                 "; another process listens there: end that, or name another"
                                 " address with --listen");
  const Error path = with_listening_advice(system_error("unix:///a: bind", EADDRINUSE), "--listen");
  EXPECT_NE(path.message.find("or a file has that name: end or remove that, or name another"),
            std::string::npos);
  const Error other = system_error("tcp://a:1: bind", EACCES);
  EXPECT_EQ(with_listening_advice(other, "--listen").message, other.message);
}

}  // namespace
}  // namespace flyt
