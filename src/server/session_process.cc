#include "server/session_process.h"

#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "commands/ops.h"
#include "server/code/code_subjects.h"
#include "server/faults/gpu_return.h"
#include "server/faults/session_faults.h"
#include "server/lease/gpu_room.h"
#include "server/lease/resize_worker.h"
#include "server/memory/windows.h"
#include "server/memory_subjects.h"
#include "server/output_worker.h"
#include "server/parent/greet.h"
#include "server/recovery/recovery.h"
#include "server/session.h"
#include "server/transfers/lanes.h"
#include "server/transfers/pinned_memory.h"
#include "server/watchdog.h"
#include "transport/machine.h"
#include "transport/shm.h"

namespace flyt::server {
namespace {

constexpr Duration kHelloTime = std::chrono::seconds(10);
// How long a new process waits for those of a fault to end; a client waits for 10 s.
constexpr Duration kClearedUpMax = std::chrono::seconds(6);

std::string result_text(const driver::Table& driver, CUresult result) {
  const char* name = nullptr;
  if (driver.cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return "result " + std::to_string(static_cast<int>(result));
}

Result<ReadyDriver> start_driver(std::string_view path, std::string_view kind) {
  auto loaded = driver::load(path);
  if (!loaded) return std::move(loaded).error();
  ReadyDriver ready{.driver = std::move(loaded).value(), .kind = std::string(kind)};
  if (ready.driver.soft) ready.kind = wire::kSoftDriver;
  const driver::Table& table = ready.driver.table;
  CUresult result = once_gpu_is_back([&] { return table.cuInit(0); });
  if (result == CUDA_SUCCESS) result = table.cuDeviceGetCount(&ready.devices);
  if (result != CUDA_SUCCESS) {
    return Error{ErrorCode::kUnsupported,
                 ready.driver.path + " does not start: " + result_text(table, result)};
  }
  if (ready.devices == 0) {
    return Error{ErrorCode::kUnsupported, ready.driver.path + " has no device"};
  }
  std::array<char, 256> name{};
  if (table.cuDeviceGetName(name.data(), 256, 0) == CUDA_SUCCESS) ready.device_name = name.data();
  return ready;
}

Result<ReadyDriver> start_wanted_driver(const SessionOptions& options) {
  if (options.driver == "soft") return start_driver(options.soft_path, wire::kSoftDriver);
  if (options.driver != "auto") return start_driver(options.driver, options.driver);
  auto nvidia = start_driver("auto", "nvidia");
  if (nvidia) return nvidia;
  auto soft = start_driver(options.soft_path, wire::kSoftDriver);
  if (soft) return soft;
  return Error{ErrorCode::kUnsupported,
               nvidia.error().message + "; " + std::move(soft).error().message};
}

// The first device's primary context, for as long as this process lives.
Status retain_context(ReadyDriver& driver, CUcontext& context) {
  const driver::Table& table = driver.driver.table;
  const CUresult result =
      once_gpu_is_back([&] { return table.cuDevicePrimaryCtxRetain(&context, 0); });
  driver.warm = result == CUDA_SUCCESS;
  if (driver.warm) return {};
  return Error{is_gpu_full(result) ? ErrorCode::kLimit : ErrorCode::kUnsupported,
               "no primary context: " + result_text(table, result)};
}

// Null where the GPU's processes share no faults.
std::unique_ptr<FaultBoard> sit_down(const SessionOptions& options) {
  if (options.fault_board.empty()) return nullptr;
  const Log log = log_of_session(options);
  auto board = FaultBoard::open(options.fault_board);
  if (!board) {
    log.error("no fault board", {{"why", board.error().message}});
    return nullptr;
  }
  const auto waits = [&log] { log.info("a fault is cleared up first", {{"pid", ::getpid()}}); };
  if (!(*board)->sit(system_clock().now() + kClearedUpMax, waits)) {
    log.warn("a fault is not cleared up in time", {{"pid", ::getpid()}});
  }
  return std::move(*board);
}

// What to tell a client before its session exists.
wire::Welcome make_welcome(const ReadyDriver& driver, const wire::Limits& limits,
                           const std::vector<wire::Window>& windows, std::uint16_t version) {
  wire::Welcome welcome;
  welcome.version = version;
  welcome.name = "flyt-server";
  welcome.process_id = static_cast<std::uint32_t>(::getpid());
  welcome.driver = driver.kind;
  int driver_version = 0;
  driver.driver.table.cuDriverGetVersion(&driver_version);
  welcome.driver_version = static_cast<std::uint32_t>(driver_version);
  welcome.windows = windows;
  welcome.limits = limits;
  welcome.highest_op = static_cast<std::uint16_t>(commands::kOpMax);
  return welcome;
}

struct Greeted {
  wire::Limits limits;
  std::vector<wire::Window> windows;
};

// Answers the hello, and goes on in shared memory where both sides can.
Result<Greeted> greet(std::unique_ptr<transport::Connection>& connection,
                      const wire::ClientHello& hello, bool share, const ReadyDriver& driver,
                      const SessionOptions& options, Recovery& recovery) {
  const Instant deadline = system_clock().now() + kWelcomeTime;
  const auto refuse = [&](wire::RefusalCode code, const Error& error) {
    static_cast<void>(rpc::send_refusal(*connection, {code, error.message}, deadline).ok());
    return error;
  };
  const auto version = wire::common_version(hello.version_min, hello.version_max);
  if (!version) return refuse(wire::RefusalCode::kVersion, version.error());
  const auto limits = wire::common_limits(wire::Limits{}, hello.limits);
  if (!limits) return refuse(wire::RefusalCode::kMalformed, limits.error());
  if (const Status begun = recovery.begin(hello); !begun) {
    return refuse(wire::RefusalCode::kNoSession, begun.error());
  }
  auto windows = take_windows(hello.windows, driver.driver.table);
  Greeted greeted{*limits, std::move(windows)};
  auto welcome = make_welcome(driver, greeted.limits, greeted.windows, *version);
  std::optional<transport::SharedRings> rings;
  if (share && hello.shared_memory && transport::may_share_memory(*connection)) {
    // Without them the socket does the work.
    auto made = transport::SharedRings::make(recovery.take_host_file());
    if (made) rings = std::move(*made);
  }
  welcome.shared_memory = rings.has_value();
  welcome.token = options.token;
  welcome.recovery = recovery.token();
  if (recovery.on()) welcome.returns_ms = options.returns_ms;
  if (Status sent = rpc::send_welcome(*connection, welcome, deadline); !sent) {
    return std::move(sent).error();
  }
  if (rings) {
    auto shared = transport::offer_rings(std::move(connection), std::move(*rings));
    if (!shared) return std::move(shared).error();
    connection = std::move(*shared);
    recovery.keep_host_file(connection->shared_file());
  }
  return greeted;
}

// Null where nothing is kept: not asked for, a peer without an identity, or no place.
std::unique_ptr<CodeStore> open_store(const CodeStoreOptions& options, const std::string& tenant,
                                      const Log& log) {
  if (options.folder.empty() || tenant.empty()) return nullptr;
  auto store = CodeStore::open(options, tenant, log);
  if (store) return std::move(*store);
  log.warn("code is not kept", {{"why", store.error().message}});
  return nullptr;
}

// The device memory of a session that goes on here is mapped again where it was.
Status restore_memory(Session& session, Recovery& recovery) {
  MemorySubjects& memory = session.memory();
  for (const Kept& kept : recovery.take_memory()) {
    if (kept.kind == KeptKind::kAllocation) {
      if (memory.virtual_memory.adopt_kept(kept)) continue;
      return Error{ErrorCode::kUnsupported, "the session's memory cannot be imported again"};
    }
    Block block;
    const CUresult mapped = memory.blocks.adopt(kept, block);
    if (mapped != CUDA_SUCCESS || !memory.arena.adopt(block)) {
      return Error{ErrorCode::kUnsupported, "the session's memory cannot be mapped again"};
    }
  }
  if (recovery.before()) own_usage().note_return();
  return {};
}

// Of a session that may go on in another process.
void hold_places(const ReadyDriver& driver, const Recovery& recovery,
                 const SessionOptions& options) {
  // The keeper has done so, unless it is of an earlier build.
  if (options.board) options.board->hold(options.slot);
  if (driver.room == nullptr) return;
  driver.room->keep(room_name(recovery.token()), options.recover_seconds);
}

void end_for_good(const ReadyDriver& driver, Recovery& recovery) {
  own_usage().leave();
  if (driver.room != nullptr) driver.room->forget();
  recovery.end();
}

// Whom faults on a shared GPU concern wants to know what is under way, too, where nobody can go on
// with it.
Marks* marks_of(Recovery& recovery, const ReadyDriver& driver) {
  const bool marked = recovery.on() || (driver.faults != nullptr && recovery.marks().make());
  return marked ? &recovery.marks() : nullptr;
}

std::unique_ptr<SessionFaults> faults_of(const ReadyDriver& driver, Marks* marks, const Log& log) {
  if (driver.faults == nullptr) return nullptr;
  return std::make_unique<SessionFaults>(
      FaultParts{.board = *driver.faults, .marks = marks, .log = log, .warm = driver.warm});
}

// One line when a session ends, whoever ended it. Fields after `reason` are none: it is free text.
class EndLine {
 public:
  EndLine(const Log& log, const wire::ClientHello& hello, const ReadyDriver& driver)
      : log_(log),
        pid_(hello.process_id),
        device_(driver.device_name),
        begun_(system_clock().now()) {}

  // `foreseen`: libraries that were loaded before the client asked for them.
  void write(SessionCounters counters, std::uint64_t foreseen, std::string_view reason) const {
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(system_clock().now() - begun_)
            .count();
    std::string fraction = std::to_string(ms % 1000);
    fraction.insert(0, 3 - fraction.size(), '0');
    log_.info("session ended", {{"client_pid", pid_},
                                {"device", device_},
                                {"posted", counters.posted},
                                {"waited", counters.waited},
                                {"foreseen", foreseen},
                                {"seconds", std::to_string(ms / 1000) + "." + fraction},
                                {"reason", reason}});
  }

 private:
  const Log& log_;
  std::uint32_t pid_;
  std::string_view device_;
  Instant begun_;
};

}  // namespace

Log log_of_session(const SessionOptions& options) {
  return Log("server", options.log_level).limited(*options.lines);
}

Result<ReadyDriver> prepare_driver(const SessionOptions& options) {
  // Before the driver: it may be one that takes nobody while a fault is cleared up.
  auto faults = sit_down(options);
  auto ready = start_wanted_driver(options);
  if (ready) ready->faults = std::move(faults);
  return ready;
}

Status make_context(ReadyDriver& driver) {
  CUcontext context = nullptr;
  return retain_context(driver, context);
}

Status warm_up(ReadyDriver& driver, HostBuffers& buffers) {
  const driver::Table& table = driver.driver.table;
  CUcontext context = nullptr;
  if (Status retained = retain_context(driver, context); !retained) return retained;
  if (const CUresult result = table.cuCtxSetCurrent(context); result != CUDA_SUCCESS) {
    return Error{ErrorCode::kUnsupported, "no primary context: " + result_text(table, result)};
  }
  buffers.restock(context);
  table.cuCtxSetCurrent(nullptr);
  return {};
}

Result<wire::ClientHello> hear_client(transport::Connection& connection,
                                      const SessionOptions& options) {
  auto hello = rpc::receive_hello(connection, system_clock().now() + kHelloTime);
  if (!hello) {
    const Log log("server", options.log_level);
    LimitedLog(log, options.lines->refusals())
        .info("client refused", {{"peer", connection.peer()}, {"reason", hello.error().message}});
  }
  return hello;
}

void serve_session(std::unique_ptr<transport::Connection> connection,
                   const wire::ClientHello& hello, bool share, const ReadyDriver& driver,
                   HostBuffers& buffers, const SessionOptions& options) {
  const Log log = log_of_session(options);
  std::string peer = connection->peer();
  const std::string machine = transport::machine_of(*connection);
  const std::string tenant = transport::identity_of_peer(connection->fd());
  Recovery recovery(options.keeper_door, user_of(tenant), options.slot);
  auto greeted = greet(connection, hello, share, driver, options, recovery);
  if (!greeted) {
    // One that is new has nothing that anybody could go on with.
    if (!recovery.before()) recovery.end();
    LimitedLog(log, options.lines->refusals())
        .info("client refused", {{"peer", peer}, {"reason", greeted.error().message}});
    return;
  }
  peer = connection->peer();
  log.info(recovery.before() ? "session goes on" : "session started",
           {{"client_pid", hello.process_id},
            {"client", hello.name},
            {"peer", peer},
            {"driver", driver.kind},
            {"pid", ::getpid()}});
  const EndLine end_line(log, hello, driver);
  Marks* const marks = marks_of(recovery, driver);
  const auto faults = faults_of(driver, marks, log);
  if (recovery.on()) hold_places(driver, recovery, options);
  own_usage().publish({.process = hello.process_id, .machine = machine, .name = hello.name});
  rpc::Endpoint endpoint(std::move(connection), greeted->limits, buffers.received);
  const std::unique_ptr<CodeStore> store = open_store(options.code_store, tenant, log);
  Session session({.endpoint = endpoint,
                   .driver = driver.driver.table,
                   .buffers = buffers,
                   .log = log,
                   .windows = greeted->windows,
                   .code_store = store.get(),
                   .exchange_door = options.exchange_door,
                   .user = user_of(tenant),
                   .grant = options.board ? options.board->grant() : SmGrant{},
                   .movable = options.board != nullptr && options.movable,
                   .measured = options.board != nullptr && options.movable,
                   .recovery = recovery.on() ? &recovery : nullptr,
                   .marks = marks,
                   .faults = faults.get()});
  if (const Status restored = restore_memory(session, recovery); !restored) {
    session.end(restored.error().message);
  }
  std::optional<ResizeWorker> resizer;
  if (options.board != nullptr && options.movable)
    resizer.emplace(session, *options.board, options.slot);
  const LaneDoor lane_door(Fd(options.lane_door), options.token, session.memory().lanes);
  auto output = OutputWorker::start([&endpoint](Bytes text) { endpoint.push_output(1, text); });
  if (!output) log.warn("kernels cannot print", {{"why", output.error().message}});
  session.before_replies([&] {
    if (output && session.code().may_print()) output.value()->flush();
  });
  const ErrorOutput errors([&endpoint](Bytes text) { endpoint.push_output(2, text); });
  const auto gone = [] { own_usage().leave(); };
  const Watchdog watchdog(endpoint, system_clock(), gone, [&] {
    end_line.write({}, 0, "client gone while the driver was busy");
    end_for_good(driver, recovery);
    ::_exit(EXIT_SUCCESS);
  });
  if (faults != nullptr) faults->watch(session);
  const std::string reason = session.run();
  end_line.write(session.counters(), session.code().foresight().taken(), reason);
  end_for_good(driver, recovery);
  // Whatever is left is freed by the end of the process, faster than one by one.
  ::_exit(EXIT_SUCCESS);
}

}  // namespace flyt::server
