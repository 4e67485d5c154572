// From a command's fields to bytes on the channel, and from a reply's bytes to its fields.
#pragma once

#include <cstdint>
#include <string>

#include "rpc/channel.h"
#include "wire/fields.h"

namespace flyt::client {

// Sends a command that nobody waits for; `context` is the index of the current one or 0. False: the
// session is lost. `sequence`: told its number, if not null.
template <class Command>
[[nodiscard]] bool send(rpc::Channel& channel, std::uint32_t context, const Command& command,
                        std::uint64_t* sequence = nullptr) {
  static_assert(!Command::kWaits);
  rpc::Post post = channel.begin(Command::kOp, wire::encoded_size(command), context);
  if (!post) return false;
  wire::encode(post.writer(), command);
  if (sequence != nullptr) *sequence = post.sequence();
  post.commit();
  return true;
}

// Sends a command and waits for its reply; views in `reply` live as long as `answer`. False: the
// session is lost. A reply that does not decode loses it too: it must never look like an answer.
template <class Command>
[[nodiscard]] bool exchange(rpc::Channel& channel, std::uint32_t context, const Command& command,
                            typename Command::Reply& reply, rpc::Reply& answer) {
  static_assert(Command::kWaits);
  rpc::Post post =
      channel.begin(Command::kOp, wire::encoded_size(command), context, rpc::Answer::kReply);
  if (!post) return false;
  wire::encode(post.writer(), command);
  if (!channel.call(std::move(post), answer)) return false;
  if (wire::decode(answer.fields(), reply)) return true;
  channel.shut_down("malformed reply to " + std::string(Command::kName));
  return false;
}

}  // namespace flyt::client
