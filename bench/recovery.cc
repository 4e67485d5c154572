#include "bench/recovery.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "bench/stopwatch.h"
#include "control/lease/control_client.h"
#include "tests/kill/child.h"
#include "tests/support/cuda_library.h"
#include "tests/support/server_process.h"

namespace flyt::bench {
namespace {

constexpr double kSeconds = 120;
// Until a session has noticed that nothing is under way.
constexpr double kSettled = 0.1;
// A process that is being made warm works; one that has done nothing for so many looks is ready.
constexpr double kWarmLook = 0.1;
constexpr int kWarmLooks = 4;
constexpr double kWarmMost = 30;
constexpr std::uint64_t kEdgeBytes = 1 << 20;
constexpr std::uint8_t kMark = 0x5a;

void pause(double seconds) {
  static_cast<void>(tests::eventually(seconds, [] { return false; }));
}

// Holds memory and looks at it.
class Holder {
 public:
  explicit Holder(const tests::CudaLibrary& cuda) : cu_(cuda) {}

  CUresult start(std::uint64_t mebibytes) {
    CUcontext context = nullptr;
    bytes_ = mebibytes << 20;
    CUresult result = cu_.cuInit(0);
    if (result == CUDA_SUCCESS) result = cu_.cuDevicePrimaryCtxRetain(&context, 0);
    if (result == CUDA_SUCCESS) result = cu_.cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS) result = cu_.cuMemAlloc_v2(&memory_, bytes_);
    CUstream stream = nullptr;
    if (result == CUDA_SUCCESS) result = cu_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) result = cu_.cuMemsetD8Async(memory_, kMark, bytes_, stream);
    return result == CUDA_SUCCESS ? cu_.cuCtxSynchronize() : result;
  }
  // Microseconds of a call that answers at once while the server is there; -1: it failed.
  double next_call() {
    std::size_t available = 0;
    std::size_t total = 0;
    const Stopwatch watch;
    const CUresult result = cu_.cuMemGetInfo_v2(&available, &total);
    const double took = watch.us();
    return result == CUDA_SUCCESS ? took : -1;
  }
  bool intact() {
    std::vector<std::uint8_t> found(kEdgeBytes);
    for (const std::uint64_t offset : {std::uint64_t{0}, bytes_ / 2, bytes_ - kEdgeBytes}) {
      if (cu_.cuMemcpyDtoH_v2(found.data(), memory_ + offset, kEdgeBytes) != CUDA_SUCCESS) {
        return false;
      }
      const bool same =
          std::all_of(found.begin(), found.end(), [](std::uint8_t byte) { return byte == kMark; });
      if (!same) return false;
    }
    return true;
  }

 private:
  const tests::CudaLibrary& cu_;
  CUdeviceptr memory_ = 0;
  std::uint64_t bytes_ = 0;
};

// Processor time of a process; 0: it is gone.
std::uint64_t ticks_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string skipped;
  // proc(5) counts from 1: the 14th and the 15th.
  for (int i = 3; i < 14; ++i) fields >> skipped;
  std::uint64_t user = 0;
  std::uint64_t system = 0;
  fields >> user >> system;
  return user + system;
}

// Waits until the server has a process beside the session's, and that has nothing to do any more.
void await_warm(const tests::ServerProcess& server, pid_t session) {
  std::uint64_t before = 0;
  int same = 0;
  static_cast<void>(tests::eventually(kWarmMost, [&] {
    pause(kWarmLook);
    std::uint64_t now = 0;
    for (const pid_t child : server.children()) {
      if (child != session) now += ticks_of(child) + 1;
    }
    same = now != 0 && now == before ? same + 1 : 0;
    before = now;
    return same >= kWarmLooks;
  }));
}

// What takes long is told as it happens.
void tell(const std::string& what) {
  std::fprintf(stderr, "  %s\n", what.c_str());
  std::fflush(stderr);
}

// The process that serves the only session.
pid_t session_of(const std::string& control_url) {
  auto client = control::ControlClient::connect(control_url);
  const auto sessions = client ? (*client)->sessions() : client.error();
  if (!sessions || sessions->empty()) return -1;
  return static_cast<pid_t>(sessions->back().server_process);
}

// Milliseconds of each round; empty if one failed, which was told.
std::vector<double> measure(const RecoveryOptions& options, const std::string& listen) {
  std::string folder = "/tmp/flyt-bench-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return {};
  const std::string control = "unix://" + folder + "/control";
  tests::ServerProcess server;
  tests::ServerOptions how;
  how.program = tests::server_program();
  how.driver = options.driver;
  how.listen = listen;
  how.arguments = {"--recover", "30", "--warm", "1", "--warm-pause", "0", "--control", control};
  std::vector<double> rounds;
  if (const Status started = server.start(how); !started) {
    std::fprintf(stderr, "flyt-bench: %s\n", started.error().message.c_str());
    return rounds;
  }
  const Stopwatch watch;
  const auto since_start = [&watch] {
    return "at " + std::to_string(static_cast<int>(watch.us() / 1000)) + " ms: ";
  };
  kill::Child client("recovery", options.mebibytes, server.url());
  bool good = client.wrote("ready\n", kSeconds);
  tell(listen + ", " + since_start() + (good ? "the program has its memory" : "no program"));
  for (int i = 0; good && i < options.rounds; ++i) {
    const pid_t process = session_of(control);
    await_warm(server, process);
    tell(since_start() + "another process is warm; the session's is killed");
    good = process > 0 && ::kill(process, SIGKILL) == 0;
    const double us = good ? std::atof(client.ask("next", kSeconds).c_str()) : -1;
    good = us > 0;
    if (good) rounds.push_back(us / 1000);
  }
  if (!good) {
    std::fprintf(stderr, "flyt-bench: recovery failed: %s\nThe server logged:\n%s\n",
                 client.output().c_str(), server.log().c_str());
    rounds.clear();
  }
  std::filesystem::remove_all(folder);
  return rounds;
}

}  // namespace

int run_recovery_client(std::uint64_t mebibytes) {
  const auto library = tests::load_cuda(tests::built_library("client/libcuda.so.1"));
  if (!library) return 2;
  Holder holder(*library);
  if (const CUresult failed = holder.start(mebibytes); failed != CUDA_SUCCESS) {
    std::cout << "failed " << static_cast<int>(failed) << std::endl;
    return 1;
  }
  pause(kSettled);
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const double took = holder.next_call();
    std::cout << (holder.intact() ? took : -1) << std::endl;
    pause(kSettled);
  }
  return 0;
}

int measure_recovery(const RecoveryOptions& options) {
  // A line at once, also into a pipe: a real GPU takes half a minute for each.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::printf("Recovery of an idle session with %llu MiB, from the next call to its answer, ms\n",
              static_cast<unsigned long long>(options.mebibytes));
  std::printf("%-10s %8s %8s %8s\n", "transport", "best", "median", "worst");
  int status = 0;
  for (const auto& [name, listen] : {std::pair{"shm", "shm"}, std::pair{"unix", "unix"},
                                     std::pair{"tcp", "tcp://127.0.0.1:0"}}) {
    std::vector<double> rounds = measure(options, listen);
    if (rounds.empty()) {
      std::printf("%-10s %8s %8s %8s\n", name, "-", "-", "-");
      status = 1;
      continue;
    }
    std::sort(rounds.begin(), rounds.end());
    std::printf("%-10s %8.2f %8.2f %8.2f\n", name, rounds.front(), rounds[rounds.size() / 2],
                rounds.back());
  }
  return status;
}

}  // namespace flyt::bench
