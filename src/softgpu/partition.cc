#include "softgpu/partition.h"

#include <algorithm>
#include <utility>

#include "softgpu/context.h"

namespace flyt::softgpu {

std::shared_ptr<Partition> Partition::make(Workers& workers, std::shared_ptr<Fate> fate,
                                           std::shared_ptr<StreamNumbers> numbers,
                                           const Names& names, std::shared_ptr<const SmSet> sms) {
  auto partition = std::make_shared<Partition>(workers, std::move(fate), std::move(numbers), names,
                                               std::move(sms));
  partition->legacy_ = partition->make_stream(CU_STREAM_DEFAULT, kPriorityLeast, true);
  return partition;
}

std::shared_ptr<Stream> Partition::make_stream(unsigned flags, int priority, bool legacy) {
  auto stream = std::make_shared<Stream>(workers_, fate_, names_.owner, flags,
                                         std::clamp(priority, kPriorityGreatest, kPriorityLeast),
                                         numbers_->fetch_add(1));
  stream->set_partition(weak_from_this(), sms_, legacy);
  return stream;
}

std::shared_ptr<Stream> Partition::add_stream(unsigned flags, int priority) {
  auto stream = make_stream(flags, priority, false);
  const Lock lock(mutex_);
  // Streams that nobody else holds and that have nothing to do are gone.
  std::erase_if(streams_, [](const std::shared_ptr<Stream>& known) {
    return known.use_count() == 1 && known->idle();
  });
  streams_.push_back(stream);
  return stream;
}

std::shared_ptr<Stream> Partition::per_thread(std::uint64_t thread) {
  const Lock lock(mutex_);
  std::shared_ptr<Stream>& stream = per_thread_[thread];
  if (stream == nullptr) stream = make_stream(CU_STREAM_DEFAULT, kPriorityLeast, false);
  return stream;
}

std::vector<std::shared_ptr<Stream>> Partition::streams() const {
  const Lock lock(mutex_);
  std::vector<std::shared_ptr<Stream>> all = streams_;
  for (const auto& [thread, stream] : per_thread_) all.push_back(stream);
  return all;
}

Ticket Partition::submit(Stream& stream, Operation operation) {
  const Lock lock(order_);
  const auto wait_for = [&operation](const Stream& other) {
    Ticket last = other.last();
    if (!last.reached()) operation.after.push_back(std::move(last));
  };
  if (stream.legacy()) {
    for (const auto& other : streams()) {
      if (other->blocking()) wait_for(*other);
    }
  } else if (stream.blocking()) {
    wait_for(*legacy_);
  }
  if (!gates_.empty()) {
    std::erase_if(gates_, [](const Ticket& gate) { return gate.reached(); });
    operation.after.insert(operation.after.end(), gates_.begin(), gates_.end());
  }
  return stream.push(std::move(operation));
}

bool Partition::idle(const Stream& stream) const {
  if (!stream.idle()) return false;
  if (!stream.legacy()) return true;
  const auto all = streams();
  return std::all_of(all.begin(), all.end(), [](const std::shared_ptr<Stream>& other) {
    return !other->blocking() || other->idle();
  });
}

std::vector<Ticket> Partition::ends() const {
  std::vector<Ticket> all{legacy_->last()};
  for (const auto& stream : streams()) all.push_back(stream->last());
  return all;
}

void Partition::hold_back(const Ticket& ticket) {
  const Lock lock(order_);
  gates_.push_back(ticket);
}

}  // namespace flyt::softgpu
