// RecoveryTest: a server, programs of it that do as they are asked, and kills.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/random.h"
#include "control/lease/control_client.h"
#include "server/recovery/marks.h"
#include "tests/kill/child.h"
#include "tests/support/server_process.h"

namespace flyt::tests {

// Nothing here takes so long, however busy the machine is.
inline constexpr double kSeconds = 60;
// Longer than an idle session takes to notice that all work is done.
inline constexpr double kNoticing = 0.1;
inline constexpr const char* kLaunchFailed = "719";
inline constexpr const char* kUnavailable = "46";

inline std::uint64_t first_seed() {
  const char* given = std::getenv("FLYT_KILL_SEED");
  static const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : random_seed();
  return seed;
}

// FLYT_KILLS: how often each test kills that does so at random moments.
inline int kills() {
  const char* given = std::getenv("FLYT_KILLS");
  return given != nullptr ? std::atoi(given) : 40;
}

// The marks that a session's process keeps, if it has any.
inline std::optional<Result<server::Marks::Told>> marks_of(pid_t process) {
  const std::string folder = "/proc/" + std::to_string(process) + "/fd";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto name = std::filesystem::read_symlink(entry.path(), error).string();
    if (!name.starts_with("/memfd:flyt-marks")) continue;
    const Fd file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    return server::Marks::read(file);
  }
  return std::nullopt;
}

// Whether nothing is under way in a session of that process, by its marks; one without any has
// nothing to notice.
inline bool at_rest(pid_t process) {
  const auto told = marks_of(process);
  return !told || (*told && ((*told)->spoilt != 0 || (*told)->done == (*told)->work));
}

// The last work that it has begun.
inline std::uint64_t work_of(pid_t process) {
  const auto told = marks_of(process);
  return told && *told ? (*told)->work : 0;
}

class RecoveryTest : public ::testing::TestWithParam<const char*> {
 protected:
  ~RecoveryTest() override {
    server_.reset();
    if (HasFailure()) {
      std::printf("FLYT_KILL_SEED=%llu\n", static_cast<unsigned long long>(first_seed()));
    }
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  // In SetUp() of what sets the software GPU up to behave as another GPU.
  static void need_soft_gpu() {
    if (!over_soft_gpu()) GTEST_SKIP() << "only the software GPU can be made to behave so";
  }
  void start(std::vector<std::string> arguments = {"--recover", "10"}) {
    server_ = std::make_unique<ServerProcess>();
    static_cast<void>(folder());
    arguments.insert(arguments.end(), {"--control", control_url()});
    ServerOptions options;
    options.arguments = std::move(arguments);
    options.program = server_program();
    options.listen = GetParam();
    const Status started = server_->start(options);
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  // `job`: as of take_places().
  std::unique_ptr<kill::Child> client(const std::string& options = "", std::string url = "",
                                      const std::string& job = "survivor") {
    if (url.empty()) url = server_->url();
    if (!options.empty()) url += (url.find('?') == url.npos ? "?" : "&") + options;
    auto child = std::make_unique<kill::Child>(job, ++seed_, url);
    EXPECT_TRUE(child->wrote("ready\n", kSeconds)) << child->output() << server_->log();
    return child;
  }
  static std::string ask(const std::unique_ptr<kill::Child>& child, const std::string& line) {
    return child->ask(line, kSeconds);
  }
  // It has some of all that a session goes on with.
  static void equip(const std::unique_ptr<kill::Child>& child) {
    ASSERT_EQ("ok", ask(child, "variables"));
    ASSERT_EQ("ok", ask(child, "learn"));
    ASSERT_EQ("0", ask(child, "pools"));
    ASSERT_EQ("0", ask(child, "mapped"));
  }
  // After lost work. The kill may have come to that of the first "reset", or not.
  void start_over(const std::unique_ptr<kill::Child>& child) {
    std::string again = ask(child, "reset");
    if (again.find(kLaunchFailed) != again.npos) again = ask(child, "reset");
    ASSERT_EQ("ok", again) << server_->log();
    equip(child);
  }
  // The process of the only session: another one than that which was killed last.
  pid_t session() {
    pid_t found = -1;
    EXPECT_TRUE(eventually(kSeconds, [&] {
      const std::vector<pid_t> children = server_->children();
      if (children.size() != 1 || children.front() == killed_) return false;
      found = children.front();
      return true;
    })) << server_->log();
    return found;
  }
  // Kills it when it has noticed that nothing is under way, and saved what it saves.
  void kill_idle() {
    // Who asked for what waits for no answer may not have it yet.
    session();
    settle();
    kill_now();
  }
  // Asks for work that does not end by itself, and returns when the session has begun it: nobody
  // waits for its answer, and what had not been begun would be begun by the next process. What was
  // asked for before must have been waited for.
  void begin_work(const std::unique_ptr<kill::Child>& child, const std::string& request) {
    const pid_t process = session();
    const std::uint64_t before = work_of(process);
    ASSERT_EQ("0", ask(child, request)) << server_->log();
    ASSERT_TRUE(eventually(kSeconds, [&] { return work_of(process) > before; })) << server_->log();
  }
  // The same as kill_idle() where something is under way, so that it notices nothing.
  void kill_at_work() {
    static_cast<void>(eventually(kNoticing, [] { return false; }));
    kill_now();
  }
  void settle() {
    EXPECT_TRUE(eventually(kSeconds, [&] {
      const std::vector<pid_t> children = server_->children();
      return std::all_of(children.begin(), children.end(), at_rest);
    })) << server_->log();
  }
  void kill_now() {
    // -1 would be every process of this user.
    const pid_t process = session();
    ASSERT_GT(process, 1);
    ASSERT_EQ(0, ::kill(process, SIGKILL));
    killed_ = process;
  }
  // Made if there is none yet.
  const std::string& folder() {
    std::string pattern = "/tmp/flyt-recovery-XXXXXX";
    if (folder_.empty() && ::mkdtemp(pattern.data()) != nullptr) folder_ = pattern;
    return folder_;
  }
  std::string keeper_path() { return folder() + "/keeper"; }
  std::string control_url() const { return "unix://" + folder_ + "/control"; }
  // What the lease has in use.
  std::uint64_t used() const {
    auto client = control::ControlClient::connect(control_url());
    if (!client) return ~std::uint64_t{0};
    const auto told = (*client)->describe();
    return told ? told->memory_used : ~std::uint64_t{0};
  }

  std::unique_ptr<ServerProcess> server_;
  std::string folder_;
  std::uint64_t seed_ = 0;
  pid_t killed_ = -1;
};

}  // namespace flyt::tests
