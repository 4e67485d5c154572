#include "transport/url.h"

#include <gtest/gtest.h>

namespace flyt::transport {
namespace {

TEST(Url, ReadsEveryFormAndWritesItBack) {
  for (const char* text :
       {"unix:///run/flyt.sock", "unix:///@flyt", "tcp://10.0.0.7:9000", "tcp://gpu-host.example:0",
        "tcp://[::1]:65535", "tcp://h:1?delay=1ms", "unix:///run/x?delay=250us",
        "unix:///@flyt?delay=10s", "tcp://h:1?delay=1ms&code=pack", "unix:///run/x?code=store",
        "tcp://h:1?lanes=0", "tcp://h:1?delay=1ms&lanes=16&compress=on", "tcp://h:1?compress=off",
        "shm:///run/x?recover=off", "tcp://h:1?lanes=2&recover=replay"}) {
    const Result<Url> url = parse_url(text);
    ASSERT_TRUE(url.ok()) << url.error().message;
    EXPECT_EQ(to_string(*url), text);
  }
  EXPECT_EQ(parse_url("tcp://[::1]:80")->host, "::1");
  EXPECT_EQ(parse_url("unix:///@flyt")->path, "@flyt");
  EXPECT_EQ(parse_url("tcp://h:1?delay=1500us")->delay, std::chrono::microseconds(1500));
  EXPECT_EQ(to_string(*parse_url("tcp://h:1?delay=2000us")), "tcp://h:1?delay=2ms");
  EXPECT_EQ(to_string(*parse_url("tcp://h:1?delay=0ms")), "tcp://h:1");
}

TEST(Url, SaysWhatIsWrongAndWhatWouldBeRight) {
  for (const auto& [text, why] : {std::pair{"", "it is empty"},
                                  std::pair{"/run/flyt.sock", "the scheme is missing"},
                                  std::pair{"http://x:1", "unknown scheme"},
                                  std::pair{"unix://run/x", "absolute"},
                                  std::pair{"unix:///", "empty"},
                                  std::pair{"tcp://host", "the port is missing"},
                                  std::pair{"tcp://:80", "the host is empty"},
                                  std::pair{"tcp://host:", "not a number"},
                                  std::pair{"tcp://host:65536", "not a number"},
                                  std::pair{"tcp://host:-1", "not a number"},
                                  std::pair{"tcp://host:1x", "not a number"},
                                  std::pair{"tcp://::1:80", "brackets"},
                                  std::pair{"tcp://[::1:80", "']'"},
                                  std::pair{"tcp://[::1]80", "the port is missing"},
                                  std::pair{"tcp://a/b:80", "no host has"},
                                  std::pair{"tcp://h:1?lag=1ms", "unknown option"},
                                  std::pair{"tcp://h:1?delay=", "delay is"},
                                  std::pair{"tcp://h:1?code=fast", "code is"},
                                  std::pair{"unix:///x?recover=maybe", "recover is"},
                                  std::pair{"tcp://h:1?delay=1", "delay is"},
                                  std::pair{"tcp://h:1?delay=11s", "delay is"},
                                  std::pair{"tcp://h:1?delay=-1ms", "delay is"},
                                  std::pair{"shm:///x?delay=1ms", "option of shm; there are code"},
                                  std::pair{"shm:///x?shm=off", "option of shm; there are code"},
                                  std::pair{"unix:///x?lanes=2", "option of unix; there are code"},
                                  std::pair{"unix:///x?delay=1ms&more", "unknown option"}}) {
    const Result<Url> url = parse_url(text);
    ASSERT_FALSE(url.ok()) << text;
    EXPECT_NE(url.error().message.find(why), std::string::npos) << url.error().message;
    EXPECT_NE(url.error().message.find("use shm:///path"), std::string::npos);
  }
}

TEST(Url, SharedMemoryIsAKindOfItsOwnAndCanBeRefused) {
  EXPECT_EQ(parse_url("shm:///run/flyt.sock")->kind, Kind::kShm);
  EXPECT_FALSE(parse_url("unix:///run/flyt.sock")->socket_only);
  const Result<Url> off = parse_url("unix:///run/flyt.sock?shm=off");
  ASSERT_TRUE(off.ok());
  EXPECT_TRUE(off->socket_only);
  EXPECT_EQ(off->path, "/run/flyt.sock");
  EXPECT_EQ(to_string(*off), "unix:///run/flyt.sock?shm=off");
}

TEST(Url, WhoListensIsToldOfEachOptionThatIsForClients) {
  for (const char* text : {"unix:///x", "shm:///x", "unix:///x?shm=off", "tcp://h:1"}) {
    const Result<Url> url = parse_listening_url(text);
    ASSERT_TRUE(url.ok()) << text;
    EXPECT_EQ(*url, *parse_url(text));
  }
  // Also as it would be without it.
  for (const auto& [text, name] : {std::pair{"tcp://h:1?delay=1ms", "delay is for clients"},
                                   std::pair{"tcp://h:1?delay=0ms", "delay is for clients"},
                                   std::pair{"tcp://h:1?lanes=3", "lanes is for clients"},
                                   std::pair{"tcp://h:1?compress=auto", "compress is for clients"},
                                   std::pair{"unix:///x?code=auto", "code is for clients"},
                                   std::pair{"unix:///x?recover=on", "recover is for clients"},
                                   std::pair{"unix:///x?shm=off&code=send", "code is for clients"},
                                   std::pair{"tcp://h:1?lag=1ms", "unknown option"}}) {
    const Result<Url> url = parse_listening_url(text);
    ASSERT_FALSE(url.ok()) << text;
    EXPECT_NE(url.error().message.find(name), std::string::npos) << url.error().message;
  }
}

TEST(Url, OthersAreReachedOverTcpAlone) {
  for (const char* text : {"unix:///run/flyt.sock", "shm:///run/flyt.sock", "tcp://127.0.0.1:7",
                           "tcp://127.1.2.3:7", "tcp://[::1]:7", "tcp://localhost:7"}) {
    EXPECT_FALSE(reaches_others(*parse_url(text))) << text;
  }
  for (const char* text : {"tcp://0.0.0.0:7", "tcp://[::]:7", "tcp://10.0.0.9:7", "tcp://gpu:7"}) {
    EXPECT_TRUE(reaches_others(*parse_url(text))) << text;
  }
}

TEST(Url, RefusesAPathThatNoSocketAddressHolds) {
  EXPECT_TRUE(parse_url("unix:///" + std::string(106, 'x')).ok());
  EXPECT_FALSE(parse_url("unix:///" + std::string(107, 'x')).ok());
}

}  // namespace
}  // namespace flyt::transport
