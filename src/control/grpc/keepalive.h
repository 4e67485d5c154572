// Keepalive: a network that is cut says nothing by itself. Who waits for an answer asks the other
// side from time to time whether it is there.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

namespace flyt::control {

// How often a server bears to be asked; members of etcd no more often, either.
constexpr int kAskedEveryMsMin = 5'000;

struct Keepalive {
  int every_ms = kAskedEveryMsMin + 1000;
  int answer_ms = 3'000;  // Without an answer for so long, all calls fail: UNAVAILABLE.
};

// While there are calls.
inline void keep_alive(grpc::ChannelArguments& arguments, Keepalive keepalive = {}) {
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive.every_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive.answer_ms);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

// Clients that ask so, and those that do not: who watches and is cut off would be waited for for
// ever.
inline void keep_alive(grpc::ServerBuilder& builder) {
  constexpr int kEveryMs = 15'000;
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kEveryMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kEveryMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kAskedEveryMsMin);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

}  // namespace flyt::control
