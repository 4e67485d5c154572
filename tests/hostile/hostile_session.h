// HostileSession: a fixture with one session that keeps the protocol and abuses its commands.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "commands/all.h"
#include "cuda/types.h"
#include "tests/hostile/hostile.h"
#include "wire/handle.h"

namespace flyt::sim {

template <class T>
T handle_as(wire::HandleKind kind, std::uint32_t index) {
  return static_cast<T>(pointer_at(wire::Handle::make(kind, 1, index).value));
}

class HostileSession : public HostileTest {
 protected:
  static constexpr std::uint32_t kPrimary = 1;

  // Retains the primary context.
  void SetUp() override {
    HostileTest::SetUp();
    peer_ = std::make_unique<Peer>(attacker());
    ASSERT_EQ(ask(commands::RetainPrimary{.context = context(kPrimary)}), CUDA_SUCCESS);
  }
  void TearDown() override {
    peer_.reset();
    HostileTest::TearDown();
  }

  static CUcontext context(std::uint32_t index) {
    return handle_as<CUcontext>(wire::HandleKind::kContext, index);
  }
  template <class Command>
  void send(const Command& command, std::uint32_t context) {
    std::vector<std::byte> bytes(wire::encoded_size(command));
    Writer writer(bytes);
    wire::encode(writer, command);
    EXPECT_TRUE(peer_->send_command(Command::kOp, bytes, Command::kWaits, context).ok());
  }
  template <class Command>
  void send(const Command& command) {
    send(command, current_);
  }
  // The result of the next reply.
  CUresult answer() {
    const Heard heard = peer_->read_until(wire::FrameKind::kReply);
    if (!heard.is(wire::FrameKind::kReply)) {
      ADD_FAILURE() << "no reply: " << heard.text() << "\n" << server().log();
      return CUDA_ERROR_UNKNOWN;
    }
    answered_ = heard.payload;
    Reader reader(heard.payload);
    const wire::ReplyPrefix prefix = wire::decode_reply_prefix(reader);
    posted_ = static_cast<CUresult>(prefix.posted_error);
    return static_cast<CUresult>(prefix.result);
  }
  template <class Command>
  CUresult ask(const Command& command, std::uint32_t context) {
    send(command, context);
    return answer();
  }
  template <class Command>
  CUresult ask(const Command& command) {
    return ask(command, current_);
  }
  // Of the last reply.
  Bytes fields() const { return Bytes(answered_).subspan(sizeof(wire::ReplyPrefix)); }
  void expect_ended() {
    const auto ending = peer_->ending();
    EXPECT_TRUE(ending.in_order) << ending.reason;
  }

  std::unique_ptr<Peer> peer_;
  std::uint32_t current_ = 0;        // The context of commands that are sent without one.
  std::vector<std::byte> answered_;  // The payload of the last reply.
  CUresult posted_ = CUDA_SUCCESS;   // The error of posted commands in the last reply.
};

}  // namespace flyt::sim
