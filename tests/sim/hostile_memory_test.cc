// Memory that both sides hold, and what a client may not do with it.
#include <memory>
#include <vector>

#include "commands/all.h"
#include "tests/sim/hostile.h"
#include "wire/handle.h"
#include "wire/memory_changes.h"

namespace flyt::sim {
namespace {

constexpr std::uint64_t kAddress = 0x380000000000;
constexpr std::uint32_t kContext = 1;

class HostileMemory : public HostileTest {
 protected:
  void SetUp() override {
    HostileTest::SetUp();
    peer_ = std::make_unique<Peer>(attacker());
    const auto context = static_cast<CUcontext>(
        pointer_at(wire::Handle::make(wire::HandleKind::kContext, 1, kContext).value));
    ASSERT_EQ(ask(commands::RetainPrimary{.context = context}), CUDA_SUCCESS);
  }
  void TearDown() override {
    peer_.reset();
    HostileTest::TearDown();
  }
  template <class Command>
  void send(const Command& command) {
    std::vector<std::byte> bytes(wire::encoded_size(command));
    Writer writer(bytes);
    wire::encode(writer, command);
    const std::uint32_t context = Command::kOp == commands::RetainPrimary::kOp ? 0 : kContext;
    EXPECT_TRUE(peer_->send_command(Command::kOp, bytes, Command::kWaits, context).ok());
  }
  template <class Command>
  CUresult ask(const Command& command) {
    send(command);
    const Heard heard = peer_->read_until(wire::FrameKind::kReply);
    if (!heard.is(wire::FrameKind::kReply)) {
      ADD_FAILURE() << "no reply: " << heard.text() << "\n" << server().log();
      return CUDA_ERROR_UNKNOWN;
    }
    Reader reader(heard.payload);
    return static_cast<CUresult>(wire::decode_reply_prefix(reader).result);
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
  void expect_ended() {
    const auto ending = peer_->ending();
    EXPECT_TRUE(ending.in_order) << ending.reason;
  }

  std::unique_ptr<Peer> peer_;
};

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

}  // namespace
}  // namespace flyt::sim
