// Objects that a client ends at the wrong moment or in the wrong way, and bounds that it runs into.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "server/code/code_subjects.h"
#include "server/memory/images.h"
#include "tests/hostile/hostile_session.h"

namespace flyt::sim {
namespace {

using wire::HandleKind;

constexpr std::string_view kPtx =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 word;\n"
    ".visible .entry idle()\n{\nret;\n}\n";

std::uint64_t handle(HandleKind kind, std::uint32_t index) {
  return wire::Handle::make(kind, 1, index).value;
}

class HostileLifetimes : public HostileSession {
 protected:
  std::uint64_t upload_code() {
    const std::uint64_t upload = handle(HandleKind::kUpload, 1);
    send(commands::Upload{
        .upload = upload, .total = kPtx.size(), .offset = 0, .data = bytes_of(kPtx)});
    return upload;
  }
  void load_module() {
    const std::uint64_t upload = upload_code();
    ASSERT_EQ(ask(commands::LoadModule{.module = module_, .upload = upload}, kPrimary),
              CUDA_SUCCESS);
    ASSERT_EQ(ask(commands::GetFunction{.module = module_, .name = "idle", .function = function_},
                  kPrimary),
              CUDA_SUCCESS);
  }
  commands::TryLaunchKernel launch() const {
    commands::TryLaunchKernel launch{};
    launch.function = function_;
    for (std::uint32_t* extent : {&launch.grid_x, &launch.grid_y, &launch.grid_z, &launch.block_x,
                                  &launch.block_y, &launch.block_z}) {
      *extent = 1;
    }
    return launch;
  }

  // A copy in context 2 of which nobody takes the bytes, so that it stands half-way while its
  // context ends and another one gets its index. What the copy is answered; nothing where the
  // second context came too early, for who does not read does not hear when it may.
  std::optional<CUresult> copy_beyond(double seconds) {
    constexpr std::uint64_t kBytes = 512 * kMiB;
    const auto next =
        static_cast<CUcontext>(pointer_at(wire::Handle::make(HandleKind::kContext, 2, 2).value));
    EXPECT_EQ(ask(commands::MemAlloc{.bytes = kBytes}, kPrimary), CUDA_SUCCESS);
    commands::MemAlloc::Reply allocated;
    EXPECT_TRUE(wire::decode(fields(), allocated));
    EXPECT_EQ(ask(commands::CreateContext{.context = context(2)}), CUDA_SUCCESS);
    const std::uint64_t copy = peer_->next_sequence();
    send(commands::CopyToHost{.stream = static_cast<CUstream>(pointer_at(wire::kStreamLegacy)),
                              .address = allocated.address,
                              .width = kBytes,
                              .rows = 1,
                              .slices = 1,
                              .delivery = 1},
         2);
    EXPECT_TRUE(peer_->read_frame().is(wire::FrameKind::kHostData));
    send(commands::DestroyContext{.context = context(2)});
    static_cast<void>(tests::eventually(seconds, [] { return false; }));
    send(commands::CreateContext{.context = next});
    std::optional<CUresult> copied;
    for (int i = 0; i < 3; ++i) {
      const Heard heard = peer_->read_until(wire::FrameKind::kReply);
      if (!heard.is(wire::FrameKind::kReply)) return std::nullopt;
      Reader reader(heard.payload);
      const auto result = static_cast<CUresult>(wire::decode_reply_prefix(reader).result);
      if (heard.header.sequence == copy) {
        copied = result;
      } else {
        EXPECT_EQ(result, CUDA_SUCCESS);
      }
    }
    return copied;
  }

  CUmodule module_ = handle_as<CUmodule>(HandleKind::kModule, 1);
  CUfunction function_ = handle_as<CUfunction>(HandleKind::kFunction, 1);
};

TEST_F(HostileLifetimes, NothingIsMadeInAContextThatTheCommandDoesNotName) {
  const auto stream = handle_as<CUstream>(HandleKind::kStream, 1);
  const auto per_thread = static_cast<CUstream>(pointer_at(wire::kStreamPerThread));
  EXPECT_EQ(ask(commands::StreamQuery{.stream = per_thread}, kPrimary), CUDA_SUCCESS);
  EXPECT_EQ(ask(commands::StreamQuery{.stream = per_thread}), CUDA_ERROR_INVALID_HANDLE);
  send(commands::StreamCreate{.stream = stream});
  EXPECT_EQ(ask(commands::StreamQuery{.stream = stream}, kPrimary), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(HostileLifetimes, APrimaryContextHasOneHandle) {
  EXPECT_EQ(ask(commands::RetainPrimary{.context = context(2)}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(commands::ReleasePrimary{.context = context(kPrimary)}), CUDA_SUCCESS);
  EXPECT_EQ(ask(commands::RetainPrimary{.context = context(2)}), CUDA_SUCCESS);
}

TEST_F(HostileLifetimes, AContextIsEndedInTheWayItWasMade) {
  ASSERT_EQ(ask(commands::CreateContext{.context = context(2)}), CUDA_SUCCESS);
  EXPECT_EQ(ask(commands::ReleasePrimary{.context = context(2)}), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(ask(commands::ResetPrimary{.context = context(2)}), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(ask(commands::DestroyContext{.context = context(kPrimary)}),
            CUDA_ERROR_INVALID_CONTEXT);
  const auto legacy = static_cast<CUstream>(pointer_at(wire::kStreamLegacy));
  EXPECT_EQ(ask(commands::StreamQuery{.stream = legacy}, kPrimary), CUDA_SUCCESS);
  EXPECT_EQ(ask(commands::StreamQuery{.stream = legacy}, 2), CUDA_SUCCESS);
  EXPECT_EQ(ask(commands::DestroyContext{.context = context(2)}), CUDA_SUCCESS);
}

TEST_F(HostileLifetimes, ReleasingDevicesThatAreNoneIsNothing) {
  for (const std::int32_t device : {-1, 1 << 20, 0x7fffffff}) {
    EXPECT_EQ(ask(commands::ReleasePrimary{.context = nullptr, .device = device}), CUDA_SUCCESS);
  }
}

TEST_F(HostileLifetimes, AModuleIsUnloadedOnceWhateverIsUnderWay) {
  load_module();
  for (int i = 0; i < 16; ++i) send(launch(), kPrimary);
  send(commands::UnloadModule{.module = module_}, kPrimary);
  send(commands::UnloadModule{.module = module_}, kPrimary);
  send(commands::GetFunction{.module = module_,
                             .name = "idle",
                             .function = handle_as<CUfunction>(HandleKind::kFunction, 2)},
       kPrimary);
  for (int i = 0; i < 16; ++i) send(launch(), kPrimary);
  // Slow commands overtake each other.
  int successes = 0;
  for (int i = 0; i < 35; ++i) {
    const CUresult result = answer();
    successes += result == CUDA_SUCCESS ? 1 : 0;
    EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_HANDLE) << result;
  }
  EXPECT_GE(successes, 17);
  EXPECT_LE(successes, 34);
  EXPECT_EQ(ask(launch(), kPrimary), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(HostileLifetimes, AContextMayEndWhileOtherCommandsUseIt) {
  const auto stream = handle_as<CUstream>(HandleKind::kStream, 1);
  const auto event = handle_as<CUevent>(HandleKind::kEvent, 1);
  ASSERT_EQ(ask(commands::CreateContext{.context = context(2)}), CUDA_SUCCESS);
  send(commands::StreamCreate{.stream = stream}, 2);
  send(commands::EventCreate{.event = event}, 2);
  send(commands::EventRecord{.event = event, .stream = stream}, 2);
  send(commands::DestroyContext{.context = context(2)});
  constexpr int kRounds = 50;
  for (int i = 0; i < kRounds; ++i) {
    send(commands::EventRecord{.event = event, .stream = stream}, 2);
    send(commands::EventSynchronize{.event = event}, kPrimary);
    send(commands::StreamSynchronize{.stream = stream}, 2);
  }
  for (int i = 0; i < 1 + 2 * kRounds; ++i) static_cast<void>(answer());
  EXPECT_EQ(ask(commands::StreamQuery{.stream = stream}, kPrimary), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(ask(commands::EventQuery{.event = event}, kPrimary), CUDA_ERROR_INVALID_HANDLE);
}

// Its next piece would be asked for in a stream that is gone.
TEST_F(HostileLifetimes, ACopyDoesNotGoOnInAContextThatHasTheIndexOfItsOwn) {
  std::optional<CUresult> copied;
  for (double seconds = 0.2; !copied && seconds < 10; seconds *= 2) {
    copied = copy_beyond(seconds);
    if (!copied) SetUp();
  }
  ASSERT_TRUE(copied.has_value());
  EXPECT_NE(*copied, CUDA_SUCCESS);
  const auto legacy = static_cast<CUstream>(pointer_at(wire::kStreamLegacy));
  EXPECT_EQ(ask(commands::StreamQuery{.stream = legacy}, 2), CUDA_SUCCESS);
}

TEST_F(HostileLifetimes, AVariableOfALibraryIsForgottenWithItsContext) {
  const auto library = handle_as<CUlibrary>(HandleKind::kLibrary, 1);
  ASSERT_EQ(ask(commands::CreateContext{.context = context(2)}), CUDA_SUCCESS);
  ASSERT_EQ(ask(commands::LoadLibrary{.library = library, .upload = upload_code()}, 2),
            CUDA_SUCCESS);
  ASSERT_EQ(ask(commands::GetLibraryGlobal{.library = library, .name = "word"}, 2), CUDA_SUCCESS);
  commands::GetLibraryGlobal::Reply variable;
  ASSERT_TRUE(wire::decode(fields(), variable));
  const commands::CopyToHost copy{.stream = static_cast<CUstream>(pointer_at(wire::kStreamLegacy)),
                                  .address = variable.address,
                                  .width = 4,
                                  .rows = 1,
                                  .slices = 1,
                                  .delivery = 1};
  EXPECT_EQ(ask(copy, 2), CUDA_SUCCESS);
  ASSERT_EQ(ask(commands::DestroyContext{.context = context(2)}), CUDA_SUCCESS);
  EXPECT_EQ(ask(copy, kPrimary), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostileLifetimes, ACacheWindowOverTheServersMemoryIsRefused) {
  load_module();
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
  attribute.value.accessPolicyWindow.base_ptr = pointer_at(0x400000);
  attribute.value.accessPolicyWindow.num_bytes = 4096;
  auto hostile = launch();
  hostile.attributes = bytes_at(&attribute, sizeof attribute);
  EXPECT_EQ(ask(hostile, kPrimary), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostileLifetimes, UploadsOfNothingHaveABoundToo) {
  for (std::uint32_t i = 1; i <= 5000; ++i) {
    commands::Upload upload{.upload = handle(HandleKind::kUpload, i)};
    std::vector<std::byte> bytes(wire::encoded_size(upload));
    Writer writer(bytes);
    wire::encode(writer, upload);
    if (!peer_->send_command(commands::Upload::kOp, bytes, false).ok()) break;
  }
  const auto ending = peer_->ended();
  EXPECT_TRUE(ending.in_order) << ending.reason;
}

TEST_F(HostileLifetimes, APoolHasNoRoomForAlmostAllAddresses) {
  constexpr std::uint64_t kDefaultPool = 1;
  ASSERT_EQ(ask(commands::PoolAllocate{.pool = kDefaultPool, .bytes = 4096}, kPrimary),
            CUDA_SUCCESS);
  for (const std::uint64_t bytes : {~std::uint64_t{0}, ~std::uint64_t{0} - 511}) {
    EXPECT_EQ(ask(commands::PoolAllocate{.pool = kDefaultPool, .bytes = bytes}, kPrimary),
              CUDA_ERROR_OUT_OF_MEMORY);
  }
}

TEST_F(HostileLifetimes, TheHighestHandlesCostNoMoreThanTheLowest) {
  const auto event = handle_as<CUevent>(HandleKind::kEvent, wire::kHandleIndexMax);
  send(commands::EventCreate{.event = event}, kPrimary);
  EXPECT_EQ(ask(commands::EventQuery{.event = event}, kPrimary), CUDA_SUCCESS);
}

TEST_F(HostileLifetimes, LinksThatWereGivenNothingHaveABoundToo) {
  const std::vector<std::int32_t> options = {CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                                             CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  const std::vector<std::uint64_t> values = {64 * kKiB, 64 * kKiB};
  constexpr std::uint32_t kMost = server::Link::kInputBytesMax / (128 * kKiB);
  CUresult result = CUDA_SUCCESS;
  std::uint32_t made = 0;
  const auto create = [&](std::uint32_t index) {
    return ask(commands::CreateLink{.link = handle_as<CUlinkState>(HandleKind::kLink, index),
                                    .options = wire::List<std::int32_t>(options),
                                    .values = wire::List<std::uint64_t>(values)},
               kPrimary);
  };
  while (made <= kMost && (result = create(made + 1)) == CUDA_SUCCESS) ++made;
  EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_LE(made, kMost);
  send(commands::DestroyLink{.link = handle_as<CUlinkState>(HandleKind::kLink, 1)}, kPrimary);
  // Another thread ends it.
  EXPECT_TRUE(tests::eventually(30, [&] { return create(made + 1) == CUDA_SUCCESS; }));
}

TEST_F(HostileLifetimes, LinkerInputThatIsNotWhatItSaysIsRefused) {
  const auto link = handle_as<CUlinkState>(HandleKind::kLink, 1);
  ASSERT_EQ(ask(commands::CreateLink{.link = link}, kPrimary), CUDA_SUCCESS);
  // The wrapper of a fat binary holds a pointer.
  std::array<std::uint64_t, 3> wrapper = {0x1466243B1, 0x400000, 0};
  const Bytes bytes = bytes_at(wrapper.data(), sizeof wrapper);
  for (const std::int32_t type : {CU_JIT_INPUT_FATBINARY, CU_JIT_INPUT_CUBIN}) {
    const std::uint64_t upload = handle(HandleKind::kUpload, 1);
    send(commands::Upload{.upload = upload, .total = bytes.size(), .offset = 0, .data = bytes});
    EXPECT_EQ(ask(commands::AddLinkData{.link = link, .type = type, .upload = upload}, kPrimary),
              CUDA_ERROR_INVALID_VALUE);
  }
  // Nothing was finished: there is nothing to read.
  EXPECT_EQ(ask(commands::ReadLink{.link = link, .delivery = 1}, kPrimary), CUDA_SUCCESS);
}

TEST_F(HostileLifetimes, TexturesHaveABound) {
  ASSERT_EQ(ask(commands::MemAlloc{.bytes = 4096}, kPrimary), CUDA_SUCCESS);
  commands::MemAlloc::Reply allocated;
  ASSERT_TRUE(wire::decode(fields(), allocated));
  const commands::CreateTexture create{.type = CU_RESOURCE_TYPE_LINEAR,
                                       .address = allocated.address,
                                       .format = CU_AD_FORMAT_FLOAT,
                                       .channels = 1,
                                       .bytes = 4096};
  for (std::size_t made = 0; made < server::Images::kObjectsMax; made += 128) {
    for (int i = 0; i < 128; ++i) send(create, kPrimary);
    for (int i = 0; i < 128; ++i) ASSERT_EQ(answer(), CUDA_SUCCESS);
  }
  commands::CreateTexture::Reply last;
  ASSERT_TRUE(wire::decode(fields(), last));
  EXPECT_EQ(ask(create, kPrimary), CUDA_ERROR_OUT_OF_MEMORY);
  send(commands::DestroyTexture{.texture = last.texture}, kPrimary);
  // When the GPU has passed.
  EXPECT_TRUE(tests::eventually(30, [&] { return ask(create, kPrimary) == CUDA_SUCCESS; }));
}

// The memory that a server's sessions have for themselves, in kilobytes.
std::uint64_t own_kilobytes(const tests::ServerProcess& server) {
  std::uint64_t kilobytes = 0;
  for (const pid_t session : server.children()) {
    std::ifstream file("/proc/" + std::to_string(session) + "/smaps_rollup");
    for (std::string word; file >> word;) {
      std::uint64_t more = 0;
      if (word.starts_with("Private_") && file >> more) kilobytes += more;
    }
  }
  return kilobytes;
}

// With an AddressSanitizer, if any, that keeps little of what is freed.
class HostileLeftovers : public HostileLifetimes {
 protected:
  static constexpr int kRounds = 200;
  static constexpr int kInRound = 200;
  // An entry in a table takes about twice as much. AddressSanitizer keeps some of what was freed.
  static constexpr std::uint64_t kKilobytesMost = kRounds * kInRound * 400 / 1024;

  static void SetUpTestSuite() {
    const char* const options = std::getenv("ASAN_OPTIONS");
    const std::string before = options == nullptr ? "" : options;
    ::setenv("ASAN_OPTIONS",
             (before + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64").c_str(), 1);
    start_server({});
    if (options == nullptr) {
      ::unsetenv("ASAN_OPTIONS");
    } else {
      ::setenv("ASAN_OPTIONS", before.c_str(), 1);
    }
  }
  void SetUp() override {
    if (!tests::over_soft_gpu()) GTEST_SKIP() << "other drivers keep memory of their own";
    HostileLifetimes::SetUp();
  }
  void TearDown() override {
    if (tests::over_soft_gpu()) HostileLifetimes::TearDown();
  }

  // `one` leaves nothing that the client still has.
  template <class One>
  void expect_nothing_stays(const One& one) {
    // What allocators keep for the next time is there after a few rounds.
    for (int round = 0; round < kRounds / 2; ++round) run(one);
    const std::uint64_t before = own_kilobytes(server());
    for (int round = 0; round < kRounds; ++round) run(one);
    const std::uint64_t after = own_kilobytes(server());
    EXPECT_LE(after, before + kKilobytesMost) << before << " KiB before";
  }
  template <class One>
  void run(const One& one) {
    for (int i = 0; i < kInRound; ++i) one();
    ASSERT_EQ(ask(commands::SynchronizeContext{.context = context(kPrimary)}), CUDA_SUCCESS);
    ASSERT_EQ(posted_, CUDA_SUCCESS);
  }
};

TEST_F(HostileLeftovers, NothingStaysOfAStreamThatHadWork) {
  const auto stream = handle_as<CUstream>(HandleKind::kStream, 1);
  const auto event = handle_as<CUevent>(HandleKind::kEvent, 1);
  expect_nothing_stays([&] {
    send(commands::StreamCreate{.stream = stream, .flags = CU_STREAM_NON_BLOCKING}, kPrimary);
    send(commands::EventCreate{.event = event, .flags = CU_EVENT_DISABLE_TIMING}, kPrimary);
    send(commands::EventRecord{.event = event, .stream = stream}, kPrimary);
    send(commands::StreamWaitEvent{.stream = stream, .event = event}, kPrimary);
    send(commands::EventDestroy{.event = event}, kPrimary);
    send(commands::StreamDestroy{.stream = stream}, kPrimary);
  });
}

// With a driver that needs an event until its wait has come back.
class HostileWaits : public HostileLifetimes {
 protected:
  static void SetUpTestSuite() {
    ::setenv("FLYT_SOFTGPU_EVENT_WAITS_LATE", "1", 1);
    start_server({});
    ::unsetenv("FLYT_SOFTGPU_EVENT_WAITS_LATE");
  }
};

TEST_F(HostileWaits, AContextDoesNotEndWhileTheDriverLooksAtAnEventOfIt) {
  const auto stream = handle_as<CUstream>(HandleKind::kStream, 1);
  const auto event = handle_as<CUevent>(HandleKind::kEvent, 1);
  ASSERT_EQ(ask(commands::CreateContext{.context = context(2)}), CUDA_SUCCESS);
  send(commands::StreamCreate{.stream = stream}, 2);
  send(commands::EventCreate{.event = event}, 2);
  send(commands::HostCall{.stream = stream, .token = 1, .kind = 0}, 2);
  send(commands::EventRecord{.event = event, .stream = stream}, 2);
  ASSERT_TRUE(peer_->read_until(wire::FrameKind::kHostCall).is(wire::FrameKind::kHostCall));
  send(commands::EventSynchronize{.event = event}, 2);
  // By then a worker waits for it.
  static_cast<void>(tests::eventually(0.2, [] { return false; }));
  send(commands::HostCallDone{.token = 1});
  send(commands::DestroyContext{.context = context(2)});
  EXPECT_EQ(answer(), CUDA_SUCCESS);
  EXPECT_EQ(answer(), CUDA_SUCCESS);
  EXPECT_TRUE(peer_->alive());
}

// How often the main thread of a process has gone to sleep.
std::uint64_t sleeps_of(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  constexpr std::string_view kName = "voluntary_ctxt_switches:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kName)) return std::stoull(line.substr(kName.size()));
  }
  return 0;
}

// While a kernel runs for long nobody burns a processor for the copies behind it.
class HostilePatience : public HostileLifetimes {
 protected:
  static constexpr std::uint64_t kBytes = 300 * kMiB;  // More than there is staging memory.

  // A stream that stands for good, and device memory.
  void stand() {
    ASSERT_EQ(ask(commands::MemAlloc{.bytes = kBytes}, kPrimary), CUDA_SUCCESS);
    commands::MemAlloc::Reply allocated;
    ASSERT_TRUE(wire::decode(fields(), allocated));
    address_ = allocated.address;
    send(commands::StreamCreate{.stream = stream_, .flags = CU_STREAM_NON_BLOCKING}, kPrimary);
    send(commands::StreamMemOp{.stream = stream_,
                               .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                               .address = address_,
                               .value = 0x12345678,
                               .flags = CU_STREAM_WAIT_VALUE_EQ},
         kPrimary);
    ASSERT_TRUE(peer_->alive());
  }
  // It takes a while until the memory is full, and then the session sleeps and looks, again and
  // again.
  static void expect_few_looks() {
    const std::vector<pid_t> processes = server().children();
    double most = 0;
    for (int round = 0; round < 3; ++round) {
      const Instant begun = system_clock().now();
      std::vector<std::uint64_t> before;
      for (const pid_t process : processes) before.push_back(sleeps_of(process));
      static_cast<void>(tests::eventually(0.5, [] { return false; }));
      most = 0;
      for (std::size_t i = 0; i < processes.size(); ++i) {
        most = std::max(most, static_cast<double>(sleeps_of(processes[i]) - before[i]));
      }
      most /= std::chrono::duration<double>(system_clock().now() - begun).count();
    }
    EXPECT_GT(most, 50) << "a second: nobody waits";
    EXPECT_LT(most, 3000) << "a second";
  }

  const CUstream stream_ = handle_as<CUstream>(HandleKind::kStream, 1);
  std::uint64_t address_ = 0;
};

TEST_F(HostilePatience, MemoryForCopiesToTheHostIsLookedForNowAndThen) {
  stand();
  send(commands::PostToHost{.stream = stream_,
                            .address = address_,
                            .width = kBytes,
                            .rows = 1,
                            .slices = 1,
                            .delivery = 1},
       kPrimary);
  expect_few_looks();
  peer_.reset();
}

TEST_F(HostilePatience, MemoryToReceiveIntoIsLookedForNowAndThen) {
  stand();
  const std::vector<std::byte> data(wire::kBulkBytesMax);
  const commands::CopyToDevice copy{.stream = stream_, .address = address_, .data = data};
  std::vector<std::byte> bytes(wire::encoded_size(copy));
  Writer writer(bytes);
  wire::encode(writer, copy);
  wire::CommandHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(bytes.size());
  header.op = commands::CopyToDevice::kOp;
  header.context = kPrimary;
  header.thread = 1;
  for (header.sequence = peer_->next_sequence();; ++header.sequence) {
    if (!peer_->send_header(header).ok() || !peer_->send(bytes, 2).ok()) break;
  }
  expect_few_looks();
  peer_.reset();
}

// With a driver that gives a stream's handle away again while work of that stream goes on.
class HostileStreamHandles : public HostileLifetimes {
 protected:
  static void SetUpTestSuite() {
    ::setenv("FLYT_SOFTGPU_STREAMS_RETURN", "1", 1);
    start_server({});
    ::unsetenv("FLYT_SOFTGPU_STREAMS_RETURN");
  }
  void copy_from(CUstream stream, std::uint64_t address, std::uint64_t delivery) {
    send(commands::PostToHost{.stream = stream,
                              .address = address,
                              .width = 4096,
                              .rows = 1,
                              .slices = 1,
                              .delivery = delivery},
         kPrimary);
  }
};

TEST_F(HostileStreamHandles, ACopyDoesNotWaitForThatOfAStreamWhoseHandleItsStreamHas) {
  const auto first = handle_as<CUstream>(HandleKind::kStream, 1);
  const auto second = handle_as<CUstream>(HandleKind::kStream, 2);
  ASSERT_EQ(ask(commands::MemAlloc{.bytes = 4096}, kPrimary), CUDA_SUCCESS);
  commands::MemAlloc::Reply allocated;
  ASSERT_TRUE(wire::decode(fields(), allocated));
  send(commands::StreamCreate{.stream = first, .flags = CU_STREAM_NON_BLOCKING}, kPrimary);
  send(commands::HostCall{.stream = first, .token = 1, .kind = 0}, kPrimary);
  copy_from(first, allocated.address, 1);
  send(commands::StreamDestroy{.stream = first}, kPrimary);
  send(commands::StreamCreate{.stream = second, .flags = CU_STREAM_NON_BLOCKING}, kPrimary);
  copy_from(second, allocated.address, 2);
  const std::uint64_t wait = peer_->next_sequence();
  send(commands::StreamSynchronize{.stream = second}, kPrimary);
  // What a wait says is done is there.
  bool there = false;
  while (true) {
    const Heard heard = peer_->read_frame();
    ASSERT_EQ(heard.what, Heard::What::kFrame) << server().log();
    if (heard.is(wire::FrameKind::kReply) && heard.header.sequence == wait) break;
    there = there || (heard.is(wire::FrameKind::kHostData) && heard.header.sequence == 2);
  }
  EXPECT_TRUE(there);
  send(commands::HostCallDone{.token = 1});
  const Heard late = peer_->read_until(wire::FrameKind::kHostData);
  EXPECT_TRUE(late.is(wire::FrameKind::kHostData) && late.header.sequence == 1);
}

}  // namespace
}  // namespace flyt::sim
