// flyt-bench: native against remote, on each transport, in one run.
//   --driver auto|soft|PATH  what the server uses and what native is (auto: a real GPU if any)
//   --json PATH              also writes the figures there
//   --delay TIME             the server seems that far away, such as 1ms (?delay= of its URL)
//   --recovery [--mib N] [--rounds N]   how long a killed session takes to go on, alone
//   --quick                  fewer repeats, no copies above 16 MiB
//   --worker WORK --library PATH   one part alone, of one library, as gpu_bench.py needs it:
//                            probe, start, figures, rounds (worker.h); raw needs no library,
//                            and takes --delay for sockets as far away besides;
//                            elastic (elastic.h), for which --control URL names a server's control
#include <errno.h>
#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <thread>

#include "bench/elastic.h"
#include "bench/raw_socket.h"
#include "bench/recovery.h"
#include "bench/report.h"
#include "bench/worker.h"
#include "tests/support/server_process.h"
#include "transport/url.h"

namespace flyt::bench {
namespace {

struct Options {
  std::string driver = "auto";
  std::string json;
  std::string delay;
  bool quick = false;
};

std::string own_path() {
  char path[4096] = {};
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path) - 1);
  return std::string(path, size > 0 ? static_cast<std::size_t>(size) : 0);
}

// Runs this program as a worker and reads what it prints; nothing if it failed.
Figures worker(const char* work, const std::string& library, bool quick, bool loud = true) {
  const std::string command = "'" + own_path() + "' --worker " + work + " --library '" + library +
                              "'" + (quick ? " --quick" : "") + (loud ? "" : " 2>/dev/null");
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string text;
  char line[256];
  while (pipe != nullptr && std::fgets(line, sizeof(line), pipe) != nullptr) text += line;
  const bool failed = pipe == nullptr || ::pclose(pipe) != 0;
  Figures figures = parse_figures(text);
  if (!failed) figures["ok"] = 1;
  return figures;
}

// Figures through a private server that listens at `listen` (as tests::ServerOptions says).
Result<Figures> remote(const Options& options, const std::string& driver,
                       const std::string& listen) {
  const std::string client = tests::built_library("client/libcuda.so.1");
  Figures all;
  for (const bool warm : {false, true}) {
    tests::ServerProcess server;
    tests::ServerOptions how;
    how.program = tests::server_program();
    how.driver = driver;
    how.listen = listen;
    if (warm) how.arguments = {"--warm", "1"};
    if (const auto started = server.start(how); !started) return started.error();
    std::string url = server.url();
    if (!options.delay.empty()) {
      url += (url.find('?') == std::string::npos ? "?delay=" : "&delay=") + options.delay;
    }
    ::setenv("FLYT_SERVER", url.c_str(), 1);
    // A warm server has had the time that a first client takes, and another.
    if (warm) worker("start", client, options.quick);
    all[warm ? "start_warm_ms" : "start_cold_ms"] =
        worker("start", client, options.quick)["start_ms"];
    if (warm) continue;
    all.merge(worker("figures", client, options.quick));
    if (all.count("ok") == 0) {
      return Error{ErrorCode::kLost,
                   "the remote worker failed; the server logged:\n" + server.log()};
    }
  }
  return all;
}

std::string machine() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  std::string processor = "unknown processor";
  while (std::getline(file, text)) {
    if (text.starts_with("model name")) processor = text.substr(text.find(':') + 2);
  }
  utsname system{};
  ::uname(&system);
  return processor + ", " + std::to_string(std::thread::hardware_concurrency()) + " cores, " +
         system.sysname + " " + system.release;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
  return text;
}

int fail(const Error& error) {
  std::fprintf(stderr, "flyt-bench: %s\n", error.message.c_str());
  return 1;
}

int measure(const Options& options) {
  Measured measured;
  measured.machine = machine();
  measured.date = today();
  measured.delay = options.delay;
  std::string driver = options.driver;
  if (driver == "auto") {
    driver =
        worker("probe", "libcuda.so.1", true, false).count("ok") != 0 ? "libcuda.so.1" : "soft";
  }
  const std::string native = driver == "soft" ? tests::built_library("libflyt-softgpu.so") : driver;
  measured.driver = driver == "soft" ? "software GPU" : driver;
  measured.native = worker("figures", native, options.quick);
  if (measured.native.count("ok") == 0) return 1;
  measured.native["start_cold_ms"] = worker("start", native, options.quick)["start_ms"];
  struct How {
    const char* name;
    const char* listen;
    std::optional<SocketKind> raw;
  };
  for (const How& how : {How{"shm", "shm", std::nullopt}, How{"unix", "unix", SocketKind::kUnix},
                         How{"tcp", "tcp://127.0.0.1:0", SocketKind::kTcp}}) {
    // Shared memory is never far away.
    if (!options.delay.empty() && !how.raw) continue;
    auto figures = remote(options, driver, how.listen);
    if (!figures) return fail(figures.error());
    Remote one{how.name, std::move(*figures), {}};
    if (how.raw) {
      auto raw = measure_raw_socket(*how.raw);
      if (!raw) return fail(raw.error());
      one.raw = std::move(*raw);
    }
    measured.remotes.push_back(std::move(one));
  }
  std::fputs(table_of(measured).c_str(), stdout);
  if (options.json.empty()) return 0;
  const auto written = write_json(measured, options.json);
  return written ? 0 : fail(written.error());
}

// One kind of raw sockets alone, as "name value" lines; `streams`: over several of them, too.
Status print_raw(const std::string& name, SocketKind kind, bool streams, Duration delay) {
  auto figures = measure_raw_round_trip(kind, delay);
  if (!figures) return figures.error();
  if (streams) {
    auto rates = measure_raw_streams(kind, delay);
    if (!rates) return rates.error();
    figures->merge(*rates);
  }
  for (const auto& [figure, value] : *figures) {
    std::printf("%s_%s %.4f\n", name.c_str(), figure.c_str(), value);
  }
  return {};
}

int measure_raw(const std::string& delay) {
  Status done = print_raw("unix", SocketKind::kUnix, false, {});
  if (done) done = print_raw("tcp", SocketKind::kTcp, true, {});
  if (done && !delay.empty()) {
    auto far = transport::parse_url("tcp://localhost:1?delay=" + delay);
    if (!far) return fail(far.error());
    done = print_raw("tcp+" + delay, SocketKind::kTcp, true, far->delay);
  }
  return done ? 0 : fail(done.error());
}

}  // namespace
}  // namespace flyt::bench

int main(int argc, char** argv) {
  using flyt::bench::Work;
  flyt::bench::Options options;
  std::string work;
  std::string library;
  std::string control;
  flyt::bench::RecoveryOptions recovery;
  bool recovers = false;
  if (argc == 4 && std::string(argv[1]) == "--client") {
    return flyt::bench::run_recovery_client(std::strtoull(argv[3], nullptr, 10));
  }
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (word == "--quick") {
      options.quick = true;
    } else if (word == "--driver") {
      options.driver = value();
    } else if (word == "--json") {
      options.json = value();
    } else if (word == "--delay") {
      options.delay = value();
    } else if (word == "--recovery") {
      recovers = true;
    } else if (word == "--mib") {
      recovery.mebibytes = std::max(4ULL, std::strtoull(value().c_str(), nullptr, 10));
    } else if (word == "--rounds") {
      recovery.rounds = std::max(1, std::atoi(value().c_str()));
    } else if (word == "--worker") {
      work = value();
    } else if (word == "--library") {
      library = value();
    } else if (word == "--control") {
      control = value();
    } else {
      std::puts(
          "usage: flyt-bench [--driver auto|soft|PATH] [--json PATH] [--delay TIME] [--quick]\n"
          "       flyt-bench --recovery [--driver auto|soft|PATH] [--mib N] [--rounds N]");
      return word == "--help" ? 0 : 2;
    }
  }
  if (recovers) {
    recovery.driver = options.driver;
    return flyt::bench::measure_recovery(recovery);
  }
  if (work.empty()) return flyt::bench::measure(options);
  if (work == "elastic") return flyt::bench::run_elastic(library, control);
  if (work == "raw") return flyt::bench::measure_raw(options.delay);
  const Work which = work == "probe"    ? Work::kProbe
                     : work == "start"  ? Work::kStart
                     : work == "rounds" ? Work::kRounds
                                        : Work::kFigures;
  return flyt::bench::run_worker(which, library, options.quick);
}
