// Every command with hostile fields: forged handles, overflowing sizes, addresses that are not the
// session's. The session goes on or is ended with a reason; its process never just dies.
//   FLYT_SIM_SEEDS=N rounds for each command (default 2)     FLYT_SIM_FIRST_SEED=S
#include <vector>

#include "commands/all.h"
#include "tests/hostile/hostile.h"
#include "tests/hostile/malice.h"

namespace flyt::sim {
namespace {

template <class Command>
std::vector<std::byte> hostile_encoding(Malice& malice) {
  Command command;
  Command::each(command, Fill{malice});
  std::vector<std::byte> bytes(wire::encoded_size(command));
  Writer writer(bytes);
  wire::encode(writer, command);
  return bytes;
}

// A command without its type: what is done with each is compiled once, not for each.
struct Command {
  std::string_view name;
  std::uint16_t op;
  bool waits;
  std::vector<std::byte> (*hostile)(Malice& malice);
};

const std::vector<Command>& all_commands() {
  static const std::vector<Command> commands = [] {
    std::vector<Command> made;
    commands::All::each([&]<class T>() {
      made.push_back({T::kName, T::kOp, T::kWaits, &hostile_encoding<T>});
    });
    return made;
  }();
  return commands;
}

class HostileCommands : public HostileTest {
 protected:
  void TearDown() override {
    if (HasFailure()) std::printf("FLYT_SIM_FIRST_SEED=%llu\n", seed());
    HostileTest::TearDown();
  }
  static unsigned long long seed() { return first_seed(); }

  // A session with a context, so that commands get past the check for one.
  static constexpr std::uint32_t kContext = 1;
  Peer attacker_in_context() {
    Peer peer = attacker();
    commands::RetainPrimary retain;
    retain.context = static_cast<CUcontext>(
        pointer_at(wire::Handle::make(wire::HandleKind::kContext, 1, kContext).value));
    std::vector<std::byte> bytes(wire::encoded_size(retain));
    Writer writer(bytes);
    wire::encode(writer, retain);
    EXPECT_TRUE(peer.send_command(commands::RetainPrimary::kOp, bytes, true).ok());
    EXPECT_TRUE(peer.read_until(wire::FrameKind::kReply).is(wire::FrameKind::kReply));
    return peer;
  }
};

TEST_F(HostileCommands, TruncatedCommandsEndTheSession) {
  Malice malice(first_seed());
  for (const Command& command : all_commands()) {
    SCOPED_TRACE(command.name);
    auto bytes = command.hostile(malice);
    if (bytes.empty()) continue;
    bytes.pop_back();
    Peer peer = attacker();
    EXPECT_TRUE(peer.send_command(command.op, bytes, command.waits).ok());
    const auto ending = peer.ended();
    EXPECT_TRUE(ending.in_order) << ending.reason;
  }
}

TEST_F(HostileCommands, CommandsWithTooManyBytesEndTheSession) {
  Malice malice(first_seed());
  for (const Command& command : all_commands()) {
    SCOPED_TRACE(command.name);
    auto bytes = command.hostile(malice);
    bytes.push_back(std::byte{1});
    Peer peer = attacker();
    EXPECT_TRUE(peer.send_command(command.op, bytes, command.waits).ok());
    const auto ending = peer.ended();
    EXPECT_TRUE(ending.in_order) << ending.reason;
  }
}

TEST_F(HostileCommands, HostileFieldsNeverKillASessionsProcess) {
  for (int round = 0; round < rounds(2); ++round) {
    std::uint64_t number = first_seed() + static_cast<std::uint64_t>(round) * 1000;
    for (const Command& command : all_commands()) {
      SCOPED_TRACE(command.name);
      Malice malice(++number);
      Peer peer = attacker_in_context();
      bool ended = false;
      for (int i = 0; i < 4 && !ended; ++i) {
        ended =
            !peer.send_command(command.op, command.hostile(malice), command.waits, kContext).ok();
      }
      const auto verdict = peer.verdict();
      EXPECT_TRUE(verdict.state == Peer::State::kAlive || verdict.state == Peer::State::kEnded)
          << verdict.reason << "\n"
          << server().log();
    }
  }
}

// Monitors have no context and no session, and ask what the machine's NVML knows.
TEST_F(HostileCommands, HostileFieldsNeverKillAMonitor) {
  const auto monitor = [] {
    return Peer::greeted(server().url(), false, wire::ConnectionRole::kMonitor);
  };
  auto peer = monitor();
  ASSERT_TRUE(peer.ok()) << peer.error().message;
  for (int round = 0; round < 10 * rounds(2); ++round) {
    std::uint64_t number = first_seed() + static_cast<std::uint64_t>(round) * 1000;
    for (const Command& command : all_commands()) {
      if (!command.name.starts_with("nvml")) continue;
      SCOPED_TRACE(command.name);
      Malice malice(++number);
      static_cast<void>(peer->send_command(command.op, command.hostile(malice), command.waits));
      const auto verdict = peer->verdict();
      EXPECT_TRUE(verdict.state == Peer::State::kAlive || verdict.state == Peer::State::kEnded)
          << verdict.reason << "\n"
          << server().log();
      if (verdict.state == Peer::State::kAlive) continue;
      peer = monitor();
      ASSERT_TRUE(peer.ok()) << peer.error().message;
    }
  }
}

}  // namespace
}  // namespace flyt::sim
