#include "control/cluster/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/cluster/page/files.h"
#include "control/cluster/testing/fake_cluster.h"

namespace flyt::cluster {
namespace {

using ::testing::ElementsAre;
using testing::FakeCluster;
using ::testing::HasSubstr;
using ::testing::Not;

const Caller kEve{"eve", Role::kViewer, "test"};
constexpr Duration kNoTime{0};

struct Watched {
  explicit Watched(FakeCluster& cluster)
      : chair(cluster.manager()),
        documents(chair, "m1", "1.2", cluster.clock),
        stream(documents, kEve) {}
  // Until nothing more comes.
  std::vector<std::string> names() {
    std::vector<std::string> all;
    while (const auto document = stream.next(kNoTime)) {
      all.emplace_back(document->name);
      last = *document->json;
    }
    return all;
  }
  OnlyChair chair;
  Documents documents;
  DocumentStream stream;
  std::string last;
};

TEST(Documents, TellWhatFlytctlTells) {
  FakeCluster cluster;
  cluster.add_node("n1");
  cluster.add_vm("a");
  cluster.want("a");
  OnlyChair chair(cluster.manager());
  Documents documents(chair, "m1", "1.2", cluster.clock);
  EXPECT_THAT(*documents.document("cluster", kEve), HasSubstr(R"("caller":"eve","role":"viewer")"));
  EXPECT_THAT(*documents.document("cluster", kEve), HasSubstr(R"("version":"1.2")"));
  EXPECT_THAT(*documents.document("cluster", kEve), HasSubstr(R"("manager":"m1","decides":true)"));
  EXPECT_THAT(*documents.document("nodes", kEve), HasSubstr(R"({"nodes":[{"name":"n1")"));
  EXPECT_THAT(*documents.document("vms", kEve), HasSubstr(R"("phase":"ready")"));
  EXPECT_THAT(*documents.document("leases", kEve), HasSubstr(R"("state":"ready")"));
  EXPECT_THAT(*documents.document("events", kEve), HasSubstr(R"("kind":"gpu-ready")"));
  EXPECT_EQ(*documents.document("queue", kEve), "{\"vms\":[]}\n");
  EXPECT_EQ(*documents.document("health", kEve), "{\"healthy\":true,\"problems\":[]}\n");
  EXPECT_THAT(*documents.explain("a"), HasSubstr(R"("lines":[)"));
}

TEST(Documents, AreSearchedAlsoForWhatTheyHaveNoRoomFor) {
  FakeCluster cluster;
  cluster.add_node("n1");
  cluster.report();
  v1::SetVmsRequest all;
  for (int i = 0; i <= kPageRowsMax; ++i) {
    v1::VmSpec* spec = all.add_vms();
    spec->set_name("vm" + std::to_string(10000 + i));
    spec->set_sms(8);
    spec->set_memory_bytes(1 << 30);
  }
  (*all.mutable_vms(kPageRowsMax)->mutable_labels())["team"] = "Vision";
  for (const char* field : {"sms", "memory_bytes", "labels"}) all.add_fields(field);
  ASSERT_TRUE(cluster.manager().set_vms(all).ok());
  OnlyChair chair(cluster.manager());
  Documents documents(chair, "m1", "", cluster.clock);
  EXPECT_EQ(documents.document("vms", kEve)->find("vm11000"), std::string::npos);
  for (const char* match : {"VM11000", "vision"}) {
    const std::string found = *documents.document("vms", kEve, match);
    EXPECT_THAT(found, HasSubstr("vm11000")) << match;
    EXPECT_EQ(found.find("vm10999"), std::string::npos);
  }
  EXPECT_EQ(*documents.document("queue", kEve, "vision"), "{\"vms\":[]}\n");
  EXPECT_EQ(*documents.document("nodes", kEve, "elsewhere"), "{\"nodes\":[]}\n");
  EXPECT_EQ(documents.document("vms", kEve, std::string(257, 'x')).error().code,
            ErrorCode::kInvalid);
}

TEST(Documents, RefuseWhatThereIsNot) {
  FakeCluster cluster;
  OnlyChair chair(cluster.manager());
  Documents documents(chair, "m1", "", cluster.clock);
  EXPECT_EQ(documents.document("audit", kEve).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(documents.document("", kEve).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(documents.explain("nobody").error().code, ErrorCode::kNotFound);
}

TEST(Documents, TheQueueIsInItsOrder) {
  FakeCluster cluster;
  for (const char* vm : {"c", "a", "b"}) {
    cluster.add_vm(vm);
    cluster.want(vm);
  }
  OnlyChair chair(cluster.manager());
  Documents documents(chair, "m1", "", cluster.clock);
  const std::string queue = *documents.document("queue", kEve);
  const auto at = [&](const char* name) { return queue.find(name); };
  EXPECT_LT(at(R"("name":"c")"), at(R"("name":"a")"));
  EXPECT_LT(at(R"("name":"a")"), at(R"("name":"b")"));
}

TEST(Documents, ListsAreCut) {
  FakeCluster cluster;
  v1::SetVmsRequest request;
  for (int i = 0; i < kPageRowsMax + 5; ++i) {
    v1::VmSpec& spec = *request.add_vms();
    spec.set_name("vm" + std::to_string(i));
    spec.set_sms(8);
    spec.set_memory_bytes(1 << 30);
  }
  ASSERT_TRUE(cluster.manager().set_vms(request));
  OnlyChair chair(cluster.manager());
  Documents documents(chair, "m1", "", cluster.clock);
  const auto count = [](const std::string& text, std::string_view what) {
    std::size_t found = 0;
    for (auto at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count(*documents.document("vms", kEve), "\"spec\":"), std::size_t{kPageRowsMax});
  // Also those made later: the newest ones.
  for (int i = 0; i < 2; ++i) {
    const std::string events = *documents.document("events", kEve);
    EXPECT_EQ(count(events, "\"number\":"), kPageEventsMax);
    EXPECT_NE(events.find("\"vm\":\"vm" + std::to_string(kPageRowsMax + 4) + "\""), events.npos);
    EXPECT_TRUE(*documents.views().json[5] == events);
    cluster.clock.pass(kPageRest);
  }
}

TEST(Documents, AreMadeOnceForAllWhoWatch) {
  FakeCluster cluster;
  OnlyChair chair(cluster.manager());
  Documents documents(chair, "m1", "", cluster.clock);
  const DocumentViews first = documents.views();
  cluster.add_vm("a");
  EXPECT_EQ(documents.views().json[3], first.json[3]);
  cluster.clock.pass(kPageRest);
  const DocumentViews second = documents.views();
  EXPECT_NE(second.json[3], first.json[3]);
  EXPECT_EQ(second.json[1], first.json[1]);
}

// One of several managers.
class FakeChair final : public Chair {
 public:
  Answerer answerer() override { return who; }
  std::shared_ptr<Manager> known() override { return copy; }
  Answerer who;
  std::shared_ptr<Manager> copy;
};

TEST(Documents, OfAManagerThatDoesNotDecideAreWhatItKnowsAndSaySo) {
  FakeCluster cluster;
  cluster.add_vm("a");
  FakeChair chair;
  chair.who.leader.emplace().set_name("c2");
  chair.copy = std::shared_ptr<Manager>(std::shared_ptr<void>(), &cluster.manager());
  Documents documents(chair, "m1", "", cluster.clock);
  EXPECT_THAT(*documents.document("health", kEve),
              HasSubstr("this manager does not decide, c2 does"));
  EXPECT_THAT(*documents.document("vms", kEve), HasSubstr(R"("name":"a")"));
}

TEST(Documents, OfAManagerThatKnowsNothingAreEmptyAndSayWhy) {
  FakeCluster cluster;
  FakeChair chair;
  chair.who.why = "nobody has been elected yet";
  Documents documents(chair, "m1", "", cluster.clock);
  EXPECT_THAT(*documents.document("health", kEve), HasSubstr("nobody has been elected yet"));
  EXPECT_EQ(*documents.document("nodes", kEve), "{\"nodes\":[]}\n");
  EXPECT_EQ(*documents.document("queue", kEve), "{\"vms\":[]}\n");
  EXPECT_EQ(*documents.document("events", kEve), "{\"events\":[]}\n");
  EXPECT_EQ(documents.explain("a").error().code, ErrorCode::kLost);
  DocumentStream stream(documents, kEve);
  EXPECT_EQ(stream.next(kNoTime)->name, "cluster");
  // It decides from now on.
  cluster.add_vm("a");
  chair.who = {.here = std::shared_ptr<Manager>(std::shared_ptr<void>(), &cluster.manager()),
               .leader = {},
               .why = {},
               .problem = {}};
  cluster.clock.pass(kPageRest);
  std::string vms;
  while (const auto document = stream.next(kNoTime)) {
    if (document->name == "vms") vms = *document->json;
  }
  EXPECT_THAT(vms, HasSubstr(R"("name":"a")"));
}

TEST(DocumentStream, BeginsWithAllAndGoesOnWithWhatChanges) {
  FakeCluster cluster;
  cluster.add_node("n1");
  Watched watched(cluster);
  EXPECT_THAT(watched.names(),
              ElementsAre("cluster", "health", "nodes", "leases", "vms", "queue", "events"));
  cluster.clock.pass(kPageRest);
  EXPECT_THAT(watched.names(), ElementsAre());
  cluster.add_vm("a");
  cluster.clock.pass(kPageRest);
  EXPECT_THAT(watched.names(), ElementsAre("cluster", "vms", "events"));
  cluster.clock.pass(kPageRest);
  cluster.want("a");
  EXPECT_THAT(watched.names(), ElementsAre("cluster", "nodes", "leases", "vms", "events"));
}

TEST(DocumentStream, WhoIsSlowGetsTheNewestAndNothingBetween) {
  FakeCluster cluster;
  Watched watched(cluster);
  watched.names();
  for (int i = 0; i < 50; ++i) {
    cluster.add_vm("vm" + std::to_string(i));
    cluster.clock.pass(kPageRest);
    watched.documents.views();
  }
  EXPECT_THAT(watched.names(), ElementsAre("cluster", "vms", "events"));
  EXPECT_THAT(watched.last, HasSubstr("vm49"));
}

TEST(DocumentStream, BeatsWhileNothingHappens) {
  FakeCluster cluster;
  Watched watched(cluster);
  watched.names();
  cluster.clock.pass(kPageBeat - std::chrono::milliseconds(1));
  EXPECT_THAT(watched.names(), ElementsAre());
  cluster.clock.pass(std::chrono::milliseconds(1));
  EXPECT_THAT(watched.names(), ElementsAre("beat"));
}

TEST(DocumentStream, WhatATenantWritesStaysInItsString) {
  FakeCluster cluster;
  v1::SetVmsRequest request;
  v1::VmSpec& spec = *request.add_vms();
  spec.set_name("a");
  spec.set_sms(8);
  spec.set_memory_bytes(1 << 30);
  spec.set_host("\"}]}</script><script>alert(1)</script>");
  (*spec.mutable_labels())["k"] = "\\\"<img src=x onerror=alert(1)>";
  ASSERT_TRUE(cluster.manager().set_vms(request));
  OnlyChair chair(cluster.manager());
  Documents documents(chair, "m1", "", cluster.clock);
  const std::string vms = *documents.document("vms", kEve);
  EXPECT_THAT(vms, HasSubstr(R"("host":"\"}]}</script><script>alert(1)</script>")"));
  EXPECT_THAT(vms, HasSubstr(R"("k":"\\\"<img src=x onerror=alert(1)>")"));
  EXPECT_EQ(vms.find('\n'), vms.size() - 1);
}

// Texts become text, and nothing is asked of anybody else.
TEST(Page, MakesNoHtmlOfStringsAndNeedsNoOtherServer) {
  const std::string script(page::page_js());
  for (const char* word : {"innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(",
                           "Function(", "srcdoc", "DOMParser", "createContextual"}) {
    EXPECT_THAT(script, Not(HasSubstr(word)));
  }
  for (const std::string_view file : {page::index_html(), page::page_css(), page::page_js()}) {
    EXPECT_FALSE(file.empty());
    EXPECT_THAT(std::string(file), Not(HasSubstr("://")));
    EXPECT_THAT(std::string(file), Not(HasSubstr("@import")));
  }
  EXPECT_THAT(std::string(page::index_html()), Not(HasSubstr(" style=")));
  EXPECT_THAT(std::string(page::index_html()), Not(HasSubstr(" onclick")));
}

}  // namespace
}  // namespace flyt::cluster
