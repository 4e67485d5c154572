// ChannelCore: the parts of a Channel, put together.
#pragma once

#include <memory>

#include "rpc/background_reader.h"
#include "rpc/channel.h"
#include "rpc/deliveries.h"
#include "rpc/inbox.h"
#include "rpc/lanes.h"
#include "rpc/ledger.h"
#include "rpc/loss.h"
#include "rpc/outbox.h"
#include "rpc/unfinished.h"

namespace flyt::rpc {

// Thread rules as for Channel. The locks of a Post are held from begin() to commit(), which no
// static analysis follows.
class ChannelCore {
 public:
  ChannelCore(std::unique_ptr<transport::Connection> connection, wire::Welcome welcome,
              const wire::Limits& limits, PushHandler& pushes, const ChannelOptions& options);

  void begin(std::uint16_t op, std::size_t payload_bytes, std::uint32_t context, Answer answer,
             Post& post) NO_THREAD_SAFETY_ANALYSIS;
  void commit(Post& post) NO_THREAD_SAFETY_ANALYSIS;
  void cancel(Post& post) NO_THREAD_SAFETY_ANALYSIS;
  // After the loss: its threads end.
  void end();
  Status call(Post& post, Reply& reply) NO_THREAD_SAFETY_ANALYSIS;
  // `start`: when the wait began, for an observer.
  Status wait_for_reply(Waiter& waiter, std::uint16_t op, Instant start);
  bool send_bulk(const CommandKey& key, Bytes fields, std::span<const Bytes> data, Waiter* waiter,
                 std::uint64_t& sequence);

  const std::unique_ptr<transport::Connection> connection_;
  const wire::Welcome welcome_;
  PushHandler& pushes_;
  const Clock& clock_;
  CommandObserver* const observer_;
  Loss loss_;
  Ledger ledger_;
  Deliveries deliveries_;
  const std::unique_ptr<Unfinished> unfinished_;
  Inbox inbox_;
  Outbox outbox_;
  BackgroundReader background_;
  Lanes lanes_;
  std::atomic<std::uint64_t> calls_{0};

 private:
  void begin_at_once(std::uint16_t op, std::size_t payload_bytes, std::uint32_t context,
                     Answer answer, Post& post) NO_THREAD_SAFETY_ANALYSIS;
  void begin_watched(std::uint16_t op, std::size_t payload_bytes, std::uint32_t context,
                     Answer answer, Post& post);
};

}  // namespace flyt::rpc
