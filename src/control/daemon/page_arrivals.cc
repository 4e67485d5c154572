#include "control/daemon/page_arrivals.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "control/daemon/page_request.h"

namespace flyt::control {
namespace {

int milliseconds_until(Instant at) {
  constexpr std::int64_t kMost = 60'000;
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(at - system_clock().now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count() + 1, 0, kMost));
}

}  // namespace

void PageArrivals::add(std::unique_ptr<transport::Connection> connection, Instant now) {
  if (ones_.size() == kMost) ones_.pop_front();
  ones_.push_back({{std::move(connection), {}}, now + patience_});
}

PageArrivals::Said PageArrivals::hear(One& one) const {
  if (!in_the_clear_) return Said::kReady;
  std::string& said = one.arrival.said;
  std::array<std::byte, 4096> space;
  const MutableBytes into(space);
  const auto got = one.arrival.connection->read({&into, 1}, transport::Patience::kNow);
  if (!got) return Said::kGone;
  // The end may have begun in the piece before.
  const std::size_t from = said.size() < 3 ? 0 : said.size() - 3;
  said.append(text_of(Bytes(space).first(*got)));
  const bool whole = page_head_in(std::string_view(said).substr(from)).has_value();
  return whole || said.size() >= kPageRequestBytesMax ? Said::kReady : Said::kLittle;
}

PageArrivals::Turn PageArrivals::wait(int listener, const transport::Wakeup& wakeup,
                                      Instant until) {
  std::vector<pollfd> entries{{wakeup.fd(), POLLIN, 0}, {listener, POLLIN, 0}};
  for (const One& one : ones_) {
    entries.push_back({one.arrival.connection->fd(), POLLIN, 0});
    until = std::min(until, one.deadline);
  }
  Turn turn;
  if (::poll(entries.data(), entries.size(), milliseconds_until(until)) < 0) return turn;
  if (entries[0].revents != 0) wakeup.clear();
  turn.at_door = entries[1].revents != 0;
  const Instant now = system_clock().now();
  auto entry = entries.begin() + 2;
  for (auto one = ones_.begin(); one != ones_.end(); ++entry) {
    const auto next = std::next(one);
    const Said said = entry->revents != 0 ? hear(*one) : Said::kLittle;
    if (said == Said::kReady) turn.ready.push_back(std::move(one->arrival));
    if (said != Said::kLittle || now >= one->deadline) ones_.erase(one);
    one = next;
  }
  return turn;
}

}  // namespace flyt::control
