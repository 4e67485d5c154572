// NoPushes: for sessions to which the server has nothing to say by itself.
#pragma once

#include "rpc/channel.h"

namespace flyt::rpc {

class NoPushes : public PushHandler {
 public:
  bool on_host_call(std::uint64_t, std::uint64_t, Bytes) override { return true; }
  void on_output(std::uint32_t, Bytes) override {}
  void on_delivered(std::uint64_t, bool) override {}
  void on_lost(const Error&) override {}
};

}  // namespace flyt::rpc
