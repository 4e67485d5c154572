#include "rpc/unfinished.h"

#include <utility>

namespace flyt::rpc {

void Unfinished::add(const wire::CommandHeader& header, Bytes fields, std::span<const Bytes> data) {
  Command command{header, {fields.begin(), fields.end()}};
  for (const Bytes& piece : data) {
    command.payload.insert(command.payload.end(), piece.begin(), piece.end());
  }
  const Lock lock(mutex_);
  bytes_ += command.payload.size();
  commands_.push_back(std::move(command));
  while (commands_.size() > kCommandsMax || bytes_ > kBytesMax) {
    bytes_ -= commands_.front().payload.size();
    last_dropped_ = commands_.front().header.sequence;
    commands_.pop_front();
  }
}

std::optional<std::vector<Unfinished::Command>> Unfinished::behind(std::uint64_t sequence) const {
  const Lock lock(mutex_);
  if (last_dropped_ > sequence) return std::nullopt;
  std::vector<Command> found;
  for (const Command& command : commands_) {
    if (command.header.sequence > sequence) found.push_back(command);
  }
  return found;
}

}  // namespace flyt::rpc
