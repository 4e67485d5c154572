#include "control/node/xid_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "base/clock.h"
#include "base/fd.h"
#include "control/node/gpu_watch.h"
#include "control/node/testing/fake_nvml.h"

namespace flyt::node {
namespace {

// Until then only a failure waits.
constexpr Duration kHeardWithin = std::chrono::seconds(60);
constexpr std::uint64_t kGpuIsLost = 15;

using Heard = std::map<std::uint32_t, XidCounts>;

class XidWatchTest : public testing::Test {
 protected:
  XidWatchTest() { std::filesystem::create_directories(folder_); }
  ~XidWatchTest() override {
    watch_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  void start() {
    log_ = Fd(::open(path("log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    watch_ = std::make_unique<XidWatch>(config_, Log("node", LogLevel::kInfo, log_.get()), [this] {
      const Lock lock(mutex_);
      told_ = true;
      changed_.notify_all();
    });
  }
  // All that has been heard by the time that there were so many of this GPU.
  Heard hear_until(std::uint32_t gpu, std::uint32_t number, std::uint64_t times = 1) {
    const Instant deadline = system_clock().now() + kHeardWithin;
    while (all_[gpu][number] < times && system_clock().now() < deadline) {
      {
        std::unique_lock<Mutex> lock(mutex_);
        changed_.wait_for(lock, kHeardWithin, [this] { return told_; });
        told_ = false;
      }
      for (const auto& [which, counts] : watch_->take()) {
        for (const auto& [xid, count] : counts) all_[which][xid] += count;
      }
    }
    return all_;
  }
  std::string log() const {
    std::ifstream file(path("log"));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  const std::string folder_ = testing::TempDir() + "flyt-xid-watch-" + std::to_string(::getpid());
  Config config_;
  Fd log_;
  Mutex mutex_;
  Condition changed_;
  bool told_ = false;
  Heard all_;
  std::unique_ptr<XidWatch> watch_;
};

class SoftXidTest : public XidWatchTest {
 protected:
  SoftXidTest() {
    ::setenv("FLYT_SOFTGPU_LOST", folder_.c_str(), 1);
    config_.soft = 2;
  }
  ~SoftXidTest() override { ::unsetenv("FLYT_SOFTGPU_LOST"); }
  void write(int gpu, const std::string& text) const {
    std::ofstream(path("xid-" + std::to_string(gpu)), std::ios::app) << text;
  }
};

TEST_F(SoftXidTest, HearsWhatIsWrittenForEachGpuFromItsStartOn) {
  write(0, "95\n");
  start();
  write(1, "31\n31\n45\n");
  write(0, "79\n");
  hear_until(0, 79);
  EXPECT_EQ(hear_until(1, 45), (Heard{{0, {{79, 1}}}, {1, {{31, 2}, {45, 1}}}}));
}

TEST_F(SoftXidTest, TakesNoNumberForWhatIsNone) {
  start();
  // The last line has not ended.
  write(0, "x\n\n-5\n4711\n99999999999999999999\n 13\n13\n7");
  EXPECT_EQ(hear_until(0, 13), (Heard{{0, {{kOtherXids, 1}, {13, 1}}}}));
  write(0, "9\n");
  EXPECT_EQ(hear_until(0, 79), (Heard{{0, {{kOtherXids, 1}, {13, 1}, {79, 1}}}}));
}

// The events of testing/fake_nvml.cc.
class NvmlXidTest : public XidWatchTest {
 protected:
  NvmlXidTest() : events_(fifo("events")) {
    ::setenv("FLYT_FAKE_NVML_XIDS", path("events").c_str(), 1);
    config_.nvml = FLYT_FAKE_NVML_FILE;
  }
  ~NvmlXidTest() override {
    watch_.reset();
    for (const char* name : {"FLYT_FAKE_NVML", "FLYT_FAKE_NVML_XIDS", "FLYT_FAKE_NVML_HANG"}) {
      ::unsetenv(name);
    }
  }
  Fd fifo(const std::string& name) const {
    EXPECT_EQ(::mkfifo(path(name).c_str(), 0600), 0);
    return Fd(::open(path(name).c_str(), O_RDWR | O_CLOEXEC));
  }
  void start(const char* states) {
    ::setenv("FLYT_FAKE_NVML", states, 1);
    XidWatchTest::start();
  }
  void post(FakeEvent event) const {
    ASSERT_EQ(::write(events_.get(), &event, sizeof event), static_cast<ssize_t>(sizeof event));
  }

  const Fd events_;
};

TEST_F(NvmlXidTest, HearsEachEventOfEachGpu) {
  start("ooo");
  for (int i = 0; i < 500; ++i) post({.handle = 2, .xid = 13});
  post({.handle = 1, .xid = 999});
  post({.handle = 0, .xid = 79});
  hear_until(2, 13, 500);
  EXPECT_EQ(hear_until(0, 79), (Heard{{0, {{79, 1}}}, {1, {{kOtherXids, 1}}}, {2, {{13, 500}}}}));
  EXPECT_EQ(log(), "");
}

TEST_F(NvmlXidTest, KnowsAGpuByAnotherHandle) {
  start("ooo");
  post({.handle = kFakeOtherHandle + 1, .xid = 94});
  EXPECT_EQ(hear_until(1, 94), (Heard{{1, {{94, 1}}}}));
}

TEST_F(NvmlXidTest, TakesAnEventOfAnUnknownGpuForNobodys) {
  start("ooo");
  post({.handle = 7, .xid = 79});
  post({.handle = 7, .xid = 79});
  post({.handle = 2, .xid = 13});
  EXPECT_EQ(hear_until(2, 13), (Heard{{2, {{13, 1}}}}));
  EXPECT_NE(log().find("Xid 79 (the GPU has fallen off the bus) of a GPU that NVML does not name"),
            std::string::npos);
}

TEST_F(NvmlXidTest, TellsOnceOfWhichGpusNothingIsHeard) {
  start("nlo");
  post({.handle = 2, .xid = 45});
  hear_until(2, 45);
  // It listens anew after an error.
  post({.error = kGpuIsLost});
  post({.handle = 2, .xid = 95});
  EXPECT_EQ(hear_until(2, 95), (Heard{{2, {{45, 1}, {95, 1}}}}));
  const std::string said = log();
  for (const std::string line : {"Xids are not read gpu=0 why=\"NVML has no events here\"",
                                 "Xids are not read gpu=1 why=\"NVML says that a GPU is lost\""}) {
    const std::size_t first = said.find(line);
    ASSERT_NE(first, std::string::npos) << said;
    EXPECT_EQ(said.find(line, first + 1), std::string::npos) << said;
  }
  EXPECT_NE(said.find("Xids could not be read"), std::string::npos) << said;
}

TEST_F(NvmlXidTest, EndsWhereThereAreNoEvents) {
  ::unsetenv("FLYT_FAKE_NVML_XIDS");
  start("ooo");
  watch_.reset();
  const std::string said = log();
  for (const char* gpu : {"gpu=0 ", "gpu=1 ", "gpu=2 "}) {
    EXPECT_NE(said.find(gpu), std::string::npos) << said;
  }
}

TEST_F(NvmlXidTest, HearsWhileAnotherQuestionHangs) {
  EXPECT_EQ(::mkfifo(path("hang").c_str(), 0600), 0);
  ::setenv("FLYT_FAKE_NVML_HANG", path("hang").c_str(), 1);
  start("oho");
  // Its first look does not end before somebody opens the FIFO.
  const GpuWatch questions(config_, {}, [] {});
  post({.handle = 1, .xid = 119});
  EXPECT_EQ(hear_until(1, 119), (Heard{{1, {{119, 1}}}}));
  const Fd hang(::open(path("hang").c_str(), O_WRONLY | O_CLOEXEC));
  std::filesystem::remove(path("hang"));
}

}  // namespace
}  // namespace flyt::node
