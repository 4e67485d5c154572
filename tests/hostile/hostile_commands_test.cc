// Every command with hostile fields: forged handles, overflowing sizes, addresses that are not the
// session's. The session goes on or is ended with a reason; its process never just dies.
//   FLYT_SIM_SEEDS=N rounds for each command (default 2)     FLYT_SIM_FIRST_SEED=S
#include <sys/types.h>

#include <cstdlib>
#include <deque>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/random.h"
#include "commands/all.h"
#include "tests/hostile/hostile.h"
#include "wire/handle.h"

namespace flyt::sim {
namespace {

int rounds() {
  const char* given = std::getenv("FLYT_SIM_SEEDS");
  return given ? std::min(std::atoi(given), 200) : 2;
}

std::uint64_t first_seed() {
  const char* given = std::getenv("FLYT_SIM_FIRST_SEED");
  static const std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : random_seed();
  return seed;
}

// Fills the fields of a command with what hurts most. What lists and texts look at lives here.
class Malice {
 public:
  explicit Malice(std::uint64_t seed) : random_(seed) {}

  std::uint64_t number() {
    constexpr std::uint64_t kNasty[] = {0,
                                        1,
                                        2,
                                        7,
                                        0x7fffffff,
                                        0x80000000,
                                        0xffffffff,
                                        std::uint64_t{1} << 63,
                                        ~std::uint64_t{0},
                                        ~std::uint64_t{0} - 4095,
                                        0x400000,
                                        0x300000000000,
                                        0x300000000000 + 4096,
                                        0x3fffffffffff,
                                        0x340000000000,
                                        0x380000000000,
                                        0x7fff00000000};
    if (random_.one_in(4)) return random_.next();
    if (random_.one_in(4)) return random_.below(64);
    return kNasty[random_.below(std::size(kNasty))];
  }
  std::uint64_t handle() {
    if (random_.one_in(3)) return number();
    const auto kind = static_cast<wire::HandleKind>(1 + random_.below(wire::kHandleKindMax));
    const auto generation = static_cast<std::uint32_t>(1 + random_.below(2));
    const auto index = static_cast<std::uint32_t>(1 + random_.below(4));
    return wire::Handle::make(kind, generation, index).value;
  }
  Bytes bytes(std::size_t limit, std::size_t unit = 1) {
    const std::size_t count = random_.below(std::min<std::size_t>(limit, 64) + 1);
    auto& made = kept_.emplace_back(count * unit);
    for (std::byte& byte : made) byte = static_cast<std::byte>(random_.next());
    return made;
  }
  bool coin() { return random_.one_in(2); }

 private:
  Random random_;
  std::deque<std::vector<std::byte>> kept_;
};

struct Fill {
  Malice& malice;

  template <class T>
  requires std::is_pointer_v<T>
  void operator()(const char*, T& value) { value = static_cast<T>(pointer_at(malice.handle())); }
  template <class T>
  requires(!std::is_pointer_v<T> && Plain<T>) void operator()(const char*, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = malice.coin();
    } else if constexpr (sizeof(T) <= 8) {
      const std::uint64_t number = malice.number();
      std::memcpy(static_cast<void*>(&value), &number, sizeof(T));
    } else {
      const Bytes noise = malice.bytes(64, sizeof(T));
      const std::size_t size = std::min(noise.size(), sizeof(T));
      if (size != 0) std::memcpy(static_cast<void*>(&value), noise.data(), size);
    }
  }
  template <class T>
  void operator()(const char* name, std::optional<T>& value) {
    if (malice.coin()) (*this)(name, value.emplace());
  }
  void operator()(const char*, std::string_view& value, std::uint32_t limit) {
    value = text_of(malice.bytes(limit));
  }
  void operator()(const char*, Bytes& value, std::uint32_t limit) { value = malice.bytes(limit); }
  template <class T>
  void operator()(const char*, wire::List<T>& value, std::uint32_t limit) {
    value = wire::List<T>::from_bytes(malice.bytes(limit, sizeof(T)));
  }
};

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
  for (int round = 0; round < rounds(); ++round) {
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

}  // namespace
}  // namespace flyt::sim
