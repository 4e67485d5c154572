#include "tests/conformance/supervisor.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <sstream>

#include "base/fd.h"
#include "tests/conformance/fixture.h"
#include "tests/conformance/sweep.h"

extern char** environ;

namespace flyt::conformance {
namespace {

constexpr const char* kWorkerVariable = "FLYT_CONFORMANCE_WORKER";
constexpr int kBrokenContextExit = 77;

enum class Outcome { kPassed, kFailed, kSkipped, kCrashed, kHung };

struct Record {
  std::string test;
  Outcome outcome;
};

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPassed:
      return "passed";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kSkipped:
      return "skipped";
    case Outcome::kCrashed:
      return "crashed";
    case Outcome::kHung:
      return "hung";
  }
  return "?";
}

// Any of the ':'-separated patterns.
bool matches_any(const std::string& patterns, const std::string& name) {
  std::stringstream stream(patterns);
  std::string pattern;
  while (std::getline(stream, pattern, ':')) {
    if (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  }
  return false;
}

// gtest's own filter language: patterns, then those to leave out behind a '-'.
bool matches(const std::string& filter, const std::string& name) {
  const std::size_t dash = filter.find('-');
  const std::string wanted = filter.substr(0, dash);
  if (!wanted.empty() && !matches_any(wanted, name)) return false;
  return dash == std::string::npos || !matches_any(filter.substr(dash + 1), name);
}

std::vector<std::string> selected_tests() {
  std::vector<std::string> names;
  const ::testing::UnitTest& unit = *::testing::UnitTest::GetInstance();
  const std::string filter = ::testing::GTEST_FLAG(filter);
  for (int s = 0; s < unit.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *unit.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string name = std::string(suite.name()) + "." + test.name();
      if (matches(filter, name)) names.push_back(name);
    }
  }
  return names;
}

bool runs_alone(const std::string& test) {
  const std::string suite = test.substr(0, test.find('.'));
  return suite.ends_with(kAlone);
}

// One worker process and the pipe on which it reports.
class Worker {
 public:
  Worker(const std::vector<std::string>& tests, const SupervisorOptions& options) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    from_ = Fd(ends[0]);
    const Fd to(ends[1]);
    std::string filter = "--gtest_filter=";
    for (const std::string& test : tests) filter += test + ":";
    std::string brief = options.verbose ? "--gtest_brief=0" : "--gtest_brief=1";
    std::string self = "flyt_conformance";
    char* const arguments[] = {self.data(), filter.data(), brief.data(), nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, to.get(), 60);
    ::setenv(kWorkerVariable, "60", 1);
    if (::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, environ) != 0) {
      pid_ = -1;
    }
    ::unsetenv(kWorkerVariable);
    ::posix_spawn_file_actions_destroy(&actions);
  }
  ~Worker() { kill(); }

  // The next line; nothing when the worker is gone or `deadline_seconds` have passed (`late`).
  std::optional<std::string> next_line(int deadline_seconds, bool& late) {
    late = false;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(deadline_seconds);
    while (true) {
      const std::size_t newline = buffer_.find('\n');
      if (newline != std::string::npos) {
        std::string line = buffer_.substr(0, newline);
        buffer_.erase(0, newline + 1);
        return line;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd readable{from_.get(), POLLIN, 0};
      if (left.count() <= 0 || ::poll(&readable, 1, static_cast<int>(left.count())) == 0) {
        late = true;
        return std::nullopt;
      }
      char bytes[4096];
      const ssize_t count = ::read(from_.get(), bytes, sizeof(bytes));
      if (count <= 0) return std::nullopt;
      buffer_.append(bytes, static_cast<std::size_t>(count));
    }
  }

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  // Lets the worker end by itself, as libraries with exit handlers may want to. How it ended: 0,
  // an exit status, or minus the signal.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t pid_ = -1;
  Fd from_;
  std::string buffer_;
};

// Runs `tests` in one worker for as long as it lives; appends what became of each and returns
// those that it did not come to.
std::vector<std::string> run_worker(const std::vector<std::string>& tests,
                                    const SupervisorOptions& options,
                                    std::vector<Record>& records) {
  Worker worker(tests, options);
  std::deque<std::string> left(tests.begin(), tests.end());
  std::string running;
  bool late = false;
  while (auto line = worker.next_line(options.deadline_seconds, late)) {
    const std::string name = line->substr(2);
    if ((*line)[0] == 'S') {
      running = name;
      continue;
    }
    const Outcome outcome = (*line)[0] == 'P'   ? Outcome::kPassed
                            : (*line)[0] == 'F' ? Outcome::kFailed
                                                : Outcome::kSkipped;
    records.push_back({name, outcome});
    std::erase(left, name);
    running.clear();
  }
  if (late) worker.kill();
  const int ended = late ? 0 : worker.wait();
  if (!running.empty() || (late && !left.empty())) {
    const std::string blamed = running.empty() ? left.front() : running;
    std::fprintf(stderr, "%s: %s (%d)\n", late ? "HUNG" : "CRASHED", blamed.c_str(), ended);
    records.push_back({blamed, late ? Outcome::kHung : Outcome::kCrashed});
    std::erase(left, blamed);
    std::vector<Record> rest;
    if (goes_on_behind(blamed)) run_worker({blamed}, options, rest);
  } else if (left.size() == tests.size()) {
    std::fprintf(stderr, "a worker ended (%d) without running a test\n", ended);
    for (const std::string& test : left) records.push_back({test, Outcome::kCrashed});
    return {};
  }
  return {left.begin(), left.end()};
}

// How many records are not what the lists say; each is printed.
int judge(const std::vector<Record>& records, const Expectations& lists) {
  int wrong = 0;
  int counts[5] = {};
  int known = 0;
  for (const Record& record : records) {
    ++counts[static_cast<int>(record.outcome)];
    const bool bad = record.outcome != Outcome::kPassed && record.outcome != Outcome::kSkipped;
    const bool listed = expected(lists, record.test) != nullptr;
    if (bad && listed) ++known;
    if (bad && !listed)
      std::printf("WRONG %s: %s\n", record.test.c_str(), to_string(record.outcome));
    if (listed && record.outcome == Outcome::kPassed) {
      std::printf("WRONG %s: passed, but is listed as failing\n", record.test.c_str());
    }
    if (bad != listed && record.outcome != Outcome::kSkipped) ++wrong;
  }
  std::printf("%zu tests: %d passed, %d failed, %d crashed, %d hung, %d skipped; %d as listed\n",
              records.size(), counts[0], counts[1], counts[3], counts[4], counts[2], known);
  return wrong;
}

// Reports each test as it begins and ends, and ends the worker when a test left the primary
// context broken: what follows would fail for no fault of its own.
class Reporter : public ::testing::EmptyTestEventListener {
 public:
  explicit Reporter(int fd) : fd_(fd) {}

  void OnTestStart(const ::testing::TestInfo& test) override { report('S', test); }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    const ::testing::TestResult& result = *test.result();
    report(result.Skipped() ? 'K' : result.Passed() ? 'P' : 'F', test);
    if (result.Failed() && !runs_alone(test.test_suite_name()) && context_is_broken()) {
      std::fflush(nullptr);
      ::_exit(kBrokenContextExit);
    }
  }

 private:
  void report(char what, const ::testing::TestInfo& test) {
    const std::string line =
        std::string(1, what) + " " + test.test_suite_name() + "." + test.name() + "\n";
    if (::write(fd_, line.data(), line.size()) < 0) ::_exit(3);
  }
  static bool context_is_broken() {
    const Unrecorded quiet;
    CUcontext context = nullptr;
    if (cu().cuInit(0) != CUDA_SUCCESS) return true;
    if (cu().cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) return true;
    if (cu().cuCtxSetCurrent(context) != CUDA_SUCCESS) return true;
    const bool broken = cu().cuCtxSynchronize() != CUDA_SUCCESS;
    cu().cuDevicePrimaryCtxRelease_v2(0);
    return broken;
  }

  int fd_;
};

}  // namespace

int supervise(const SupervisorOptions& options) {
  const auto lists = read_lists(options.lists, options.driver);
  if (!lists) {
    std::fprintf(stderr, "flyt_conformance: %s\n", lists.error().message.c_str());
    return 2;
  }
  std::vector<std::string> together;
  std::vector<std::string> alone;
  for (const std::string& test : selected_tests()) {
    const Expectation* listed = expected(*lists, test);
    if (listed != nullptr && !listed->runnable()) continue;
    (runs_alone(test) ? alone : together).push_back(test);
  }
  std::vector<Record> records;
  while (!together.empty()) together = run_worker(together, options, records);
  for (const std::string& test : alone) run_worker({test}, options, records);
  return judge(records, *lists) == 0 ? 0 : 1;
}

bool is_worker() { return std::getenv(kWorkerVariable) != nullptr; }

int work() {
  ::testing::UnitTest::GetInstance()->listeners().Append(
      std::make_unique<Reporter>(std::atoi(std::getenv(kWorkerVariable))).release());
  return RUN_ALL_TESTS();
}

}  // namespace flyt::conformance
