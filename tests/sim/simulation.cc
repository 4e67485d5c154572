#include "tests/sim/simulation.h"

#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <vector>

#include "base/random.h"
#include "client/current.h"
#include "client/session.h"
#include "commands/ops.h"
#include "cuda/functions.h"
#include "driver/load.h"
#include "rpc/endpoint.h"
#include "server/session.h"
#include "server/transfers/pinned_memory.h"
#include "tests/support/server_process.h"

namespace flyt::sim {
namespace {

constexpr auto kDeadline = std::chrono::seconds(60);

const driver::Table& soft_driver() {
  static const driver::Driver driver = [] {
    auto loaded = driver::load(tests::built_library("libflyt-softgpu.so"));
    if (!loaded || loaded->table.cuInit(0) != CUDA_SUCCESS) {
      std::fprintf(stderr, "flyt_sim: no software GPU\n");
      std::abort();
    }
    return std::move(*loaded);
  }();
  return driver.table;
}

// The server's side of one session, from the hello to its end.
std::string serve(std::unique_ptr<transport::Connection> connection) {
  const Log log("server", LogLevel::kOff);
  const Instant deadline = system_clock().now() + std::chrono::seconds(20);
  auto hello = rpc::receive_hello(*connection, deadline);
  if (!hello) return hello.error().message;
  const auto limits = wire::common_limits(wire::Limits{}, hello->limits);
  if (!limits) return limits.error().message;
  // Client and server share one address space here, so that no window can be had by both.
  wire::Welcome welcome;
  welcome.name = "simulated";
  welcome.driver = "soft";
  welcome.limits = *limits;
  welcome.highest_op = commands::kOpMax;
  if (const auto sent = rpc::send_welcome(*connection, welcome, deadline); !sent) {
    return sent.error().message;
  }
  server::HostBuffers buffers(soft_driver());
  rpc::Endpoint endpoint(std::move(connection), *limits, buffers.received);
  server::Session session(
      {.endpoint = endpoint, .driver = soft_driver(), .buffers = buffers, .log = log});
  return session.run();
}

// A program of random calls that knows what every result must be.
class Program {
 public:
  Program(std::uint64_t seed, Outcome& outcome) : random_(seed), outcome_(outcome) {}

  void run(int calls) {
    CUcontext context = nullptr;
    note(cuInit(0));
    note(cuDevicePrimaryCtxRetain(&context, 0));
    note(cuCtxSetCurrent(context));
    note(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    note(cuEventCreate(&event_, 0));
    note(cuMemAlloc_v2(&memory_, kBytes));
    expected_.assign(kBytes, 0);
    note(cuMemsetD8Async(memory_, 0, kBytes, stream_));
    note(cuStreamSynchronize(stream_));
    for (int i = 0; i < calls; ++i) step();
  }

 private:
  static constexpr std::size_t kBytes = 300000;

  void note(CUresult result) {
    ++outcome_.calls;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
      ++outcome_.errors;
    } else if (outcome_.errors > 0) {
      ++outcome_.successes_after_an_error;
    }
  }
  void step() {
    const std::size_t at = random_.below(kBytes);
    const std::size_t size =
        1 +
        random_.below(random_.one_in(8) ? kBytes - at : std::min(kBytes - at, std::size_t{500}));
    switch (random_.below(7)) {
      case 0:
        return write(at, size);
      case 1:
        return fill(at, size);
      case 2:
        return read(at, size);
      case 3:
        return note(cuEventRecord(event_, stream_));
      case 4:
        return note(cuEventQuery(event_));
      case 5:
        return note(cuStreamSynchronize(stream_));
      default:
        return allocate(size);
    }
  }
  void write(std::size_t at, std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random_.next());
    note(cuMemcpyHtoDAsync_v2(memory_ + at, bytes.data(), size, stream_));
    std::copy(bytes.begin(), bytes.end(), expected_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void fill(std::size_t at, std::size_t size) {
    const auto value = static_cast<std::uint8_t>(random_.next());
    note(cuMemsetD8Async(memory_ + at, value, size, stream_));
    std::fill_n(expected_.begin() + static_cast<std::ptrdiff_t>(at), size, value);
  }
  void read(std::size_t at, std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    CUresult result = cuMemcpyDtoHAsync_v2(bytes.data(), memory_ + at, size, stream_);
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(stream_);
    note(result);
    const bool right =
        std::equal(bytes.begin(), bytes.end(), expected_.begin() + static_cast<std::ptrdiff_t>(at));
    outcome_.wrong_results += result == CUDA_SUCCESS && !right;
  }
  void allocate(std::size_t size) {
    CUdeviceptr address = 0;
    const CUresult result = cuMemAlloc_v2(&address, size);
    note(result);
    outcome_.wrong_results += result == CUDA_SUCCESS && address == 0;
    if (result == CUDA_SUCCESS) note(cuMemFree_v2(address));
  }

  Random random_;
  Outcome& outcome_;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUdeviceptr memory_ = 0;
  std::vector<std::uint8_t> expected_;
};

void play(std::unique_ptr<transport::Connection> connection, std::uint64_t seed, int calls,
          Outcome& outcome) {
  client::SessionOptions options;
  options.connect_timeout = std::chrono::seconds(20);
  options.log_level = LogLevel::kOff;
  auto session = client::Session::open(std::move(connection), options);
  if (!session) return;
  outcome.opened = true;
  const client::SessionScope scope(session->get());
  Program(seed, outcome).run(calls);
}

}  // namespace

Outcome simulate(std::uint64_t seed, const transport::SimOptions& options, int calls) {
  Outcome outcome;
  soft_driver();
  auto pair = transport::sim_pair(options);
  if (!pair) return outcome;
  auto server = std::async(std::launch::async, serve, std::move(pair->second));
  auto client = std::async(std::launch::async, [&, connection = std::move(pair->first)]() mutable {
    play(std::move(connection), seed, calls, outcome);
  });
  if (client.wait_for(kDeadline) != std::future_status::ready ||
      server.wait_for(kDeadline) != std::future_status::ready) {
    std::fprintf(stderr, "flyt_sim: seed %llu hangs\n", static_cast<unsigned long long>(seed));
    std::abort();
  }
  outcome.server_reason = server.get();
  outcome.finished = true;
  soft_driver().cuDevicePrimaryCtxReset_v2(0);
  return outcome;
}

}  // namespace flyt::sim
