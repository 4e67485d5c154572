// Memory that both sides hold, and what a client may not do with it.
#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "base/system_memory.h"
#include "tests/hostile/hostile_session.h"
#include "transport/transport.h"
#include "wire/memory_changes.h"

namespace flyt::sim {
namespace {

constexpr std::uint64_t kAddress = 0x380000000000;

class HostileMemory : public HostileSession {
 protected:
  void SetUp() override {
    current_ = 0;
    HostileSession::SetUp();
    current_ = kPrimary;
  }
  CUresult map(std::uint64_t address, std::uint64_t bytes, std::uint32_t flags = 0) {
    return ask(commands::MapHost{.address = address, .bytes = bytes, .flags = flags});
  }
  // One change of one byte.
  void write(std::uint64_t address) {
    std::vector<std::byte> change(17);
    Writer writer(change);
    writer.write(address);
    writer.write(std::uint32_t{1});
    writer.write(std::uint32_t{0});
    writer.write(std::uint8_t{7});
    send(commands::WriteHost{.changes = change});
  }
  // A handle for memory of this session.
  std::vector<std::byte> shared_memory() {
    EXPECT_EQ(CUDA_SUCCESS, ask(commands::MemAlloc{.bytes = 4096}));
    commands::MemAlloc::Reply allocated;
    EXPECT_TRUE(wire::decode(fields(), allocated));
    address_ = allocated.address;
    EXPECT_EQ(CUDA_SUCCESS, ask(commands::ShareMemory{.address = address_, .bytes = 4096}));
    commands::ShareMemory::Reply shared;
    EXPECT_TRUE(wire::decode(fields(), shared));
    return {shared.handle.begin(), shared.handle.end()};
  }
  CUresult open(Bytes handle) {
    const std::uint64_t allocation =
        wire::Handle::make(wire::HandleKind::kMemAllocation, 1, ++opened_).value;
    return ask(commands::OpenShared{.allocation = allocation, .handle = handle});
  }

  std::uint64_t address_ = 0;
  std::uint32_t opened_ = 0;
};

TEST_F(HostileMemory, OfASessionThatIsNewIsNotRestored) {
  send(commands::RestoreMemory{.address = kAddress, .bytes = 4096});
  expect_ended();
  SetUp();
  send(commands::RestorePoolMemory{.pool = 1, .address = kAddress, .bytes = 4096});
  expect_ended();
  SetUp();
  send(commands::RecoveredMarks{});
  expect_ended();
  SetUp();
  send(commands::RecoveredFault{});
  expect_ended();
  SetUp();
  send(commands::EndRestoring{});
  expect_ended();
}

TEST_F(HostileMemory, IsOpenedByAHandleAndByNothingLikeIt) {
  const std::vector<std::byte> handle = shared_memory();
  ASSERT_EQ(64u, handle.size());
  EXPECT_EQ(CUDA_SUCCESS, open(handle));
  // Each byte of the token, of the kind, and of what stands before it.
  for (std::size_t i = 0; i < 32; ++i) {
    std::vector<std::byte> forged = handle;
    forged[i] ^= std::byte{0x10};
    EXPECT_NE(CUDA_SUCCESS, open(forged)) << i;
  }
  for (std::size_t size = 0; size < handle.size(); ++size) {
    EXPECT_NE(CUDA_SUCCESS, open(Bytes(handle).first(size))) << size;
  }
  const auto event = handle_as<CUevent>(wire::HandleKind::kEvent, 1);
  EXPECT_NE(CUDA_SUCCESS, ask(commands::OpenEvent{.event = event, .handle = handle}));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileMemory, IsNotOpenedByAHandleThatWasWithdrawn) {
  const std::vector<std::byte> handle = shared_memory();
  send(commands::Unshare{.handle = handle});
  EXPECT_NE(CUDA_SUCCESS, open(handle));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileMemory, IsSharedOnlyWhereItIsTheSessionsOwn) {
  static_cast<void>(shared_memory());
  EXPECT_NE(CUDA_SUCCESS, ask(commands::ShareMemory{.address = address_, .bytes = 4097}));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::ShareMemory{.address = address_ + 4096, .bytes = 1}));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::ShareMemory{.address = 0x400000, .bytes = 16}));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::ShareMemory{.address = ~0ULL, .bytes = ~0ULL}));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::ShareAllocation{.allocation = 77}));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileMemory, IsMappedOnlyWhereNothingIs) {
  EXPECT_EQ(CUDA_SUCCESS, map(kAddress + 100, 10'000));
  EXPECT_NE(CUDA_SUCCESS, map(kAddress + 100, 10'000));
  EXPECT_NE(CUDA_SUCCESS, map(kAddress + 10'099, 1));
  EXPECT_NE(CUDA_SUCCESS, map(kAddress, 101));
  // A neighbour on the same page.
  EXPECT_EQ(CUDA_SUCCESS, map(kAddress, 100));
  EXPECT_EQ(CUDA_SUCCESS, map(kAddress + 10'100, 1));
  // The server's own device memory.
  EXPECT_NE(CUDA_SUCCESS, map(0x300000000000, 4096));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileMemory, SizesAndFlagsThatCannotBeAreRefused) {
  EXPECT_NE(CUDA_SUCCESS, map(kAddress, 0));
  EXPECT_NE(CUDA_SUCCESS, map(0, 4096));
  EXPECT_NE(CUDA_SUCCESS, map(kAddress, ~std::uint64_t{0}));
  EXPECT_NE(CUDA_SUCCESS, map(~std::uint64_t{0} - 4095, 4096));
  EXPECT_NE(CUDA_SUCCESS, map(kAddress, std::uint64_t{1} << 46));
  EXPECT_NE(CUDA_SUCCESS, map(kAddress, 4096, CU_MEMHOSTREGISTER_IOMEMORY));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::UnmapHost{.address = kAddress}));
  EXPECT_TRUE(peer_->alive());
}

// All of it would be taken from the machine at once, and the system would end processes for it.
TEST_F(HostileMemory, MoreThanTheMachineHasIsNotSharedWithIt) {
  constexpr std::uint64_t kWhole = transport::kSharedFileBytes;
  const auto machine = system_memory();
  if (!machine || machine->available >= kWhole) GTEST_SKIP() << "the machine has as much";
  auto sharing = Peer::greeted(server().url(), true);
  ASSERT_TRUE(sharing.ok()) << sharing.error().message;
  peer_ = std::make_unique<Peer>(std::move(*sharing));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::RetainPrimary{.context = context(kPrimary)}, 0));
  const auto share = [&](std::uint64_t bytes) {
    return ask(commands::ShareHost{.address = kAddress, .bytes = bytes, .offset = 0});
  };
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, share(kWhole));
  EXPECT_EQ(CUDA_SUCCESS, share(1 * kMiB));
  EXPECT_TRUE(peer_->alive());
}

// Where this process has the memory of its only connection that has some.
std::byte* own_rings() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:flyt-rings") == std::string::npos) continue;
    return static_cast<std::byte*>(pointer_at(std::stoull(line, nullptr, 16)));
  }
  return nullptr;
}

// It sends nothing more, and the server has little to send.
TEST_F(HostileMemory, OfAClientThatSaysItHasReadWhatNobodyWroteIsTheServersNoMore) {
  auto sharing = Peer::greeted(server().url(), true);
  ASSERT_TRUE(sharing.ok()) << sharing.error().message;
  std::byte* const rings = own_rings();
  ASSERT_NE(rings, nullptr);
  auto* const read = reinterpret_cast<std::atomic<std::uint64_t>*>(rings + 256 + 64);
  read->store(std::uint64_t{1} << 40);
  EXPECT_TRUE(server().logged("the peer spoilt the shared memory", 60)) << server().log();
}

// What the rings have room for, behind a page of positions: first what goes to the server.
constexpr std::size_t kPositions = 4096;
constexpr std::size_t kRing = 2 * kMiB;

// What was read of a command is what counts, however long the command takes.
TEST_F(HostileMemory, WhereACommandStoodMayChangeWhenTheCommandWasRead) {
  auto sharing = Peer::greeted(server().url(), true);
  ASSERT_TRUE(sharing.ok()) << sharing.error().message;
  peer_ = std::make_unique<Peer>(std::move(*sharing));
  std::byte* const rings = own_rings();
  ASSERT_NE(rings, nullptr);
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::RetainPrimary{.context = context(kPrimary)}, 0));
  constexpr std::size_t kBytes = 256 * kKiB;
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::MemAlloc{.bytes = kBytes}));
  commands::MemAlloc::Reply allocated;
  ASSERT_TRUE(wire::decode(fields(), allocated));
  const auto stream = static_cast<CUstream>(pointer_at(wire::kStreamLegacy));
  const std::vector<std::byte> sent(kBytes, std::byte{0x5A});
  // The stream stands with the copy in it.
  send(commands::HostCall{.stream = stream, .token = 1, .kind = 0});
  send(commands::CopyToDevice{.stream = stream, .address = allocated.address, .data = sent});
  ASSERT_TRUE(peer_->alive());
  std::memset(rings + kPositions, 0xFF, kRing);
  send(commands::HostCallDone{.token = 1});
  const std::uint64_t copy = peer_->next_sequence();
  send(commands::CopyToHost{.stream = stream,
                            .address = allocated.address,
                            .width = kBytes,
                            .rows = 1,
                            .slices = 1,
                            .delivery = 1});
  std::vector<std::byte> there;
  while (true) {
    const Heard heard = peer_->read_frame();
    ASSERT_EQ(heard.what, Heard::What::kFrame) << server().log();
    if (heard.is(wire::FrameKind::kReply) && heard.header.sequence == copy) break;
    if (!heard.is(wire::FrameKind::kHostData)) continue;
    there.insert(there.end(), heard.payload.begin(), heard.payload.end());
  }
  EXPECT_EQ(there, sent);
}

// Whatever the server finds there ends that session and nothing else.
TEST_F(HostileMemory, OfRingsThatChangeWhileTheServerReadsEndsTheSession) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const std::vector<std::byte> data(512, std::byte{1});
  for (int round = 0; round < 10; ++round) {
    auto sharing = Peer::greeted(server().url(), true);
    ASSERT_TRUE(sharing.ok()) << sharing.error().message;
    peer_ = std::make_unique<Peer>(std::move(*sharing));
    std::byte* const rings = own_rings();
    ASSERT_NE(rings, nullptr);
    ASSERT_EQ(CUDA_SUCCESS, ask(commands::RetainPrimary{.context = context(kPrimary)}, 0));
    ASSERT_EQ(CUDA_SUCCESS, ask(commands::MemAlloc{.bytes = data.size()}));
    commands::MemAlloc::Reply allocated;
    ASSERT_TRUE(wire::decode(fields(), allocated));
    const commands::CopyToDevice copy{
        .stream = static_cast<CUstream>(pointer_at(wire::kStreamLegacy)),
        .address = allocated.address,
        .data = data};
    std::vector<std::byte> bytes(wire::encoded_size(copy));
    Writer writer(bytes);
    wire::encode(writer, copy);
    std::atomic<bool> over{false};
    std::thread scribbler([&over, rings, own = Random(random.next())]() mutable {
      while (!over.load()) {
        std::atomic_ref<std::byte> victim(rings[kPositions + own.below(kRing)]);
        victim.store(static_cast<std::byte>(own.next()), std::memory_order_relaxed);
      }
    });
    bool going = true;
    const Instant late = system_clock().now() + std::chrono::seconds(60);
    while (going && system_clock().now() < late) {
      going = peer_->send_command(commands::CopyToDevice::kOp, bytes, false, kPrimary).ok();
    }
    over.store(true);
    scribbler.join();
    EXPECT_FALSE(going) << "of all that nothing has met a command";
  }
  EXPECT_EQ(server().log().find("signal="), std::string::npos) << server().log();
  EXPECT_EQ(server().log().find("Sanitizer"), std::string::npos) << server().log();
}

TEST_F(HostileMemory, IsWrittenInsideItsRanges) {
  ASSERT_EQ(CUDA_SUCCESS, map(kAddress, 4096));
  write(kAddress);
  write(kAddress + 4095);
  EXPECT_TRUE(peer_->alive());
  write(kAddress + 4096);
  expect_ended();
}

TEST_F(HostileMemory, IsNotWrittenOnceItIsUnmapped) {
  ASSERT_EQ(CUDA_SUCCESS, map(kAddress, 4096));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::UnmapHost{.address = kAddress}));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::UnmapHost{.address = kAddress}));
  write(kAddress);
  expect_ended();
}

TEST_F(HostileMemory, OfTheServerIsNotWritten) {
  write(0x400000);
  expect_ended();
}

TEST_F(HostileMemory, MalformedChangesEndTheSession) {
  ASSERT_EQ(CUDA_SUCCESS, map(kAddress, 4096));
  const std::vector<std::byte> change(15);
  send(commands::WriteHost{.changes = change});
  expect_ended();
}

// Its process has that to do alone, and not for longer than there is somebody to do it for.
TEST_F(HostileMemory, CopiedByteByByteForHoursHoldsUpNobodyElse) {
  constexpr std::uint64_t kBytes = 128 * kMiB;
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::MemAlloc{.bytes = 2 * kBytes}));
  commands::MemAlloc::Reply allocated;
  ASSERT_TRUE(wire::decode(fields(), allocated));
  send(commands::CopyBoxOnDevice{.to = allocated.address,
                                 .to_pitch = 1,
                                 .to_slice_pitch = 1,
                                 .from = allocated.address + kBytes,
                                 .from_pitch = 1,
                                 .from_slice_pitch = 1,
                                 .width = 1,
                                 .rows = 1,
                                 .slices = kBytes});
  EXPECT_TRUE(innocent->alive());
  const auto process = static_cast<pid_t>(peer_->welcome().process_id);
  EXPECT_EQ(::kill(process, 0), 0);
  peer_.reset();
  const Instant last = system_clock().now() + std::chrono::minutes(1);
  while (::kill(process, 0) == 0 && system_clock().now() < last) std::this_thread::yield();
  EXPECT_NE(::kill(process, 0), 0);
}

// The driver reads four numbers, however many were sent.
TEST_F(HostileMemory, AnArrayOfFixedLengthHasIt) {
  const auto reference = handle_as<CUtexref>(wire::HandleKind::kTextureReference, 1);
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::CreateTextureReference{.reference = reference}));
  std::vector<float> border(4);
  const auto set = [&] {
    return ask(commands::TexRefSetBorderColor{.hTexRef = reference,
                                              .pBorderColor = wire::List<float>(border)});
  };
  EXPECT_EQ(CUDA_SUCCESS, set());
  for (const std::size_t size : {0, 1, 3}) {
    border.resize(size);
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, set());
  }
}

}  // namespace
}  // namespace flyt::sim
