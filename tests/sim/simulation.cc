#include "tests/sim/simulation.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "base/random.h"
#include "client/current.h"
#include "client/session.h"
#include "commands/ops.h"
#include "cuda/functions.h"
#include "driver/load.h"
#include "rpc/endpoint.h"
#include "server/memory_subjects.h"
#include "server/session.h"
#include "server/transfers/lanes.h"
#include "server/transfers/pinned_memory.h"
#include "tests/support/server_process.h"

namespace flyt::sim {
namespace {

constexpr auto kDeadline = std::chrono::seconds(60);

struct LaneTraffic {
  std::atomic<std::uint64_t> to_server{0};
  std::atomic<std::uint64_t> to_client{0};
};

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

// Any, but for zeros.
constexpr wire::SessionToken kToken{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

// Where the server finds the lanes that the client makes. Safe from any thread.
class Door {
 public:
  void put(std::unique_ptr<transport::Connection> connection) {
    const Lock lock(mutex_);
    waiting_.push_back(std::move(connection));
    changed_.notify_all();
  }
  // Null when it is closed.
  std::unique_ptr<transport::Connection> take() {
    const Lock lock(mutex_);
    while (waiting_.empty() && !closed_) changed_.wait(mutex_);
    if (closed_) return nullptr;
    auto first = std::move(waiting_.front());
    waiting_.pop_front();
    return first;
  }
  void close() {
    const Lock lock(mutex_);
    closed_ = true;
    waiting_.clear();
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  Condition changed_;
  std::deque<std::unique_ptr<transport::Connection>> waiting_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

// As the server's LaneDoor does with what its parent passes on.
void admit_lanes(Door& door, server::Session& session) {
  while (auto connection = door.take()) {
    const auto hello =
        rpc::receive_hello(*connection, system_clock().now() + std::chrono::seconds(20));
    if (!hello || hello->role != wire::ConnectionRole::kBulk || hello->token != kToken) continue;
    session.memory().lanes.admit(std::move(connection), *hello);
  }
}

// The server's side of one session, from the hello to its end.
std::string serve(std::unique_ptr<transport::Connection> connection, Door& door) {
  const Log log("server", LogLevel::kOff);
  const Instant deadline = system_clock().now() + std::chrono::seconds(20);
  auto hello = rpc::receive_hello(*connection, deadline);
  if (!hello) return hello.error().message;
  const auto limits = wire::common_limits(wire::Limits{}, hello->limits);
  if (!limits) return limits.error().message;
  // Client and server share one address space here, so that no window can be had by both.
  wire::Welcome welcome;
  welcome.name = "simulated";
  welcome.driver = wire::kSoftDriver;
  welcome.token = kToken;
  welcome.limits = *limits;
  welcome.highest_op = commands::kOpMax;
  if (const auto sent = rpc::send_welcome(*connection, welcome, deadline); !sent) {
    return sent.error().message;
  }
  server::HostBuffers buffers(soft_driver());
  rpc::Endpoint endpoint(std::move(connection), *limits, buffers.received);
  server::Session session(
      {.endpoint = endpoint, .driver = soft_driver(), .buffers = buffers, .log = log});
  auto admitting = std::async(std::launch::async, [&] { admit_lanes(door, session); });
  std::string reason = session.run();
  door.close();
  admitting.wait();
  return reason;
}

// A lane's end at the server, which counts the bytes that come and go there.
class CountedConnection final : public transport::Connection {
 public:
  CountedConnection(std::unique_ptr<Connection> inner, LaneTraffic& traffic)
      : inner_(std::move(inner)), traffic_(traffic) {}

  Result<std::size_t> read(std::span<const MutableBytes> into,
                           transport::Patience patience) override {
    auto got = inner_->read(into, patience);
    if (got) traffic_.to_server.fetch_add(*got);
    return got;
  }
  Result<std::size_t> write(std::span<const Bytes> from, transport::Patience patience) override {
    auto sent = inner_->write(from, patience);
    if (sent) traffic_.to_client.fetch_add(*sent);
    return sent;
  }
  transport::ReadySet wait(transport::ReadySet wanted, Instant deadline,
                           const transport::Wakeup* wakeup) override {
    return inner_->wait(wanted, deadline, wakeup);
  }
  void shut_down() override { inner_->shut_down(); }
  void abandon() override { inner_->abandon(); }
  int fd() const override { return inner_->fd(); }
  std::string peer() const override { return inner_->peer(); }

 private:
  const std::unique_ptr<Connection> inner_;
  LaneTraffic& traffic_;
};

// A program of random calls that knows what every result must be. With `large` many of its copies
// are such as lanes take.
class Program {
 public:
  Program(std::uint64_t seed, bool large, Outcome& outcome)
      : random_(seed), large_(large), outcome_(outcome) {}

  void run(int calls) {
    CUcontext context = nullptr;
    note(cuInit(0));
    note(cuDevicePrimaryCtxRetain(&context, 0));
    note(cuCtxSetCurrent(context));
    for (CUstream& stream : streams_) note(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    note(cuEventCreate(&event_, 0));
    note(cuMemAlloc_v2(&memory_, bytes()));
    expected_.assign(bytes(), 0);
    note(cuMemsetD8Async(memory_, 0, bytes(), stream()));
    note(cuStreamSynchronize(stream()));
    for (int i = 0; i < calls; ++i) step();
  }

 private:
  static constexpr std::size_t kBytes = 300000;
  static constexpr std::size_t kLargeBytes = 6 * kMiB;
  // Of copies that lanes take.
  static constexpr std::size_t kLaneBytesMin = 2 * kMiB;

  std::size_t bytes() const { return large_ ? kLargeBytes : kBytes; }
  CUstream stream() const { return streams_[current_]; }

  void note(CUresult result) {
    ++outcome_.calls;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
      ++outcome_.errors;
    } else if (outcome_.errors > 0) {
      ++outcome_.successes_after_an_error;
    }
  }
  void step() {
    std::size_t at = random_.below(bytes());
    const std::size_t left = bytes() - at;
    std::size_t size =
        1 + random_.below(random_.one_in(8) ? left : std::min(left, std::size_t{500}));
    if (large_ && random_.one_in(3)) {
      at = random_.below(bytes() - kLaneBytesMin);
      size = kLaneBytesMin + random_.below(bytes() - kLaneBytesMin - at);
    }
    switch (random_.below(large_ ? 9 : 7)) {
      case 0:
        return write(at, size);
      case 1:
        return fill(at, size);
      case 2:
        return read(at, size);
      case 3:
        return note(cuEventRecord(event_, stream()));
      case 4:
        return note(cuEventQuery(event_));
      case 5:
        return note(cuStreamSynchronize(stream()));
      case 6:
        return allocate(size);
      case 7:
        return write(at, size);
      default:
        return change_streams();
    }
  }
  void write(std::size_t at, std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
      const std::uint64_t value = random_.next();
      std::memcpy(bytes.data() + i, &value, std::min(sizeof(value), size - i));
    }
    note(cuMemcpyHtoDAsync_v2(memory_ + at, bytes.data(), size, stream()));
    std::memcpy(expected_.data() + at, bytes.data(), size);
    // Pageable memory is the program's again: what is not sent by now would go wrong.
    std::memset(bytes.data(), 0xee, size);
  }
  void fill(std::size_t at, std::size_t size) {
    const auto value = static_cast<std::uint8_t>(random_.next());
    note(cuMemsetD8Async(memory_ + at, value, size, stream()));
    std::memset(expected_.data() + at, value, size);
  }
  void read(std::size_t at, std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    CUresult result = cuMemcpyDtoHAsync_v2(bytes.data(), memory_ + at, size, stream());
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(stream());
    note(result);
    const bool right = std::memcmp(bytes.data(), expected_.data() + at, size) == 0;
    outcome_.wrong_results += result == CUDA_SUCCESS && !right;
  }
  void allocate(std::size_t size) {
    CUdeviceptr address = 0;
    const CUresult result = cuMemAlloc_v2(&address, size);
    note(result);
    outcome_.wrong_results += result == CUDA_SUCCESS && address == 0;
    if (result == CUDA_SUCCESS) note(cuMemFree_v2(address));
  }
  // The other one goes on behind what this one has to do.
  void change_streams() {
    note(cuEventRecord(event_, stream()));
    current_ = 1 - current_;
    note(cuStreamWaitEvent(stream(), event_, 0));
  }

  Random random_;
  const bool large_;
  Outcome& outcome_;
  std::array<CUstream, 2> streams_{};
  std::size_t current_ = 0;
  CUevent event_ = nullptr;
  CUdeviceptr memory_ = 0;
  std::vector<std::uint8_t> expected_;
};

// Makes the lanes of a plan, one after the other as they are asked for.
class LaneMaker {
 public:
  LaneMaker(const Plan& plan, Door& door, LaneTraffic& traffic)
      : plan_(plan), door_(door), traffic_(traffic) {}

  rpc::LaneOptions options() {
    return {.count = static_cast<unsigned>(plan_.lanes.size()),
            .connect = [this](Instant) { return connect(); },
            .patience = std::chrono::seconds(20),
            .packing = plan_.packing};
  }

 private:
  Result<std::unique_ptr<transport::Connection>> connect() {
    auto pair = transport::sim_pair(plan_.lanes.at(made_.fetch_add(1)));
    if (!pair) return std::move(pair).error();
    door_.put(std::make_unique<CountedConnection>(std::move(pair->second), traffic_));
    return std::move(pair->first);
  }

  const Plan& plan_;
  Door& door_;
  LaneTraffic& traffic_;
  std::atomic<std::size_t> made_{0};
};

void play(std::unique_ptr<transport::Connection> connection, const Plan& plan, Door& door,
          LaneTraffic& traffic, Outcome& outcome) {
  LaneMaker lanes(plan, door, traffic);
  client::SessionOptions options;
  options.connect_timeout = std::chrono::seconds(20);
  options.log_level = LogLevel::kOff;
  options.channel.lanes = lanes.options();
  auto session = client::Session::open(std::move(connection), options);
  if (!session) return;
  outcome.opened = true;
  const client::SessionScope scope(session->get());
  Program(plan.seed, !plan.lanes.empty(), outcome).run(plan.calls);
}

}  // namespace

Outcome simulate(const Plan& plan) {
  Outcome outcome;
  soft_driver();
  auto pair = transport::sim_pair(plan.main);
  if (!pair) return outcome;
  Door door;
  LaneTraffic traffic;
  auto server = std::async(std::launch::async, [&, connection = std::move(pair->second)]() mutable {
    return serve(std::move(connection), door);
  });
  auto client = std::async(std::launch::async, [&, connection = std::move(pair->first)]() mutable {
    play(std::move(connection), plan, door, traffic, outcome);
  });
  if (client.wait_for(kDeadline) != std::future_status::ready ||
      server.wait_for(kDeadline) != std::future_status::ready) {
    std::fprintf(stderr, "flyt_sim: seed %llu hangs\n", static_cast<unsigned long long>(plan.seed));
    std::abort();
  }
  outcome.server_reason = server.get();
  outcome.lane_bytes_to_server = traffic.to_server.load();
  outcome.lane_bytes_to_client = traffic.to_client.load();
  outcome.finished = true;
  soft_driver().cuDevicePrimaryCtxReset_v2(0);
  return outcome;
}

}  // namespace flyt::sim
