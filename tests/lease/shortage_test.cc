// A server that is out of descriptors: it neither spins nor forgets who waits.
#include <fcntl.h>
#include <sys/resource.h>

#include <cstdlib>
#include <string>

#include "tests/lease/tenant.h"
#include "transport/transport.h"

namespace flyt::tests {
namespace {

constexpr const char* kNobody = "nobody can connect for now";

class Shortages : public LeaseTest {
 protected:
  // From now on the server's parent can open `further` files.
  void leave_descriptors(rlim_t further) {
    rlim_t number = 0;
    for (rlim_t free = 0; true; ++number) {
      const std::string file =
          "/proc/" + std::to_string(server_.pid()) + "/fd/" + std::to_string(number);
      if (::access(file.c_str(), F_OK) == 0) continue;
      if (free++ == further) break;
    }
    limit(number);
  }
  void limit(rlim_t files) {
    rlimit limit{};
    ASSERT_EQ(::prlimit(server_.pid(), RLIMIT_NOFILE, nullptr, &limit), 0);
    limit.rlim_cur = std::min(files, limit.rlim_max);
    ASSERT_EQ(::prlimit(server_.pid(), RLIMIT_NOFILE, &limit, nullptr), 0);
  }
  std::unique_ptr<transport::Connection> knock(const std::string& url) const {
    auto connection = transport::connect(*transport::parse_url(url),
                                         system_clock().now() + std::chrono::seconds(60));
    return connection ? std::move(*connection) : nullptr;
  }
  std::size_t logged(std::string_view text) const {
    const std::string log = server_.log();
    std::size_t count = 0;
    for (auto at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++count;
    return count;
  }
};

TEST_F(Shortages, OfDescriptorsLetTheServerSleepAndThenServe) {
  start({});
  leave_descriptors(0);
  const auto waiting = knock(server_.url());
  ASSERT_NE(waiting, nullptr);
  ASSERT_TRUE(server_.logged(kNobody, kSeconds)) << server_.log();
  const auto controls = knock(control_url());
  const std::uint64_t before = sleeps(server_.pid());
  EXPECT_TRUE(eventually(kSeconds, [&] { return sleeps(server_.pid()) >= before + 10; }));
  EXPECT_EQ(logged(kNobody), 1U) << server_.log();
  limit(RLIM_INFINITY);
  EXPECT_EQ(ask(tenant(), "alloc", 1), "0");
  EXPECT_NE(control(), nullptr);
}

TEST_F(Shortages, OfDescriptorsAreAtTheCostOfThoseWhoSayNothing) {
  start({});
  leave_descriptors(1);
  const auto silent = knock(server_.url());
  ASSERT_NE(silent, nullptr);
  const auto next = knock(server_.url());
  EXPECT_TRUE(server_.logged("no descriptor is free", kSeconds)) << server_.log();
  EXPECT_NE(
      silent->wait(transport::kHangup, system_clock().now() + std::chrono::seconds(60), nullptr) &
          transport::kHangup,
      0);
  EXPECT_EQ(logged(kNobody), 0U);
}

TEST_F(Shortages, OfDescriptorsLetTheServerSleepWhileItHasTooFewWarmProcesses) {
  start({"--warm", "1"});
  // Between the two it closes the child's end of their line.
  ASSERT_TRUE(
      eventually(kSeconds, [&] { return server_.children().size() == 1 && server_.rests(); }));
  leave_descriptors(0);
  ASSERT_EQ(::kill(server_.children()[0], SIGKILL), 0);
  // Its end gave one descriptor back; a warm process needs two for a moment.
  ASSERT_TRUE(server_.logged("no warm process for now", kSeconds)) << server_.log();
  const std::uint64_t before = sleeps(server_.pid());
  EXPECT_TRUE(eventually(kSeconds, [&] { return sleeps(server_.pid()) >= before + 10; }));
  EXPECT_EQ(logged("no warm process for now"), 1U);
  limit(RLIM_INFINITY);
  EXPECT_TRUE(eventually(kSeconds, [&] { return server_.children().size() == 1; }));
}

}  // namespace
}  // namespace flyt::tests
