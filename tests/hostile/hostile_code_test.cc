// Code that is not what a client says it is, against a server that keeps code.
#include <stdlib.h>

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "commands/all.h"
#include "cuda/types.h"
#include "tests/hostile/hostile.h"
#include "wire/code.h"
#include "wire/handle.h"

namespace flyt::sim {
namespace {

using wire::HandleKind;

constexpr std::string_view kPtx =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry idle()\n{\nret;\n}\n";

template <class T>
T handle_as(HandleKind kind, std::uint32_t index) {
  return static_cast<T>(pointer_at(wire::Handle::make(kind, 1, index).value));
}

std::string& store_folder() {
  static std::string folder;
  return folder;
}

class HostileCode : public HostileTest {
 protected:
  static constexpr std::uint32_t kContext = 1;

  static void SetUpTestSuite() {
    char folder[] = "/tmp/flyt-hostile-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    store_folder() = folder;
    start_server({"--module-cache", store_folder() + "/modules"});
  }
  static void TearDownTestSuite() {
    HostileTest::TearDownTestSuite();
    std::filesystem::remove_all(store_folder());
  }

  // A fresh session with a context.
  Peer session() {
    Peer peer = attacker();
    const auto context = handle_as<CUcontext>(HandleKind::kContext, kContext);
    EXPECT_EQ(ask(peer, commands::RetainPrimary{.context = context}, 0), 0U);
    return peer;
  }
  template <class Command>
  static void send(Peer& peer, const Command& command, std::uint32_t context = kContext) {
    std::vector<std::byte> bytes(wire::encoded_size(command));
    Writer writer(bytes);
    wire::encode(writer, command);
    EXPECT_TRUE(peer.send_command(Command::kOp, bytes, Command::kWaits, context).ok());
  }
  template <class Command>
  static std::uint32_t ask(Peer& peer, const Command& command, std::uint32_t context = kContext) {
    send(peer, command, context);
    const Heard heard = peer.read_until(wire::FrameKind::kReply);
    EXPECT_TRUE(heard.is(wire::FrameKind::kReply)) << heard.text();
    Reader reader(heard.payload);
    return reader.take<std::uint32_t>();
  }
  static std::uint32_t load(Peer& peer) {
    return ask(peer, commands::LoadModule{.module = handle_as<CUmodule>(HandleKind::kModule, 1),
                                          .upload = kUpload});
  }
  static void name(Peer& peer, const Digest& digest, std::uint64_t total = kPtx.size(),
                   std::uint64_t packed = 0) {
    send(peer, commands::DescribeUpload{
                   .upload = kUpload, .total = total, .packed = packed, .digest = digest});
  }
  static void send_code(Peer& peer, std::string_view code) {
    send(peer, commands::Upload{
                   .upload = kUpload, .total = code.size(), .offset = 0, .data = bytes_of(code)});
  }

  inline static const std::uint64_t kUpload = wire::Handle::make(HandleKind::kUpload, 1, 1).value;
};

TEST_F(HostileCode, CodeUnderAnotherCodesNameIsRefusedAndNotKept) {
  const Digest digest = sha256(bytes_of(kPtx));
  std::string other(kPtx);
  other.replace(other.find("idle"), 4, "evil");
  {
    Peer liar = session();
    name(liar, digest);
    EXPECT_EQ(load(liar), wire::kResultSendCode);
    send_code(liar, other);
    EXPECT_EQ(load(liar), static_cast<std::uint32_t>(CUDA_ERROR_INVALID_VALUE));
    EXPECT_TRUE(liar.alive());
  }
  Peer honest = session();
  name(honest, digest);
  EXPECT_EQ(load(honest), wire::kResultSendCode);
  send_code(honest, kPtx);
  EXPECT_EQ(load(honest), 0U);
  Peer next = session();
  name(next, digest);
  EXPECT_EQ(load(next), 0U);
}

TEST_F(HostileCode, AskingAgainWithoutSendingGetsTheSameAnswer) {
  Peer peer = session();
  Digest digest{};
  name(peer, digest);
  EXPECT_EQ(load(peer), wire::kResultSendCode);
  EXPECT_EQ(load(peer), wire::kResultSendCode);
  EXPECT_TRUE(peer.alive());
}

TEST_F(HostileCode, PackedGarbageIsRefused) {
  Peer peer = session();
  std::string garbage(kPtx);
  name(peer, sha256(bytes_of(kPtx)), 64 * garbage.size(), garbage.size());
  send_code(peer, garbage);
  EXPECT_EQ(load(peer), static_cast<std::uint32_t>(CUDA_ERROR_INVALID_VALUE));
  EXPECT_TRUE(peer.alive());
}

TEST_F(HostileCode, ABombIsRefusedBeforeMemoryIsTakenForIt) {
  Peer peer = session();
  name(peer, sha256(bytes_of(kPtx)), 1 * kGiB, kPtx.size());
  send_code(peer, kPtx);
  EXPECT_EQ(load(peer), static_cast<std::uint32_t>(CUDA_ERROR_INVALID_VALUE));
  EXPECT_TRUE(peer.alive());
}

// What a program loaded after the first library last time is there before it is asked for.
TEST_F(HostileCode, ALibraryThatWasForeseenIsTheOneThatIsNamed) {
  std::string other(kPtx);
  other.replace(other.find("idle"), 4, "busy");
  const auto load_library = [](Peer& peer, std::uint32_t number, std::string_view code) {
    name(peer, sha256(bytes_of(code)), code.size());
    const commands::LoadLibrary command{
        .library = handle_as<CUlibrary>(HandleKind::kLibrary, number), .upload = kUpload};
    std::uint32_t result = ask(peer, command);
    if (result != wire::kResultSendCode) return result;
    send_code(peer, code);
    return ask(peer, command);
  };
  std::uint32_t kernels = 0;
  const auto get_kernel = [&](Peer& peer, std::uint32_t number, std::string_view name) {
    return ask(peer,
               commands::GetKernel{.library = handle_as<CUlibrary>(HandleKind::kLibrary, number),
                                   .name = name,
                                   .kernel = handle_as<CUkernel>(HandleKind::kKernel, ++kernels)});
  };
  const bool foreseen = tests::eventually(30, [&] {
    {
      Peer peer = session();
      kernels = 0;
      EXPECT_EQ(load_library(peer, 1, kPtx), 0U);
      EXPECT_EQ(get_kernel(peer, 1, "idle"), 0U);
      // Others do that; meanwhile no code is asked for.
      for (int i = 0; i < 200; ++i) EXPECT_EQ(ask(peer, commands::MemInfo{}), 0U);
      EXPECT_EQ(load_library(peer, 2, other), 0U);
      EXPECT_EQ(get_kernel(peer, 2, "busy"), 0U);
      EXPECT_EQ(get_kernel(peer, 2, "idle"), static_cast<std::uint32_t>(CUDA_ERROR_NOT_FOUND));
      // Another size is refused as ever, and the library is still there after it.
      name(peer, sha256(bytes_of(other)), other.size() + 1);
      EXPECT_EQ(
          ask(peer, commands::LoadLibrary{.library = handle_as<CUlibrary>(HandleKind::kLibrary, 3),
                                          .upload = kUpload}),
          wire::kResultSendCode);
      EXPECT_EQ(get_kernel(peer, 2, "busy"), 0U);
    }
    return server().logged(" foreseen=1 ", 0.1);
  });
  EXPECT_TRUE(foreseen) << server().log();
}

TEST_F(HostileCode, AHashOfAnotherSizeEndsTheSession) {
  Peer peer = session();
  const std::array<std::byte, 31> digest{};
  send(peer, commands::DescribeUpload{
                 .upload = kUpload, .total = 10, .packed = 0, .digest = Bytes(digest)});
  EXPECT_TRUE(peer.ending().in_order);
}

}  // namespace
}  // namespace flyt::sim
