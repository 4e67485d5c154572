// flyt_conformance: the CUDA driver's documented behaviour, call by call, against any libcuda.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "control/lease/control_client.h"
#include "tests/conformance/driver.h"
#include "tests/conformance/peer_process.h"
#include "tests/conformance/supervisor.h"
#include "tests/conformance/sweep.h"
#include "tests/support/server_process.h"

namespace {

constexpr const char* kHelp =
    R"(flyt_conformance: the CUDA driver's documented behaviour, call by call, against any libcuda.

  --library PATH        the driver under test; required
  --driver NAME         whose lists hold: soft (the default), nvidia, remote-soft, remote-nvidia
  --lists FOLDER        where NAME.never and NAME.not_yet are: tests/conformance/lists
  --transcript FILE     every call and its result, in order; FILE is made anew
  --server-driver WHICH start a private flyt-server for the library to talk to, over this driver:
                        auto, soft or a path. With remote-*: this, or FLYT_SERVER names a server
  --listen URL          where that server listens (shm, unix: at a private path; default shm)
  --moving URL          that server's control, by which its multiprocessors change all the time
  --sweep               no test but these: every call, with one argument after the other changed
  --deadline SECONDS    for one test (150)
  --verbose             print passing tests too
  --help                this text; options of gtest: --gtest_help

Everything that starts with --gtest_ goes to gtest: --gtest_filter=Link*:Logs* runs some tests.
)";

struct Options {
  flyt::conformance::SupervisorOptions supervisor;
  flyt::tests::ServerOptions server;
  std::string moving;
  bool remote = false;
  bool sweep = false;
};

// gtest would print its own help and run nothing.
bool wants_help(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [](const char* word) {
    return std::string_view(word) == "--help" || std::string_view(word) == "-h";
  });
}

// What the options lack, or nothing. Without it every test would fail, each with an error of its
// own.
const char* lacking(const Options& options) {
  if (std::getenv("FLYT_CONFORMANCE_LIBRARY") == nullptr) return "no --library PATH given";
  const bool remote = options.supervisor.driver.starts_with("remote-");
  if (!remote || options.remote || std::getenv("FLYT_SERVER") != nullptr) return nullptr;
  return "--driver remote-* needs --server-driver (auto, soft or a path), or FLYT_SERVER to be the "
         "URL of a server";
}

// False, with a message, on an unknown option.
bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--verbose") {
      options.supervisor.verbose = true;
      continue;
    }
    if (word == "--sweep") {
      options.sweep = true;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (value == nullptr) {
      std::fprintf(stderr, "flyt_conformance: %s needs a value\n", word.c_str());
      return false;
    }
    if (word == "--library") {
      ::setenv("FLYT_CONFORMANCE_LIBRARY", value, 1);
    } else if (word == "--transcript") {
      std::remove(value);
      ::setenv("FLYT_CONFORMANCE_TRANSCRIPT", value, 1);
    } else if (word == "--driver") {
      options.supervisor.driver = value;
    } else if (word == "--lists") {
      options.supervisor.lists = value;
    } else if (word == "--deadline") {
      options.supervisor.deadline_seconds = std::atoi(value);
    } else if (word == "--server-driver") {
      options.server.driver = value;
      options.remote = true;
    } else if (word == "--moving") {
      options.moving = value;
      options.server.arguments.insert(options.server.arguments.end(),
                                      {"--gpu", "0", "--control", value});
    } else if (word == "--listen") {
      options.server.listen = value;
    } else {
      std::fprintf(stderr, "flyt_conformance: unknown option %s\n", word.c_str());
      return false;
    }
  }
  return true;
}

// The lines of a server's log that are not the ordinary coming and going of sessions.
std::string notable(const std::string& log) {
  std::istringstream lines(log);
  std::string line;
  std::string kept;
  while (std::getline(lines, line)) {
    const bool ordinary = line.find("session started") != std::string::npos ||
                          line.find("client left") != std::string::npos ||
                          line.find("closed by the peer") != std::string::npos;
    if (!ordinary) kept += line + "\n";
  }
  return kept;
}

// Gives the server's sessions other multiprocessors until it goes.
class Mover {
 public:
  explicit Mover(const std::string& url) {
    if (!url.empty()) thread_ = std::thread([this, url] { loop(url); });
  }
  ~Mover() {
    over_.store(true);
    if (thread_.joinable()) thread_.join();
  }

 private:
  void loop(const std::string& url) {
    const auto client = flyt::control::ControlClient::connect(url);
    // All of them as well, so that cooperative launches find room now and then.
    const std::vector<std::vector<std::uint32_t>> shapes = {{0, 1}, {2, 3}, {0, 1, 2, 3}, {1, 3}};
    for (std::size_t i = 0; client.ok() && !over_.load(); ++i) {
      if (!(*client)->set_groups(shapes[i % shapes.size()], std::chrono::milliseconds(20)).ok()) {
        return;
      }
    }
  }

  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace

int main(int argc, char** argv) {
  if (wants_help(argc, argv)) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  if (flyt::conformance::is_peer()) return flyt::conformance::serve_as_peer();
  flyt::conformance::register_sweep();
  if (flyt::conformance::is_worker()) return flyt::conformance::work();
  Options options;
  if (!parse(argc, argv, options)) return 2;
  if (const char* const missing = lacking(options)) {
    std::fprintf(stderr, "flyt_conformance: %s; --help tells more\n", missing);
    return 2;
  }
  if (options.sweep) flyt::conformance::sweep_only(options.supervisor.driver);
  // NVIDIA's driver loads a kernel when it is first used, and then waits for whatever runs; a test
  // that holds a stream with a kernel of its own would wait for itself.
  if (options.supervisor.driver.ends_with("nvidia")) ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  flyt::tests::ServerProcess server;
  if (options.remote) {
    options.server.program = flyt::tests::server_program();
    if (const auto started = server.start(options.server); !started) {
      std::fprintf(stderr, "flyt_conformance: %s\n", started.error().message.c_str());
      return 2;
    }
    ::setenv("FLYT_SERVER", server.url().c_str(), 1);
  }
  const Mover mover(options.moving);
  const int result = flyt::conformance::supervise(options.supervisor);
  if (options.remote && (result != 0 || !server.running())) {
    std::fprintf(stderr, "flyt_conformance: the server logged:\n%s", notable(server.log()).c_str());
  }
  return options.remote && !server.running() ? 1 : result;
}
