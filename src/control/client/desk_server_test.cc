#include "control/client/desk_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "rpc/desk.h"

namespace flyt::vm {
namespace {

constexpr Duration kPatience = std::chrono::seconds(10);

// A cluster whose answers the test decides.
class FakeCluster final : public ClusterLink {
 public:
  Result<VirtualGpu> request() override {
    const Lock lock(mutex_);
    ++requests_;
    changed_.notify_all();
    return answer_;
  }
  Result<VirtualGpu> release() override {
    const Lock lock(mutex_);
    ++releases_;
    changed_.notify_all();
    return VirtualGpu{};
  }
  Error watch(const std::function<void(const VirtualGpu&)>& take) override {
    mutex_.lock();
    while (!stopped_) {
      if (news_) {
        const VirtualGpu news = *std::exchange(news_, std::nullopt);
        mutex_.unlock();
        take(news);
        mutex_.lock();
        continue;
      }
      changed_.wait(mutex_);
    }
    mutex_.unlock();
    return {ErrorCode::kLost, "stopped"};
  }
  void stop() override {
    const Lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  void answer_with(Result<VirtualGpu> answer) {
    const Lock lock(mutex_);
    answer_ = std::move(answer);
  }
  void tell(const VirtualGpu& news) {
    const Lock lock(mutex_);
    news_ = news;
    changed_.notify_all();
  }
  bool released() {
    mutex_.lock();
    const Instant end = system_clock().now() + kPatience;
    while (releases_ == 0 && system_clock().now() < end) {
      changed_.wait_for(mutex_, std::chrono::milliseconds(100));
    }
    const bool done = releases_ != 0;
    mutex_.unlock();
    return done;
  }
  int requests() {
    const Lock lock(mutex_);
    return requests_;
  }

 private:
  Mutex mutex_;
  Condition changed_;
  Result<VirtualGpu> answer_ GUARDED_BY(mutex_) = VirtualGpu{};
  std::optional<VirtualGpu> news_ GUARDED_BY(mutex_);
  int requests_ GUARDED_BY(mutex_) = 0;
  int releases_ GUARDED_BY(mutex_) = 0;
  bool stopped_ GUARDED_BY(mutex_) = false;
};

VirtualGpu gpu_in(Phase phase) {
  VirtualGpu gpu;
  gpu.vm = "vm";
  gpu.phase = phase;
  gpu.node = "node";
  gpu.generation = 1;
  gpu.urls = {"tcp://node:7710"};
  if (phase == Phase::kReady) {
    gpu.token = "token";
    gpu.token_expires_at = 4'000'000'000;
  }
  return gpu;
}

// A client manager in this process, but for its link to the cluster.
class DeskTest : public ::testing::Test {
 protected:
  DeskTest() {
    folder_ = std::string(::testing::TempDir()) + "desk-" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
    config_.socket = folder_ + "/client.sock";
    config_.state_folder = folder_;
    config_.programs_max = 4;
    config_.grace_seconds = 0;
  }
  ~DeskTest() override {
    stop();
    std::filesystem::remove_all(folder_);
  }

  void start() {
    cluster_ = std::make_unique<FakeCluster>();
    office_ =
        std::make_unique<Office>(BrokerOptions{.host = "",
                                               .grace = std::chrono::seconds(config_.grace_seconds),
                                               .programs_max = config_.programs_max},
                                 log_);
    auto desk = DeskServer::open(config_, *office_, log_);
    ASSERT_TRUE(desk) << desk.error().message;
    desk_ = std::move(*desk);
    threads_.emplace_back([this] { desk_->run(); });
    threads_.emplace_back([this] { office_->run_asks(*cluster_); });
    threads_.emplace_back([this] { office_->run_watch(*cluster_); });
  }
  void stop() {
    if (desk_ == nullptr) return;
    office_->stop();
    cluster_->stop();
    desk_->stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    desk_.reset();
  }
  Result<rpc::DeskVisit> ask(Duration patience = kPatience,
                             const rpc::DeskListener& listener = nullptr) {
    return rpc::visit_desk(config_.socket, wire::DeskPurpose::kUse, {patience, {}}, listener);
  }
  // A connection that says whatever the test wants.
  std::unique_ptr<transport::Connection> raw() {
    transport::Url url;
    url.path = config_.socket;
    auto connection = transport::connect(url, system_clock().now() + kPatience);
    EXPECT_TRUE(connection);
    return std::move(*connection);
  }
  static bool sent_away(transport::Connection& connection, Bytes bytes) {
    const std::array pieces{bytes};
    if (!bytes.empty()) {
      static_cast<void>(connection.write(pieces, transport::Patience::kWait));
    }
    return (connection.wait(transport::kHangup, system_clock().now() + kPatience, nullptr) &
            transport::kHangup) != 0;
  }
  bool becomes(const std::string& text) {
    const Instant end = system_clock().now() + kPatience;
    while (system_clock().now() < end) {
      const auto status = rpc::ask_desk_status(config_.socket, kPatience);
      if (status && status->find(text) != std::string::npos) return true;
    }
    return false;
  }

  Log log_{"test", LogLevel::kOff};
  std::string folder_;
  Config config_;
  std::unique_ptr<FakeCluster> cluster_;
  std::unique_ptr<Office> office_;
  std::unique_ptr<DeskServer> desk_;
  std::vector<std::thread> threads_;
};

TEST_F(DeskTest, AProgramGetsItsGpuAndGivesItBackByEnding) {
  start();
  cluster_->answer_with(gpu_in(Phase::kReady));
  {
    const auto visit = ask();
    ASSERT_TRUE(visit) << visit.error().message;
    EXPECT_EQ(visit->granted.url, "tcp://node:7710");
    EXPECT_EQ(visit->granted.token, "token");
    EXPECT_TRUE(becomes("\"programs\": 1"));
  }
  EXPECT_TRUE(cluster_->released());
}

TEST_F(DeskTest, AProgramHearsHowManyAreAheadAndThenHasIt) {
  start();
  VirtualGpu waiting = gpu_in(Phase::kWaiting);
  waiting.ahead = 2;
  cluster_->answer_with(waiting);
  std::vector<std::uint32_t> heard;
  const auto visit = ask(kPatience, [&](const wire::DeskWaiting& news) {
    if (!heard.empty() && heard.back() == news.ahead) return;
    heard.push_back(news.ahead);
    VirtualGpu next = waiting;
    if (news.ahead == 2) {
      next.ahead = 1;
      cluster_->tell(next);
    } else if (news.ahead == 1) {
      cluster_->answer_with(gpu_in(Phase::kReady));
      next.phase = Phase::kReady;
      cluster_->tell(next);
    }
  });
  ASSERT_TRUE(visit) << visit.error().message;
  EXPECT_EQ(heard, (std::vector<std::uint32_t>{2, 1}));
}

TEST_F(DeskTest, WaitingEndsWithAMessageThatSaysWhy) {
  start();
  VirtualGpu waiting = gpu_in(Phase::kWaiting);
  waiting.ahead = 2;
  waiting.reason = "all GPUs are taken";
  cluster_->answer_with(waiting);
  ASSERT_TRUE(becomes("unknown"));
  const auto visit = ask(std::chrono::seconds(5));
  ASSERT_FALSE(visit);
  EXPECT_EQ(visit.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(visit.error().message, "no GPU within 5 s: 2 ahead of it; all GPUs are taken");
}

TEST_F(DeskTest, RefusalsReachTheProgram) {
  start();
  cluster_->answer_with(Error{ErrorCode::kNotFound, "there is no such VM"});
  const auto visit = ask();
  ASSERT_FALSE(visit);
  EXPECT_EQ(visit.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(visit.error().message, "there is no such VM");
}

TEST_F(DeskTest, NobodyAnswersWhereThereIsNoManager) {
  EXPECT_FALSE(rpc::has_desk(config_.socket));
  const auto visit = ask();
  ASSERT_FALSE(visit);
  EXPECT_EQ(visit.error().code, ErrorCode::kLost);
  // A program has no other message than this one.
  EXPECT_TRUE(visit.error().message.ends_with(
      "; start flyt-client-manager, or name the socket of the one that runs in"
      " FLYT_CLIENT_SOCKET: it is " +
      config_.socket + " now"))
      << visit.error().message;
}

TEST_F(DeskTest, HostilePeersLoseTheirConnectionAndNothingElse) {
  start();
  cluster_->answer_with(gpu_in(Phase::kReady));
  const auto visit = ask();
  ASSERT_TRUE(visit);
  EXPECT_TRUE(sent_away(*raw(), bytes_of("GET / HTTP/1.1\r\n\r\n")));
  EXPECT_TRUE(sent_away(*raw(), wire::encode(wire::DeskGranted{1, "tcp://x:1", ""})));
  auto twice = wire::encode(wire::DeskAsk{});
  const auto more = twice;
  twice.insert(twice.end(), more.begin(), more.end());
  EXPECT_TRUE(sent_away(*raw(), twice));
  auto large = wire::encode(wire::DeskAsk{});
  Writer(MutableBytes(large).subspan(12)).write(std::uint32_t{0xFFFFFFFF});
  EXPECT_TRUE(sent_away(*raw(), large));
  // Whoever has asked and then speaks.
  const auto talker = raw();
  const auto ask_bytes = wire::encode(wire::DeskAsk{});
  const std::array pieces{Bytes(ask_bytes)};
  ASSERT_TRUE(talker->write(pieces, transport::Patience::kWait));
  ASSERT_TRUE(becomes("\"programs\": 2"));
  EXPECT_TRUE(sent_away(*talker, bytes_of("x")));
  EXPECT_TRUE(becomes("\"programs\": 1"));
}

TEST_F(DeskTest, WhoComesAgainAndAgainDoesNotFillTheLog) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  const Fd reading(ends[0]);
  const Fd writing(ends[1]);
  log_ = Log("test", LogLevel::kInfo, writing.get());
  start();
  const auto period = [] { return system_clock().now().ns / LogLimit::kPeriod.count(); };
  const auto begun = period();
  constexpr std::uint32_t kTimes = 4 * LogLimit::kLinesMax;
  for (std::uint32_t i = 0; i < kTimes; ++i) {
    ASSERT_TRUE(sent_away(*raw(), bytes_of("GET / HTTP/1.1\r\n\r\n")));
  }
  stop();
  const auto periods = period() - begun + 1;
  std::string text(1U << 20U, '\0');
  const ssize_t got = ::read(reading.get(), text.data(), text.size());
  ASSERT_GT(got, 0);
  text.resize(static_cast<std::size_t>(got));
  std::uint64_t lines = 0;
  std::uint64_t left_out = 0;
  constexpr std::string_view kLine = "is not understood";
  constexpr std::string_view kCount = "too many lines=";
  for (std::size_t at = 0; (at = text.find(kLine, at)) != text.npos; ++at) ++lines;
  for (std::size_t at = 0; (at = text.find(kCount, at)) != text.npos; ++at) {
    left_out += std::stoull(text.substr(at + kCount.size()));
  }
  EXPECT_LE(lines, periods * LogLimit::kLinesMax);
  EXPECT_EQ(lines + left_out, kTimes);
}

TEST_F(DeskTest, WhoAsksForNothingIsSentAway) {
  start();
  const auto silent = raw();
  EXPECT_TRUE(sent_away(*silent, {}));
}

// Each would have had a place for two seconds, and programs none.
TEST_F(DeskTest, ManyWhoAskForNothingKeepNoProgramOut) {
  start();
  cluster_->answer_with(gpu_in(Phase::kReady));
  std::vector<std::unique_ptr<transport::Connection>> silent;
  for (std::size_t i = 0; i < config_.programs_max + 64; ++i) silent.push_back(raw());
  const auto visit = ask();
  EXPECT_TRUE(visit) << visit.error().message;
  EXPECT_TRUE(sent_away(*silent.front(), {}));
}

TEST_F(DeskTest, TheNextManagerKnowsThoseThatRun) {
  start();
  cluster_->answer_with(gpu_in(Phase::kReady));
  const auto visit = ask();
  ASSERT_TRUE(visit);
  const std::string file = folder_ + "/programs";
  const Instant end = system_clock().now() + kPatience;
  while (read_programs(file)->programs.empty() && system_clock().now() < end)
    std::this_thread::yield();
  stop();
  const auto known = read_programs(file);
  ASSERT_TRUE(known);
  ASSERT_EQ(known->programs.size(), 1u);
  EXPECT_EQ(known->programs[0].process, ::getpid());
  start();
  cluster_->tell(gpu_in(Phase::kReady));
  EXPECT_TRUE(becomes("\"phase\": \"ready\""));
  EXPECT_TRUE(becomes("\"programs\": 1"));
  EXPECT_EQ(cluster_->requests(), 0);
}

TEST_F(DeskTest, AStateFileThatMakesNoSenseIsToldAndKept) {
  const auto text_of_file = [](const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  };
  const std::string file = folder_ + "/programs";
  const std::string damaged = "garbage\n" + text_of({{::getpid(), 1, 0, "ended"}}) + "7 8 cut";
  std::ofstream(file) << damaged;
  const std::string log = folder_ + "/log";
  const Fd sink(::open(log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  Office office({}, log_);
  const Log told("test", LogLevel::kInfo, sink.get());
  ASSERT_TRUE(DeskServer::open(config_, office, told));
  for (const std::string& part : {std::string(" warn "), "file=" + file, std::string("lines=2"),
                                  "copy=" + file + ".damaged"}) {
    EXPECT_NE(text_of_file(log).find(part), std::string::npos) << text_of_file(log);
  }
  EXPECT_EQ(text_of_file(file + ".damaged"), damaged);
  // What cannot be read at all is told as well.
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  ASSERT_TRUE(DeskServer::open(config_, office, told));
  EXPECT_NE(text_of_file(log).find("cannot read " + file), std::string::npos);
  // None is no news.
  std::filesystem::remove(file);
  std::filesystem::resize_file(log, 0);
  ASSERT_TRUE(DeskServer::open(config_, office, told));
  EXPECT_EQ(text_of_file(log), "");
}

}  // namespace
}  // namespace flyt::vm
