// LyingServer: a server that keeps the protocol and answers what no server would.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/types.h"
#include "rpc/buffer_pool.h"
#include "rpc/endpoint.h"
#include "transport/transport.h"
#include "wire/fields.h"

namespace flyt::sim {

// Has one device, whose facts are `attributes`. Commands that nobody has said an answer for are not
// supported, and what is posted is forgotten.
class LyingServer final : public rpc::CommandHandler {
 public:
  LyingServer();
  ~LyingServer() override;

  // Before start(): `say(command, reply)` fills the reply of each such command. What the reply
  // looks at must live as long as the server.
  template <class Command, class Say>
  void on(Say say) {
    answers_[Command::kOp] = [this, say = std::move(say)](const rpc::Command& received) -> Status {
      Command command;
      if (!wire::decode(received.payload, command)) {
        return Error{ErrorCode::kInvalid, "the client does not say what it should"};
      }
      typename Command::Reply reply;
      say(command, reply);
      std::vector<std::byte> fields(wire::encoded_size(reply));
      Writer writer(fields);
      wire::encode(writer, reply);
      endpoint_->reply(received.header.sequence, CUDA_SUCCESS, fields);
      return {};
    };
  }
  template <class Command>
  void on() {
    on<Command>([](const Command&, auto&) {});
  }

  void start(std::unique_ptr<transport::Connection> connection);
  Status on_command(const rpc::Command& command) override;

  std::array<std::int32_t, 256> attributes{};

 private:
  void serve();

  std::array<std::uint8_t, 256> known_{};
  std::array<std::byte, 16> uuid_{};
  std::map<std::uint16_t, std::function<Status(const rpc::Command&)>> answers_;
  std::unique_ptr<transport::Connection> connection_;
  rpc::HeapBufferPool pool_;
  std::unique_ptr<rpc::Endpoint> endpoint_;
  std::thread thread_;
};

}  // namespace flyt::sim
