#include "rpc/deliveries.h"

#include <algorithm>
#include <iterator>

namespace flyt::rpc {

std::uint64_t Deliveries::expect(const Destination& destination, bool detached) {
  const Lock lock(mutex_);
  const std::uint64_t id = next_id_++;
  entries_.emplace(id, Entry{.destination = destination, .detached = detached});
  if (detached) detached_.fetch_add(1, std::memory_order_release);
  return id;
}

void Deliveries::go_on_behind(const Deliveries& before) {
  std::uint64_t next = 0;
  {
    const Lock lock(before.mutex_);
    next = before.next_id_;
  }
  const Lock lock(mutex_);
  next_id_ = std::max(next_id_, next);
}

void Deliveries::erase(std::uint64_t id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  if (found->second.detached) detached_.fetch_sub(1, std::memory_order_release);
  entries_.erase(found);
  ahead_.notify_all();
}

Deliveries::Entry* Deliveries::idle(std::uint64_t id) {
  while (true) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return nullptr;
    if (found->second.busy == 0) return &found->second;
    idle_.wait(mutex_);
  }
}

void Deliveries::forget(std::uint64_t id) {
  const Lock lock(mutex_);
  if (idle(id) != nullptr) erase(id);
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
  if (!entry.ahead.empty() && entry.ahead.begin()->first < offset + size) {
    return Error{ErrorCode::kInvalid, "host data comes twice"};
  }
  ++entry.busy;
  return Incoming{entry.destination};
}

bool Deliveries::finish(std::uint64_t id, std::uint64_t size) {
  const Lock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  Entry& entry = found->second;
  --entry.busy;
  entry.received += size;
  idle_.notify_all();
  return end_if_whole(id, entry);
}

bool Deliveries::end_if_whole(std::uint64_t id, Entry& entry) {
  if (!entry.detached || entry.received < entry.destination.bytes()) return false;
  erase(id);
  return true;
}

Result<Deliveries::Incoming> Deliveries::by_lane(std::uint64_t id, std::uint64_t offset,
                                                 std::uint64_t size) {
  const Lock lock(mutex_);
  if (id == 0 || id >= next_id_) {
    return Error{ErrorCode::kInvalid, "host data for a delivery that nobody asked for"};
  }
  const auto found = entries_.find(id);
  if (found == entries_.end()) return Incoming{};
  Entry& entry = found->second;
  const std::uint64_t whole = entry.destination.bytes();
  if (offset > whole || size > whole - offset) {
    return Error{ErrorCode::kInvalid, "more host data than was asked for"};
  }
  const auto next = entry.ahead.lower_bound(offset);
  const bool before = next != entry.ahead.begin() && std::prev(next)->second.end > offset;
  const bool behind = next != entry.ahead.end() && next->first < offset + size;
  if (offset < entry.received || before || behind) {
    return Error{ErrorCode::kInvalid, "host data comes twice"};
  }
  if (entry.ahead.size() >= kPiecesAheadMax) {
    return Error{ErrorCode::kInvalid, "too much host data ahead of its turn"};
  }
  entry.ahead.emplace_hint(next, offset, Ahead{offset + size});
  ++entry.busy;
  return Incoming{entry.destination};
}

void Deliveries::end_by_lane(std::uint64_t id, std::uint64_t offset, bool arrived) {
  const Lock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  --entry.busy;
  idle_.notify_all();
  const auto piece = entry.ahead.find(offset);
  if (!arrived || piece == entry.ahead.end()) return;
  piece->second.there = true;
  merge(entry, piece);
  ahead_.notify_all();
}

void Deliveries::merge(Entry& entry, std::map<std::uint64_t, Ahead>::iterator at) {
  if (const auto next = std::next(at);
      next != entry.ahead.end() && next->second.there && next->first == at->second.end) {
    at->second.end = next->second.end;
    entry.ahead.erase(next);
  }
  if (at == entry.ahead.begin()) return;
  const auto previous = std::prev(at);
  if (!previous->second.there || previous->second.end != at->first) return;
  previous->second.end = at->second.end;
  entry.ahead.erase(at);
}

bool Deliveries::arrived(const Entry& entry, std::uint64_t offset, std::uint64_t size) {
  const auto first = entry.ahead.find(offset);
  return first != entry.ahead.end() && first->second.there && first->second.end >= offset + size;
}

// Its turn has come: it is not ahead any more.
void Deliveries::take(Entry& entry, std::uint64_t offset, std::uint64_t size) {
  const auto first = entry.ahead.find(offset);
  const Ahead rest = first->second;
  entry.ahead.erase(first);
  if (rest.end > offset + size) entry.ahead.emplace(offset + size, rest);
  entry.received += size;
}

Result<bool> Deliveries::await(std::uint64_t id, std::uint64_t offset, std::uint64_t size) {
  const Lock lock(mutex_);
  if (!lanes_allowed_.load()) {
    return Error{ErrorCode::kInvalid, "host data by lane in a session that has none"};
  }
  if (id == 0 || id >= next_id_ || size == 0) {
    return Error{ErrorCode::kInvalid, "host data by lane for a delivery that nobody asked for"};
  }
  while (true) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return false;
    Entry& entry = found->second;
    const std::uint64_t left = entry.destination.bytes() - entry.received;
    if (offset != entry.received || size > left) {
      return Error{ErrorCode::kInvalid, "host data by lane out of order"};
    }
    if (arrived(entry, offset, size)) {
      take(entry, offset, size);
      return end_if_whole(id, entry);
    }
    if (lost_) return Error{ErrorCode::kLost, "the session was lost during a copy to the host"};
    ahead_.wait(mutex_);
  }
}

void Deliveries::wake_all() {
  const Lock lock(mutex_);
  lost_ = true;
  ahead_.notify_all();
}

Result<bool> Deliveries::drop(std::uint64_t id) {
  const Lock lock(mutex_);
  if (id == 0 || id >= next_id_) {
    return Error{ErrorCode::kInvalid, "a delivery was dropped that nobody asked for"};
  }
  // Lanes may be at work on what came before.
  const Entry* entry = idle(id);
  if (entry == nullptr || !entry->detached) return false;
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
