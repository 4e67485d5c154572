// Event: something that happened to a node or a lease, for people and programs that watch.
#pragma once

#include <cstdint>
#include <string>

namespace flyt::node {

struct Event {
  std::uint64_t number = 0;  // One more than the event's before.
  std::int64_t at_ms = 0;    // Since 1970.
  std::string kind;          // "lease-created" and so on: docs/flyt-node-manager.md lists them.
  std::string lease_id;      // Empty where it concerns the node.
  std::string lease_name;
  std::string text;
};

}  // namespace flyt::node
