#include "rpc/deliveries.h"

#include <algorithm>

namespace flyt::rpc {

std::uint64_t Deliveries::expect(const Destination& destination, bool detached) {
  const Lock lock(mutex_);
  const std::uint64_t id = next_id_++;
  entries_.emplace(id, Entry{.destination = destination, .detached = detached});
  if (detached) detached_.fetch_add(1, std::memory_order_release);
  return id;
}

void Deliveries::erase(std::uint64_t id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  if (found->second.detached) detached_.fetch_sub(1, std::memory_order_release);
  entries_.erase(found);
}

void Deliveries::forget(std::uint64_t id) {
  const Lock lock(mutex_);
  while (true) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    if (!found->second.busy) break;
    idle_.wait(mutex_);
  }
  erase(id);
}

bool Deliveries::complete(std::uint64_t id) const {
  const Lock lock(mutex_);
  const auto found = entries_.find(id);
  return found != entries_.end() && found->second.received == found->second.destination.bytes();
}

Result<Deliveries::Incoming> Deliveries::begin(std::uint64_t id, std::uint64_t offset,
                                               std::uint64_t size) {
  const Lock lock(mutex_);
  if (id == 0 || id >= next_id_) {
    return Error{ErrorCode::kInvalid, "host data for a delivery that nobody asked for"};
  }
  const auto found = entries_.find(id);
  if (found == entries_.end()) return Incoming{};
  Entry& entry = found->second;
  if (offset != entry.received) {
    return Error{ErrorCode::kInvalid, "host data out of order"};
  }
  if (size > entry.destination.bytes() - entry.received) {
    return Error{ErrorCode::kInvalid, "more host data than was asked for"};
  }
  entry.busy = true;
  return Incoming{entry.destination};
}

bool Deliveries::finish(std::uint64_t id, std::uint64_t size) {
  const Lock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  Entry& entry = found->second;
  entry.busy = false;
  entry.received += size;
  idle_.notify_all();
  if (!entry.detached || entry.received < entry.destination.bytes()) return false;
  erase(id);
  return true;
}

Result<bool> Deliveries::drop(std::uint64_t id) {
  const Lock lock(mutex_);
  if (id == 0 || id >= next_id_) {
    return Error{ErrorCode::kInvalid, "a delivery was dropped that nobody asked for"};
  }
  const auto found = entries_.find(id);
  if (found == entries_.end() || !found->second.detached) return false;
  erase(id);
  return true;
}

std::uint64_t Deliveries::pieces(const Destination& destination, std::uint64_t offset,
                                 std::uint64_t size, std::size_t most,
                                 std::vector<MutableBytes>& out) {
  auto* base = static_cast<std::byte*>(destination.base);
  std::uint64_t covered = 0;
  while (covered < size && out.size() < most) {
    const std::uint64_t row = (offset + covered) / destination.row_bytes;
    const std::uint64_t in_row = (offset + covered) % destination.row_bytes;
    const std::uint64_t part = std::min(destination.row_bytes - in_row, size - covered);
    std::byte* at = base + row / destination.rows * destination.slice_pitch +
                    row % destination.rows * destination.row_pitch + in_row;
    out.emplace_back(at, part);
    covered += part;
  }
  return covered;
}

}  // namespace flyt::rpc
