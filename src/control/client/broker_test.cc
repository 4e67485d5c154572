#include "control/client/broker.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace flyt::vm {
namespace {

using Ask = Broker::Ask;

constexpr std::int64_t kStart = 1'700'000'000;

class BrokerTest : public ::testing::Test {
 protected:
  BrokerTest() : broker_(options(), {}) {}
  static BrokerOptions options() {
    return {.host = "here", .grace = std::chrono::seconds(30), .programs_max = 4};
  }
  Now now() const { return {Instant{} + passed_, kStart + passed_ / std::chrono::seconds(1)}; }
  void pass(Duration time) { passed_ += time; }

  static VirtualGpu gpu(Phase phase, std::uint64_t generation = 1) {
    VirtualGpu gpu;
    gpu.vm = "vm";
    gpu.phase = phase;
    gpu.node = "node";
    gpu.host = "elsewhere";
    gpu.generation = generation;
    gpu.urls = {"unix:///run/flyt/lease.sock", "tcp://node:7710"};
    return gpu;
  }
  VirtualGpu ready(std::int64_t seconds = 300, std::uint64_t generation = 1) const {
    VirtualGpu ready = gpu(Phase::kReady, generation);
    ready.token = "token-" + std::to_string(generation);
    ready.token_expires_at = now().unix_seconds + seconds;
    return ready;
  }
  static Program program(std::uint32_t user = 1000) {
    return {.user = user, .process = 7, .name = "p"};
  }

  // What the program was told last, and everything before it is forgotten.
  template <class Message>
  std::optional<Message> told(ProgramId id) {
    std::optional<Message> last;
    for (const Broker::Send& send : broker_.take_sends()) {
      if (send.program != id) continue;
      const Message* message = std::get_if<Message>(&send.message);
      last = message == nullptr ? std::nullopt : std::optional(*message);
    }
    return last;
  }
  void answer(const Result<VirtualGpu>& answer) {
    const auto ask = broker_.next(now());
    ASSERT_TRUE(ask);
    broker_.answered(*ask, answer, now());
  }
  // A program comes, and the cluster is asked for it before it has anything.
  void answer_doubts(ProgramId id, const Result<VirtualGpu>& said) {
    broker_.take_sends();
    broker_.arrive(id, program(), now());
    EXPECT_FALSE(told<wire::DeskGranted>(id)) << id;
    answer(said);
  }

  Broker broker_;
  Duration passed_ = std::chrono::hours(1);
};

// What is on its way back is nobody's: a program that got it would meet a server that ends.
TEST_F(BrokerTest, WhoComesWhileItIsGivenBackGetsANewOne) {
  broker_.arrive(1, program(), now());
  answer(ready());
  broker_.leave(1, now());
  pass(std::chrono::hours(1));
  const auto release = broker_.next(now());
  ASSERT_TRUE(release && release->kind == Ask::Kind::kRelease);
  broker_.take_sends();
  broker_.arrive(2, program(), now());
  broker_.heard(gpu(Phase::kReady), now());
  EXPECT_FALSE(told<wire::DeskGranted>(2));
  broker_.answered(*release, gpu(Phase::kNone), now());
  EXPECT_FALSE(told<wire::DeskGranted>(2));
  answer(ready(300, 2));
  const auto granted = told<wire::DeskGranted>(2);
  ASSERT_TRUE(granted);
  EXPECT_EQ(granted->generation, 2u);
}

TEST_F(BrokerTest, AsksForAGpuWhenAProgramWantsOne) {
  EXPECT_FALSE(broker_.next(now()));
  broker_.arrive(1, program(), now());
  EXPECT_TRUE(broker_.take_sends().empty()) << "nothing is known yet";
  answer(ready());
  const auto granted = told<wire::DeskGranted>(1);
  ASSERT_TRUE(granted);
  EXPECT_EQ(granted->url, "tcp://node:7710");
  EXPECT_EQ(granted->token, "token-1");
  EXPECT_EQ(broker_.users(), 1u);
  EXPECT_FALSE(broker_.next(now()));
}

TEST_F(BrokerTest, AnswersTheNextProgramOfTheUserAtOnceAndAsksForOthers) {
  broker_.arrive(1, program(), now());
  answer(ready());
  broker_.take_sends();
  broker_.arrive(2, program(), now());
  EXPECT_TRUE(told<wire::DeskGranted>(2));
  broker_.arrive(3, program(1001), now());
  EXPECT_FALSE(told<wire::DeskGranted>(3));
  const auto ask = broker_.next(now());
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->user, 1001u);
  EXPECT_FALSE(broker_.next(now())) << "one thing at a time";
  broker_.answered(*ask, ready(), now());
  EXPECT_TRUE(told<wire::DeskGranted>(3));
}

TEST_F(BrokerTest, UsesNoTokenThatIsAboutToExpireOrOfAnotherGpu) {
  broker_.arrive(1, program(), now());
  answer(ready(60));
  broker_.take_sends();
  pass(std::chrono::seconds(51));
  broker_.arrive(2, program(), now());
  EXPECT_FALSE(told<wire::DeskGranted>(2));
  answer(ready(60));
  EXPECT_TRUE(told<wire::DeskGranted>(2));
  broker_.heard(gpu(Phase::kReady, 2), now());
  broker_.arrive(3, program(), now());
  EXPECT_FALSE(told<wire::DeskGranted>(3));
  answer(ready(60, 2));
  EXPECT_EQ(told<wire::DeskGranted>(3)->generation, 2u);
}

TEST_F(BrokerTest, TellsHowManyAreAheadWhenThatChanges) {
  broker_.arrive(1, program(), now());
  VirtualGpu waiting = gpu(Phase::kWaiting);
  waiting.ahead = 2;
  answer(waiting);
  EXPECT_EQ(told<wire::DeskWaiting>(1)->ahead, 2u);
  broker_.heard(waiting, now());
  EXPECT_FALSE(told<wire::DeskWaiting>(1)) << "nothing new";
  EXPECT_FALSE(broker_.next(now())) << "the cluster tells by itself";
  waiting.ahead = 1;
  broker_.heard(waiting, now());
  EXPECT_EQ(told<wire::DeskWaiting>(1)->ahead, 1u);
  pass(std::chrono::seconds(1));
  broker_.heard(gpu(Phase::kReady), now());
  answer(ready());
  EXPECT_TRUE(told<wire::DeskGranted>(1));
}

TEST_F(BrokerTest, AsksForATokenAsSoonAsItHearsThatItsGpuIsReady) {
  broker_.arrive(1, program(), now());
  answer(gpu(Phase::kStarting));
  EXPECT_FALSE(broker_.next(now()));
  broker_.heard(gpu(Phase::kReady), now());
  // No time has passed.
  answer(ready());
  EXPECT_TRUE(told<wire::DeskGranted>(1));
}

TEST_F(BrokerTest, ARestAfterAFailureIsNotCutShortByWhatItHears) {
  broker_.arrive(1, program(), now());
  answer(Error{ErrorCode::kLost, "gone"});
  broker_.heard(gpu(Phase::kReady), now());
  EXPECT_FALSE(broker_.next(now()));
  pass(std::chrono::seconds(1));
  answer(ready());
  EXPECT_TRUE(told<wire::DeskGranted>(1));
}

TEST_F(BrokerTest, GivesItBackAfterTheLastProgramAndTheGrace) {
  broker_.arrive(1, program(), now());
  broker_.arrive(2, program(), now());
  answer(ready());
  broker_.leave(1, now());
  pass(std::chrono::minutes(5));
  EXPECT_FALSE(broker_.next(now())) << "a program is left";
  broker_.leave(2, now());
  EXPECT_EQ((broker_.wake_at(now()) - now().at), std::chrono::seconds(5));
  pass(std::chrono::seconds(29));
  EXPECT_FALSE(broker_.next(now()));
  EXPECT_EQ((broker_.wake_at(now()) - now().at), std::chrono::seconds(1));
  pass(std::chrono::seconds(1));
  const auto ask = broker_.next(now());
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->kind, Ask::Kind::kRelease);
  broker_.answered(*ask, gpu(Phase::kNone), now());
  pass(std::chrono::hours(1));
  EXPECT_FALSE(broker_.next(now()));
}

TEST_F(BrokerTest, WantsItAgainAfterItWasGivenBack) {
  broker_.arrive(1, program(), now());
  answer(ready());
  broker_.leave(1, now());
  pass(std::chrono::seconds(30));
  answer(gpu(Phase::kNone));
  broker_.take_sends();
  broker_.arrive(2, program(), now());
  EXPECT_FALSE(told<wire::DeskGranted>(2));
  answer(ready(300, 2));
  EXPECT_TRUE(told<wire::DeskGranted>(2));
}

TEST_F(BrokerTest, GoesOnWithWhatItHasWhenTheClusterIsAway) {
  broker_.arrive(1, program(), now());
  answer(ready());
  broker_.take_sends();
  broker_.cluster_away("no route", now());
  broker_.arrive(2, program(), now());
  EXPECT_FALSE(told<wire::DeskGranted>(2)) << "it may have been taken away meanwhile";
  answer(Error{ErrorCode::kLost, "no route"});
  EXPECT_TRUE(told<wire::DeskGranted>(2)) << "its token is still good";
  broker_.arrive(3, program(1001), now());
  EXPECT_NE(told<wire::DeskWaiting>(3)->why.find("no route"), std::string::npos);
  answer(Error{ErrorCode::kLost, "no route"});
  EXPECT_FALSE(broker_.next(now())) << "not at once again";
  pass(std::chrono::seconds(1));
  answer(ready());
  EXPECT_TRUE(told<wire::DeskGranted>(3));
  EXPECT_FALSE(broker_.cluster_is_away());
}

// A network that was cut says nothing: an answer may take as long as anything.
TEST_F(BrokerTest, WaitsForNewsOfAClusterThatIsAwayForABoundedTime) {
  broker_.arrive(1, program(), now());
  answer(ready());
  broker_.take_sends();
  broker_.cluster_away("no route", now());
  broker_.arrive(2, program(), now());
  EXPECT_TRUE(broker_.next(now())) << "and nothing comes back";
  pass(std::chrono::milliseconds(1900));
  broker_.pass(now());
  EXPECT_FALSE(told<wire::DeskGranted>(2));
  pass(std::chrono::milliseconds(100));
  broker_.pass(now());
  EXPECT_TRUE(told<wire::DeskGranted>(2));
}

// The lease was taken away while the connection to the cluster was, too.
TEST_F(BrokerTest, HandsOutNothingOldOnceTheClusterAnswersAgain) {
  broker_.arrive(1, program(), now());
  answer(ready());
  broker_.cluster_away("no route", now());
  answer_doubts(3, ready(300, 2));
  EXPECT_EQ(told<wire::DeskGranted>(3)->generation, 2u);
  broker_.cluster_away("no route", now());
  broker_.arrive(4, program(), now());
  broker_.heard(gpu(Phase::kWaiting, 2), now());
  EXPECT_FALSE(told<wire::DeskGranted>(4)) << "the watch tells it as well";
  EXPECT_FALSE(broker_.next(now()));
}

// Asks of an unreachable cluster rest longer and longer; who would be served with what is known
// does not wait for that.
TEST_F(BrokerTest, AsksForADoubterAlsoWhileItRests) {
  broker_.arrive(1, program(), now());
  answer(ready());
  broker_.cluster_away("no route", now());
  for (ProgramId id = 2; id <= 4; ++id) {
    answer_doubts(id, Error{ErrorCode::kLost, "no route"});
    EXPECT_TRUE(told<wire::DeskGranted>(id)) << id;
  }
  EXPECT_FALSE(broker_.next(now()));
}

TEST_F(BrokerTest, AsksForTheProgramThatWasNotLetInAndGrantsOnlyWhatIsNew) {
  broker_.arrive(1, program(), now());
  answer(ready());
  broker_.take_sends();
  Program again = program();
  again.purpose = wire::DeskPurpose::kAgain;
  broker_.arrive(2, again, now());
  EXPECT_FALSE(told<wire::DeskGranted>(2));
  answer(gpu(Phase::kStarting, 2));
  EXPECT_FALSE(told<wire::DeskGranted>(2));
  pass(std::chrono::seconds(1));
  broker_.heard(gpu(Phase::kReady, 2), now());
  answer(ready(300, 2));
  EXPECT_EQ(told<wire::DeskGranted>(2)->generation, 2u);
  // It knows better than we do that what is known is no good.
  broker_.cluster_away("no route", now());
  broker_.arrive(3, again, now());
  answer(Error{ErrorCode::kLost, "no route"});
  EXPECT_TRUE(told<wire::DeskWaiting>(3));
}

TEST_F(BrokerTest, DoesNotGrantAnExpiredTokenBecauseTheClusterIsAway) {
  broker_.arrive(1, program(), now());
  answer(ready(60));
  pass(std::chrono::minutes(5));
  broker_.take_sends();
  broker_.arrive(2, program(), now());
  broker_.cluster_away("no route", now());
  EXPECT_TRUE(told<wire::DeskWaiting>(2));
}

TEST_F(BrokerTest, GrantsWhatWasMadeJustNowWhateverTheClockSays) {
  // This machine's clock is an hour ahead of the node's.
  constexpr std::int64_t kAhead = 3600;
  broker_.arrive(1, program(), now());
  answer(ready(300 - kAhead));
  EXPECT_TRUE(told<wire::DeskGranted>(1));
  broker_.arrive(2, program(), now());
  EXPECT_TRUE(told<wire::DeskGranted>(2));
  // Later nobody knows whether it is good: another one is asked for.
  pass(std::chrono::seconds(30));
  broker_.arrive(3, program(), now());
  EXPECT_FALSE(told<wire::DeskGranted>(3));
  answer(ready(300 - kAhead));
  EXPECT_TRUE(told<wire::DeskGranted>(3));
  // What was not made for this user is not his.
  broker_.arrive(4, program(1001), now());
  EXPECT_FALSE(told<wire::DeskGranted>(4));
}

TEST_F(BrokerTest, TriesLessAndLessOften) {
  broker_.arrive(1, program(), now());
  Duration last{0};
  for (int i = 0; i < 8; ++i) {
    answer(Error{ErrorCode::kTimeout, "nobody"});
    Duration waited{0};
    while (!broker_.next(now())) {
      pass(std::chrono::milliseconds(100));
      waited += std::chrono::milliseconds(100);
      ASSERT_LE(waited, std::chrono::seconds(5));
    }
    EXPECT_GE(waited, last);
    last = waited;
    broker_.answered({}, Error{ErrorCode::kTimeout, "nobody"}, now());
    pass(std::chrono::seconds(20));
  }
  EXPECT_EQ(last, std::chrono::seconds(5));
}

TEST_F(BrokerTest, RefusesWhatAnOperatorMustPutRight) {
  broker_.arrive(1, program(), now());
  answer(Error{ErrorCode::kNotFound, "there is no VM vm: flytctl vm set"});
  const auto refused = told<wire::DeskRefused>(1);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::kNotFound);
  EXPECT_EQ(broker_.waiting(), 0u);
}

TEST_F(BrokerTest, TellsTheUnixSocketToProgramsOfThatMachineAlone) {
  broker_.arrive(1, program(), now());
  VirtualGpu here = ready();
  here.host = "here";
  answer(here);
  EXPECT_EQ(told<wire::DeskGranted>(1)->url, "unix:///run/flyt/lease.sock");
  VirtualGpu deaf = ready(300, 2);
  deaf.urls = {"unix:///run/flyt/lease.sock"};
  broker_.heard(deaf, now());
  broker_.arrive(2, program(), now());
  EXPECT_FALSE(told<wire::DeskGranted>(2));
  EXPECT_FALSE(broker_.next(now()));
}

TEST_F(BrokerTest, RefusesAtOnceWhatNoProgramOfThisMachineCanReach) {
  VirtualGpu deaf = ready();
  deaf.urls = {"unix:///run/flyt/lease.sock"};
  broker_.arrive(1, program(), now());
  answer(deaf);
  const auto refused = told<wire::DeskRefused>(1);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::kUnsupported);
  for (const char* part :
       {"node node", "leases.tcp_host", "node.toml", "vm.host = \"elsewhere\"", "client.toml"}) {
    EXPECT_NE(refused->why.find(part), std::string::npos) << refused->why;
  }
  EXPECT_EQ(broker_.waiting(), 0u);
  // The same for who comes next, of whom nobody is asked for another one.
  broker_.arrive(2, program(), now());
  EXPECT_TRUE(told<wire::DeskRefused>(2));
  // It is of no use here, so the grace is not waited for.
  const auto ask = broker_.next(now());
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->kind, Ask::Kind::kRelease);
  // What comes meanwhile is asked for anew.
  broker_.arrive(3, program(), now());
  EXPECT_FALSE(told<wire::DeskRefused>(3));
  broker_.answered(*ask, gpu(Phase::kEnding), now());
  EXPECT_EQ(broker_.next(now())->kind, Ask::Kind::kRequest);
}

TEST_F(BrokerTest, RefusesWhatItHearsToBeOutOfReach) {
  broker_.arrive(1, program(), now());
  answer(gpu(Phase::kStarting));
  VirtualGpu deaf = gpu(Phase::kReady);
  deaf.urls = {"unix:///run/flyt/lease.sock"};
  broker_.heard(deaf, now());
  EXPECT_TRUE(told<wire::DeskRefused>(1));
}

TEST_F(BrokerTest, RefusesMoreProgramsThanItsLimit) {
  for (ProgramId id = 1; id <= 4; ++id) broker_.arrive(id, program(), now());
  broker_.arrive(5, program(), now());
  EXPECT_EQ(told<wire::DeskRefused>(5)->code, ErrorCode::kLimit);
}

TEST_F(BrokerTest, KeepsItForProgramsOfAnEarlierManager) {
  broker_.adopt(1, program());
  broker_.heard(gpu(Phase::kReady), now());
  pass(std::chrono::hours(1));
  EXPECT_FALSE(broker_.next(now()));
  broker_.leave(1, now());
  pass(std::chrono::seconds(30));
  EXPECT_EQ(broker_.next(now())->kind, Ask::Kind::kRelease);
}

TEST_F(BrokerTest, StatusIsJsonWhateverTheClusterSays) {
  VirtualGpu gpu = BrokerTest::gpu(Phase::kWaiting);
  gpu.reason = "a \"quote\"\n\\ \x01";
  gpu.reason += std::string(5000, 'x');
  broker_.heard(gpu, now());
  const std::string status = broker_.status_json();
  EXPECT_NE(status.find("a \\\"quote\\\"?\\\\ ?"), std::string::npos) << status;
  EXPECT_LT(status.size(), 1024u);
}

// Programs come and go, and a cluster says whatever it likes.
class RandomMachine {
 public:
  explicit RandomMachine(std::uint64_t seed) : random_(seed) {}

  void step() {
    now_.at = now_.at + std::chrono::milliseconds(random_.below(2000));
    now_.unix_seconds = kStart + now_.at.ns / 1'000'000'000;
    switch (random_.below(7)) {
      case 0:
        broker_.arrive(++last_, program(), now_);
        programs_[last_] = false;
        break;
      case 1:
        if (programs_.empty()) break;
        broker_.leave(programs_.begin()->first, now_);
        programs_.erase(programs_.begin());
        break;
      case 2:
        broker_.heard(gpu(false), now_);
        break;
      case 3:
        broker_.cluster_away("away", now_);
        break;
      case 4:
        ask();
        break;
      case 5:
        answer();
        break;
      case 6:
        broker_.pass(now_);
        break;
    }
    check_sends();
  }
  std::size_t grants() const { return grants_; }

 private:
  Program program() {
    return {.user = static_cast<std::uint32_t>(random_.below(2)),
            .name = "p",
            .purpose = random_.one_in(8) ? wire::DeskPurpose::kAgain : wire::DeskPurpose::kUse};
  }
  VirtualGpu gpu(bool token) {
    VirtualGpu gpu;
    gpu.phase = static_cast<Phase>(random_.below(5));
    if (random_.one_in(10)) ++generation_;
    gpu.generation = generation_;
    gpu.urls = {"tcp://node:1"};
    if (token && gpu.phase == Phase::kReady) {
      gpu.token = std::to_string(generation_);
      gpu.token_expires_at = now_.unix_seconds + static_cast<std::int64_t>(random_.below(60));
    }
    return gpu;
  }
  void ask() {
    if (asked_) return;
    asked_ = broker_.next(now_);
    if (!asked_ || asked_->kind != Ask::Kind::kRelease) return;
    for (const auto& [id, granted] : programs_) ASSERT_FALSE(granted);
  }
  void answer() {
    if (!asked_) return;
    ASSERT_FALSE(broker_.next(now_)) << "one thing at a time";
    const Error error{static_cast<ErrorCode>(random_.below(8)), "error"};
    const bool fails = random_.one_in(4);
    broker_.answered(*asked_, fails ? Result<VirtualGpu>(error) : gpu(true), now_);
    asked_.reset();
  }
  void check_sends() {
    for (const Broker::Send& send : broker_.take_sends()) {
      if (std::holds_alternative<wire::DeskRefused>(send.message)) programs_.erase(send.program);
      const auto* granted = std::get_if<wire::DeskGranted>(&send.message);
      if (granted == nullptr) continue;
      ++grants_;
      ASSERT_EQ(programs_.at(send.program), false);
      programs_[send.program] = true;
      ASSERT_EQ(broker_.gpu().phase, Phase::kReady);
      ASSERT_EQ(granted->generation, broker_.gpu().generation);
      ASSERT_EQ(granted->token, std::to_string(broker_.gpu().generation));
    }
  }

  Random random_;
  Broker broker_{{.host = "", .grace = std::chrono::seconds(3), .programs_max = 8}, {}};
  Now now_{{}, kStart};
  std::optional<Ask> asked_;
  std::map<ProgramId, bool> programs_;  // Granted or not.
  std::uint64_t generation_ = 1;
  ProgramId last_ = 0;
  std::size_t grants_ = 0;
};

// Nobody is granted without a fresh token of the present GPU, nothing is given back while a program
// has it, and only one thing is asked for at a time.
TEST(BrokerProperty, GrantsOnlyWhatIsThere) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomMachine machine(seed);
  for (int step = 0; step < 20000; ++step) {
    ASSERT_NO_FATAL_FAILURE(machine.step());
  }
  EXPECT_GT(machine.grants(), 100u);
}

}  // namespace
}  // namespace flyt::vm
