#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "control/cluster/manager.h"
#include "control/cluster/requirements_follower.h"
#include "control/cluster/testing/fake_cluster.h"

namespace flyt::cluster {
namespace {

using requirements::Answer;
using requirements::Row;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeCluster;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kUri = "mongodb://db.example.org/";

Config with_mongodb() {
  Config config;
  config.policy = "pack";
  config.mongodb = kUri;
  return config;
}

Row row_of(const std::string& vm, std::int64_t sms = 8, std::int64_t memory = 1024) {
  return {.id = "row-" + vm,
          .fields = {{"vm_ip", vm},
                     {"host_ip", std::string("h1")},
                     {"compute_units", sms},
                     {"memory", memory}}};
}

Answer answer_of(std::initializer_list<Row> rows) {
  Answer answer;
  for (const Row& row : rows) answer.add(row);
  return answer;
}

std::vector<std::string> names(FakeCluster& cluster) {
  std::vector<std::string> names;
  const auto all = cluster.manager().vms("");
  for (const v1::Vm& vm : all->vms()) names.push_back(vm.spec().name());
  return names;
}

v1::VmSpec spec(FakeCluster& cluster, const char* vm) {
  return cluster.manager().vms(vm)->vms(0).spec();
}

void take(FakeCluster& cluster, const Answer& answer) {
  const auto refused = cluster.manager().take_requirements(answer);
  ASSERT_TRUE(refused) << refused.error().message;
  EXPECT_THAT(*refused, IsEmpty());
}

v1::SetVmsRequest change_of(const char* vm, std::initializer_list<const char*> fields) {
  v1::SetVmsRequest request;
  request.add_vms()->set_name(vm);
  for (const char* field : fields) request.add_fields(field);
  return request;
}

TEST(ManagerRequirements, VmsAreAsTheDatabaseSays) {
  FakeCluster cluster(with_mongodb());
  cluster.add_node("n1");
  take(cluster, answer_of({row_of("10.1.0.7"), row_of("10.1.0.8", 16, 2048)}));
  EXPECT_THAT(names(cluster), ElementsAre("10.1.0.7", "10.1.0.8"));
  EXPECT_EQ(spec(cluster, "10.1.0.8").sms(), 16u);
  EXPECT_EQ(spec(cluster, "10.1.0.8").memory_bytes(), 2048ull << 20);
  EXPECT_EQ(spec(cluster, "10.1.0.8").host(), "h1");
  EXPECT_EQ(spec(cluster, "10.1.0.8").source(), "mongodb");
  EXPECT_EQ(cluster.want("10.1.0.7").phase(), v1::PHASE_READY);
  take(cluster, answer_of({row_of("10.1.0.7", 16)}));
  EXPECT_THAT(names(cluster), ElementsAre("10.1.0.7"));
  // As with `vm set`: for the next one.
  EXPECT_EQ(spec(cluster, "10.1.0.7").sms(), 16u);
  EXPECT_EQ(cluster.gpu("10.1.0.7").sms_granted(), 8u);
}

TEST(ManagerRequirements, AreStillThereAfterARestartWithoutTheDatabase) {
  FakeCluster cluster(with_mongodb());
  cluster.add_node("n1");
  take(cluster, answer_of({row_of("a")}));
  cluster.start();
  cluster.report();
  cluster.manager().note_requirements("it does not answer", {});
  EXPECT_EQ(cluster.want("a").phase(), v1::PHASE_READY);
  EXPECT_EQ(spec(cluster, "a").source(), "mongodb");
}

TEST(ManagerRequirements, NothingIsWrittenWhereNothingHasChanged) {
  FakeCluster cluster(with_mongodb());
  take(cluster, answer_of({row_of("a")}));
  const auto events = cluster.manager().events(0).size();
  cluster.disk_full = true;
  take(cluster, answer_of({row_of("a")}));
  EXPECT_EQ(cluster.manager().events(0).size(), events);
}

TEST(ManagerRequirements, WhoIsGoneKeepsHisVirtualGpuUntilItIsGivenBack) {
  FakeCluster cluster(with_mongodb());
  cluster.add_node("n1");
  take(cluster, answer_of({row_of("a"), row_of("b")}));
  EXPECT_EQ(cluster.want("a").phase(), v1::PHASE_READY);
  take(cluster, answer_of({row_of("b")}));
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_READY);
  ASSERT_TRUE(cluster.manager().release("a", "done"));
  cluster.work();
  take(cluster, answer_of({row_of("b")}));
  EXPECT_THAT(names(cluster), ElementsAre("b"));
  EXPECT_EQ(cluster.audit_quiet(), "");
}

TEST(ManagerRequirements, WhoIsGoneAndWaitsWaitsNoMore) {
  FakeCluster cluster(with_mongodb());
  take(cluster, answer_of({row_of("a"), row_of("b")}));
  EXPECT_EQ(cluster.want("a").phase(), v1::PHASE_WAITING);
  take(cluster, answer_of({row_of("b")}));
  EXPECT_THAT(names(cluster), ElementsAre("b"));
  EXPECT_EQ(cluster.manager().describe().waiting(), 0u);
  cluster.start();
  EXPECT_THAT(names(cluster), ElementsAre("b"));
}

TEST(ManagerRequirements, AnEmptyDatabaseTakesNobodyAway) {
  FakeCluster cluster(with_mongodb());
  take(cluster, answer_of({row_of("a")}));
  EXPECT_EQ(cluster.manager().remove_vm("a", true).error().code, ErrorCode::kUnsupported);
  take(cluster, Answer());
  EXPECT_THAT(names(cluster), ElementsAre("a"));
  // But somebody may.
  EXPECT_TRUE(cluster.manager().remove_vm("a", false));
  EXPECT_THAT(names(cluster), IsEmpty());
}

TEST(ManagerRequirements, OperatorsChangeOnlyWhatTheDatabaseDoesNotSay) {
  FakeCluster cluster(with_mongodb());
  take(cluster, answer_of({row_of("a", 8)}));
  for (const char* field : {"address", "host", "sms", "memory_bytes"}) {
    v1::SetVmsRequest request = change_of("a", {field});
    request.mutable_vms(0)->set_address("x");
    request.mutable_vms(0)->set_host("x");
    request.mutable_vms(0)->set_sms(16);
    request.mutable_vms(0)->set_memory_bytes(1 << 30 | 1);
    const auto done = cluster.manager().set_vms(request);
    ASSERT_FALSE(done) << field;
    EXPECT_EQ(done.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(done.error().message, HasSubstr("MongoDB"));
  }
  v1::SetVmsRequest request = change_of("a", {"keep", "priority", "source"});
  request.mutable_vms(0)->set_keep(true);
  request.mutable_vms(0)->set_priority(5);
  ASSERT_TRUE(cluster.manager().set_vms(request));
  EXPECT_EQ(spec(cluster, "a").source(), "mongodb");
  take(cluster, answer_of({row_of("a", 16)}));
  EXPECT_EQ(spec(cluster, "a").priority(), 5);
  EXPECT_TRUE(spec(cluster, "a").keep());
  EXPECT_EQ(spec(cluster, "a").sms(), 16u);
}

TEST(ManagerRequirements, AResizeChangesTheVirtualGpuAndNotWhatComesNext) {
  FakeCluster cluster(with_mongodb());
  cluster.add_node("n1");
  take(cluster, answer_of({row_of("a", 8)}));
  v1::ResizeVmRequest request;
  request.set_vm("a");
  request.set_sms(16);
  EXPECT_EQ(cluster.manager().resize(request).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(cluster.want("a").sms_granted(), 8u);
  ASSERT_TRUE(cluster.manager().resize(request));
  EXPECT_EQ(cluster.gpu("a").sms_granted(), 16u);
  EXPECT_EQ(spec(cluster, "a").sms(), 8u);
  take(cluster, answer_of({row_of("a", 8)}));
  EXPECT_EQ(cluster.gpu("a").sms_granted(), 16u);
}

TEST(ManagerRequirements, TheDatabaseTakesOverWhatItNames) {
  FakeCluster cluster(with_mongodb());
  v1::SetVmsRequest request;
  v1::VmSpec& set = *request.add_vms();
  set.set_name("vm-7");
  set.set_address("10.1.0.7");
  set.set_sms(32);
  set.set_memory_bytes(1 << 30);
  set.set_priority(3);
  ASSERT_TRUE(cluster.manager().set_vms(request));
  cluster.add_vm("other");
  take(cluster, answer_of({row_of("10.1.0.7", 8)}));
  EXPECT_THAT(names(cluster), ElementsAre("other", "vm-7"));
  EXPECT_EQ(spec(cluster, "vm-7").sms(), 8u);
  EXPECT_EQ(spec(cluster, "vm-7").priority(), 3);
  EXPECT_EQ(spec(cluster, "other").source(), "");
}

TEST(ManagerRequirements, WithoutADatabaseAllIsTheOperatorsAgain) {
  Config without = with_mongodb();
  without.mongodb.clear();
  FakeCluster cluster(without);
  take(cluster, answer_of({row_of("a", 8)}));
  v1::SetVmsRequest request = change_of("a", {"sms"});
  request.mutable_vms(0)->set_sms(16);
  ASSERT_TRUE(cluster.manager().set_vms(request));
  EXPECT_EQ(spec(cluster, "a").source(), "");
  EXPECT_TRUE(cluster.manager().remove_vm("a", false));
}

TEST(ManagerRequirements, RowsThatMakeNoVmAreToldAndTheOthersTaken) {
  FakeCluster cluster(with_mongodb());
  const auto refused = cluster.manager().take_requirements(
      answer_of({row_of("a"), row_of("fe80::1"), row_of("b", 8, 1), row_of("c")}));
  ASSERT_TRUE(refused);
  ASSERT_EQ(refused->size(), 2u);
  EXPECT_THAT((*refused)[0].why, HasSubstr("of memory"));
  EXPECT_THAT((*refused)[1].why, HasSubstr("a VM's name"));
  EXPECT_THAT(names(cluster), ElementsAre("a", "c"));
}

TEST(ManagerRequirements, ManyVmsComeAndGoInSeveralCommits) {
  FakeCluster cluster(with_mongodb());
  Answer many;
  for (int i = 0; i < 1201; ++i) many.add(row_of("vm" + std::to_string(i)));
  take(cluster, many);
  EXPECT_EQ(names(cluster).size(), 1201u);
  take(cluster, answer_of({row_of("vm7")}));
  EXPECT_THAT(names(cluster), ElementsAre("vm7"));
}

// A database that says what it is told to.
class FakeSource final : public requirements::Source {
 public:
  explicit FakeSource(const Result<Answer>& says) : says_(says) {}
  Result<Answer> read(const std::function<bool()>&) override { return says_; }

 private:
  const Result<Answer>& says_;
};

struct Followed {
  FakeCluster cluster{with_mongodb()};
  Result<Answer> says = Answer();
  RequirementsFollower follower{
      cluster.manager(),
      [this]() -> Result<std::unique_ptr<requirements::Source>> {
        return std::unique_ptr<requirements::Source>(std::make_unique<FakeSource>(says));
      },
      requirements::shown_uri(kUri), Log("test", LogLevel::kOff)};

  std::vector<std::string> kinds() {
    std::vector<std::string> all;
    for (const auto& event : cluster.manager().events(0)) {
      if (event.kind().starts_with("requirements")) all.push_back(event.kind());
    }
    return all;
  }
};

TEST(RequirementsFollower, TellsOnceThatADatabaseIsAwayAndThatItIsBack) {
  Followed one;
  one.says = answer_of({row_of("a")});
  one.follower.step();
  EXPECT_THAT(one.kinds(), IsEmpty());
  one.says = Error{ErrorCode::kLost, "nobody answers"};
  one.follower.step();
  one.follower.step();
  EXPECT_THAT(one.kinds(), ElementsAre("requirements-old"));
  EXPECT_THAT(one.cluster.manager().problems(),
              Contains("mongodb://db.example.org cannot be read: nobody answers; VMs keep what"
                       " they had"));
  EXPECT_THAT(names(one.cluster), ElementsAre("a"));
  one.says = answer_of({row_of("a"), row_of("b")});
  one.follower.step();
  EXPECT_THAT(one.kinds(), ElementsAre("requirements-old", "requirements-read"));
  EXPECT_EQ(one.cluster.manager().requirements_problem(), "");
  EXPECT_THAT(names(one.cluster), ElementsAre("a", "b"));
  EXPECT_EQ(one.cluster.manager().counters().requirements_read, 2u);
  EXPECT_EQ(one.cluster.manager().counters().requirements_failed, 2u);
}

TEST(RequirementsFollower, AnEmptyDatabaseIsAProblem) {
  Followed one;
  one.follower.step();
  EXPECT_THAT(one.cluster.manager().requirements_problem(), HasSubstr("has no VM"));
}

TEST(RequirementsFollower, ADiskThatIsFullIsTriedAgain) {
  Followed one;
  one.says = answer_of({row_of("a")});
  one.cluster.disk_full = true;
  one.follower.step();
  EXPECT_THAT(one.cluster.manager().requirements_problem(), HasSubstr("cannot be written"));
  one.cluster.disk_full = false;
  one.follower.step();
  EXPECT_THAT(names(one.cluster), ElementsAre("a"));
}

TEST(RequirementsFollower, SkippedRowsAreProblemsUntilTheyAreRight) {
  Followed one;
  one.says = answer_of({row_of("a"), row_of("b", -1), row_of("c", 8, 1)});
  one.follower.step();
  EXPECT_THAT(one.cluster.manager().problems(),
              Contains(HasSubstr("MongoDB: b (row-b): compute_units is no whole number")));
  EXPECT_THAT(one.cluster.manager().problems(), Contains(HasSubstr("MongoDB: c: VM c: it needs")));
  one.says = answer_of({row_of("a"), row_of("b"), row_of("c")});
  one.follower.step();
  EXPECT_THAT(one.cluster.manager().problems(), Not(Contains(HasSubstr("MongoDB"))));
}

TEST(RequirementsFollower, ReadsAtOnceWhereAVmThatNobodyKnowsIsAskedFor) {
  Followed one;
  one.says = answer_of({row_of("a")});
  v1::GpuRequest request;
  request.set_vm("a");
  EXPECT_EQ(one.cluster.manager().request(request).error().code, ErrorCode::kNotFound);
  // It comes back although the period is an hour.
  EXPECT_TRUE(one.cluster.manager().await_requirements(std::chrono::hours(1)));
  one.follower.step();
  EXPECT_TRUE(one.cluster.manager().request(request));
}

TEST(RequirementsFollower, EndsWithItsManager) {
  Followed one;
  std::thread thread([&one] { one.follower.follow(std::chrono::hours(1)); });
  one.cluster.manager().stop();
  thread.join();
  EXPECT_FALSE(one.cluster.manager().await_requirements(std::chrono::hours(1)));
}

}  // namespace
}  // namespace flyt::cluster
