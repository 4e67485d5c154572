#include "control/cluster/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "control/cluster/testing/fake_cluster.h"

namespace flyt::cluster {
namespace {

using ::testing::ElementsAre;
using testing::FakeCluster;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

bool any(const std::string&) { return true; }

TEST(Places, AnAddressIsTheSameHoweverItIsWritten) {
  Places places;
  places.set("n1", "GPU-1.example.org:7701");
  places.set("n2", "[fd00::2]:7701");
  places.set("n3", "unix:///run/n3.sock");
  EXPECT_EQ(places.node_at("gpu-1.example.org.:7701", any), "n1");
  EXPECT_EQ(places.node_at("[FD00::2]:7701", any), "n2");
  EXPECT_EQ(places.node_at("unix:///run/n3.sock", any), "n3");
  for (const char* other : {"gpu-1.example.org:7702", "gpu-1:7701", "unix:///run/N3.sock", ""}) {
    EXPECT_EQ(places.node_at(other, any), std::nullopt) << other;
  }
  EXPECT_EQ(places.node_on("gpu-1.EXAMPLE.org", any), "n1");
  EXPECT_EQ(places.node_on("gpu-1", any), std::nullopt);
}

TEST(Places, KnowsWhereNodesAreNow) {
  Places places;
  places.set("n1", "gpu:1");
  places.set("n2", "gpu:2");
  places.set("n2", "gpu:1");
  EXPECT_EQ(places.node_at("gpu:2", any), std::nullopt);
  const auto not_n1 = [](const std::string& node) { return node != "n1"; };
  EXPECT_EQ(places.node_at("gpu:1", not_n1), "n2");
  EXPECT_EQ(places.node_on("gpu", not_n1), "n2");
  places.remove("n2");
  places.remove("n2");
  EXPECT_EQ(places.node_on("gpu", not_n1), std::nullopt);
  EXPECT_EQ(places.node_on("gpu", any), "n1");
}

TEST(Places, ProgramsAreSentWhereLeasesAre) {
  v1::NodeReport report;
  EXPECT_THAT(lease_hosts(report), IsEmpty());
  report.set_lease_host("Data-1");
  node::v1::Lease& lease = *report.add_leases();
  for (const char* url : {"unix:///run/gpu.sock", "tcp://data-1:7710", "tcp://[fd00::1]:7711",
                          "tcp://", "tcp://x", "tcp://10.0.0.1:7712"}) {
    lease.add_urls(url);
  }
  EXPECT_THAT(lease_hosts(report), ElementsAre("data-1", "fd00::1", "10.0.0.1"));
}

class PlacesOfACluster : public ::testing::Test {
 protected:
  v1::NodeReport at(const std::string& name, const std::string& address) {
    v1::NodeReport report = node_.report();
    report.set_name(name);
    report.set_address(address);
    report.mutable_description()->set_name(name);
    return report;
  }
  std::string refusal(const v1::NodeReport& report) {
    const auto reply = cluster_.manager().report(report);
    EXPECT_TRUE(reply.ok() || reply.error().code == ErrorCode::kDenied);
    return reply ? "" : reply.error().message;
  }
  std::string events() {
    std::string all;
    for (const auto& event : cluster_.manager().events(0)) {
      if (event.kind() == "node-refused") all += event.node() + ": " + event.text() + "\n";
    }
    return all;
  }
  static std::ptrdiff_t count(const std::string& lines) {
    return std::count(lines.begin(), lines.end(), '\n');
  }
  // The same report all the while.
  void pass(std::uint32_t seconds, const v1::NodeReport& report) {
    for (std::uint32_t i = 0; i < seconds; ++i) {
      EXPECT_EQ(refusal(report), "");
      cluster_.live(1);
    }
  }

  testing::FakeNode node_;
  FakeCluster cluster_;
};

TEST_F(PlacesOfACluster, NobodyTakesTheAddressOfANodeThatIsThere) {
  const v1::NodeReport first = at("n1", "gpu-1:7701");
  const v1::NodeReport second = at("n2", "GPU-1:7701");
  EXPECT_EQ(refusal(first), "");
  EXPECT_THAT(refusal(second), HasSubstr("node n1 is at GPU-1:7701 already"));
  EXPECT_THAT(refusal(second), HasSubstr("node n1"));
  // It is told once, and what is wrong as long as it is tried.
  EXPECT_EQ(count(events()), 1);
  EXPECT_THAT(events(), HasSubstr("n2: node n1 is at"));
  EXPECT_THAT(cluster_.manager().problems(), ElementsAre(HasSubstr("node n2 is refused: ")));
  EXPECT_FALSE(cluster_.manager().nodes("n2").ok());
  pass(20, first);
  EXPECT_THAT(cluster_.manager().problems(), IsEmpty());
  // A node that has moved away leaves its place, and a move to another's is refused, too.
  EXPECT_EQ(refusal(at("n2", "gpu-2:7701")), "");
  EXPECT_THAT(refusal(at("n2", "gpu-1:7701")), HasSubstr("node n1"));
  EXPECT_EQ(refusal(at("n2", "gpu-3:7701")), "");
  EXPECT_EQ(refusal(at("n3", "gpu-2:7701")), "");
}

TEST_F(PlacesOfACluster, APlaceIsKeptOverARestartUntilItsNodeIsLost) {
  const v1::NodeReport first = at("n1", "gpu-1:7701");
  const v1::NodeReport second = at("n2", "gpu-1:7701");
  EXPECT_EQ(refusal(first), "");
  cluster_.start();
  EXPECT_NE(refusal(second), "");
  EXPECT_EQ(refusal(first), "");
  cluster_.live(12);
  EXPECT_EQ(refusal(second), "");
  // Who comes back finds it taken.
  EXPECT_THAT(refusal(first), HasSubstr("node n2 is at gpu-1:7701 already"));
}

TEST_F(PlacesOfACluster, ProgramsAreNotSentToAnotherNode) {
  EXPECT_EQ(refusal(at("n1", "gpu-1:7701")), "");
  v1::NodeReport second = at("n2", "gpu-2:7701");
  second.set_lease_host("gpu-1");
  EXPECT_THAT(refusal(second), HasSubstr("sent to gpu-1, where node n1 is: see leases.advertise"));
  second.set_lease_host("");
  node::v1::Lease& lease = *second.add_leases();
  lease.set_id("x");
  lease.set_memory_bytes(1 << 20);
  lease.add_urls("tcp://gpu-1:7710");
  EXPECT_THAT(refusal(second), HasSubstr("sent to gpu-1"));
  // Of another network, and of a machine that two nodes share.
  lease.set_urls(0, "tcp://10.9.0.2:7710");
  EXPECT_EQ(refusal(second), "");
  EXPECT_EQ(refusal(at("n3", "gpu-2:7702")), "");
  lease.set_urls(0, "tcp://gpu-2:7710");
  EXPECT_EQ(refusal(second), "");
}

TEST_F(PlacesOfACluster, AUnixSocketIsOneNodesAndItsMachineIsNot) {
  EXPECT_EQ(refusal(at("n1", "127.0.0.1:7701")), "");
  EXPECT_EQ(refusal(at("n2", "unix:///run/n2.sock")), "");
  v1::NodeReport third = at("n3", "unix:///run/n2.sock");
  third.set_lease_host("127.0.0.1");
  EXPECT_THAT(refusal(third), HasSubstr("node n2 is at unix:///run/n2.sock already"));
  third.set_address("unix:///run/n3.sock");
  EXPECT_EQ(refusal(third), "");
  EXPECT_THAT(cluster_.manager().problems(), IsEmpty());
}

TEST_F(PlacesOfACluster, OneThatTriesManyNamesAndReasonsIsNotRememberedForAll) {
  EXPECT_EQ(refusal(at("n0", "gpu-0:7701")), "");
  EXPECT_EQ(refusal(at("n1", "gpu-1:7701")), "");
  for (int i = 0; i < 100; ++i) {
    EXPECT_NE(refusal(at("n2", "gpu-" + std::to_string(i % 2) + ":7701")), "");
  }
  EXPECT_EQ(count(events()), 1);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_NE(refusal(at("x" + std::to_string(i), "gpu-0:7701")), "");
  }
  EXPECT_LE(cluster_.manager().problems().size(), 256u);
}

}  // namespace
}  // namespace flyt::cluster
