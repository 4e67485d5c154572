#include "rpc/lanes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "rpc/greeting.h"

namespace flyt::rpc {
namespace {

// A block costs a command and two wake-ups, so it is not made smaller for the sake of more lanes.
constexpr std::size_t kBlockBytesMin = 128 * kKiB;
// How long who waits for a block leaves the main connection unread, if nobody else reads it.
constexpr Duration kReadEvery = std::chrono::milliseconds(5);
// Pieces of a destination that are filled from a buffer at a time.
constexpr std::size_t kPiecesAtOnce = 256;

}  // namespace

unsigned Lanes::open() {
  if (!wanted()) return 0;
  if (tried_.load(std::memory_order_acquire)) return made_.load(std::memory_order_acquire);
  const Lock opening(open_mutex_);
  if (tried_.load()) return made_.load();
  if (loss_.lost()) return 0;
  deliveries_.allow_lanes();
  unsigned started = 0;
  const unsigned count = std::min<unsigned>(options_.count, wire::kLanesMax);
  for (; started < count; ++started) {
    Lane& lane = lanes_[started];
    lane.number = static_cast<std::uint16_t>(started);
    if (!lane.reader.start("flyt-lane", [this, &lane] { run(lane); })) break;
  }
  {
    const Lock lock(mutex_);
    while (reported_ < started) changed_.wait(mutex_);
  }
  tried_.store(true, std::memory_order_release);
  return made_.load();
}

void Lanes::report(bool made) {
  if (made) made_.fetch_add(1);
  const Lock lock(mutex_);
  ++reported_;
  changed_.notify_all();
}

Status Lanes::greet(Lane& lane, Instant deadline) {
  wire::ClientHello hello;
  hello.role = wire::ConnectionRole::kBulk;
  hello.token = token_;
  hello.lane = lane.number;
  hello.packing = options_.packing;
  Status said = write_hello(*lane.connection, wire::encode(hello), deadline);
  if (!said) return said;
  Result<std::vector<std::byte>> answer = read_hello(*lane.connection, deadline);
  if (!answer) return std::move(answer).error();
  Result<wire::Welcome> welcome = wire::decode_answer(*answer);
  if (!welcome) return std::move(welcome).error();
  return {};
}

// The reader's thread makes the lane, so that all of them are made at the same time.
void Lanes::run(Lane& lane) {
  const Instant deadline = clock_.now() + options_.patience;
  auto connection = options_.connect(deadline);
  if (!connection) return report(false);
  lane.connection = std::move(*connection);
  lane.shared.store(lane.connection.get());
  // From here on shut_down() sees it; what was lost before that is seen here.
  if (loss_.lost() || !greet(lane, deadline) ||
      !lane.writer.start("flyt-lane", [this, &lane] { write(lane); })) {
    lane.connection->shut_down();
    return report(false);
  }
  report(true);
  read(lane);
}

void Lanes::lose(const Error& error) {
  if (loss_.lost()) return;
  // The server may have said on the main connection why it ends the session.
  Error lost{ErrorCode::kLost, "a lane was lost: " + error.message};
  if (error.code == ErrorCode::kInvalid) return loss_.declare(std::move(lost));
  loss_.suspect(std::move(lost));
  deliveries_.wake_all();
  inbox_.read_if_nobody_does();
}

void Lanes::read(Lane& lane) {
  LaneReader reader(*lane.connection);
  std::vector<std::byte> buffer;
  std::vector<MutableBytes> pieces;
  while (true) {
    const Result<wire::LaneBlock> block = reader.next();
    if (!block) return lose(block.error());
    const Result<Deliveries::Incoming> incoming =
        deliveries_.by_lane(block->name, block->offset, block->bytes);
    if (!incoming) return lose(incoming.error());
    const Status done = incoming->destination
                            ? place(reader, *block, *incoming->destination, buffer, pieces)
                            : reader.skip(*block);
    if (incoming->destination) deliveries_.end_by_lane(block->name, block->offset, done.ok());
    if (!done) return lose(done.error());
    bytes_received_.fetch_add(block->sent_bytes, std::memory_order_relaxed);
  }
}

Status Lanes::place(LaneReader& reader, const wire::LaneBlock& block,
                    const Destination& destination, std::vector<std::byte>& buffer,
                    std::vector<MutableBytes>& pieces) {
  pieces.clear();
  std::uint64_t done =
      Deliveries::pieces(destination, block.offset, block.bytes, kPiecesAtOnce, pieces);
  if (pieces.size() == 1 && done == block.bytes) return reader.read(block, pieces.front());
  buffer.resize(wire::kLaneBlockBytesMax);
  const MutableBytes all = MutableBytes(buffer).first(block.bytes);
  if (Status got = reader.read(block, all); !got) return got;
  std::size_t at = 0;
  while (true) {
    for (const MutableBytes& piece : pieces) {
      std::memcpy(piece.data(), all.data() + at, piece.size());
      at += piece.size();
    }
    if (done == block.bytes) return {};
    pieces.clear();
    done += Deliveries::pieces(destination, block.offset + done, block.bytes - done, kPiecesAtOnce,
                               pieces);
  }
}

void Lanes::write(Lane& lane) {
  LaneWriter writer(*lane.connection, clock_, options_.packing);
  Bytes data;
  std::uint64_t index = 0;
  while (take(lane, data, index)) {
    const Status sent = writer.write(lane.blocks, 0, data);
    done(index, sent.ok());
    if (!sent) return lose(sent.error());
    bytes_sent_.fetch_add(data.size(), std::memory_order_relaxed);
  }
}

// Waits for something to send; false when there never will be.
bool Lanes::take(Lane& lane, Bytes& data, std::uint64_t& index) {
  const Lock lock(mutex_);
  while (!ended_ && (job_.rest.empty() || job_.blocks.size() >= job_.ahead_max)) {
    wake_.wait(mutex_);
  }
  if (ended_) return false;
  data = job_.rest.first(std::min(job_.rest.size(), job_.block_bytes));
  job_.rest = job_.rest.subspan(data.size());
  index = job_.taken++;
  job_.blocks.push_back({{.offset = job_.offset,
                          .number = ++lane.blocks,
                          .bytes = static_cast<std::uint32_t>(data.size()),
                          .lane = lane.number}});
  job_.offset += data.size();
  ++job_.at_work;
  return true;
}

void Lanes::done(std::uint64_t index, bool sent) {
  const Lock lock(mutex_);
  --job_.at_work;
  job_.blocks[index - job_.first_block].sent = sent;
  if (index == job_.first_block || ended_) changed_.notify_all();
}

// The next block in the order of offsets, once it is sent. False if the session is lost.
bool Lanes::next_sent(SentBlock& block) {
  while (true) {
    {
      const Lock lock(mutex_);
      if (!job_.blocks.empty() && job_.blocks.front().sent) {
        block = job_.blocks.front().told;
        if (job_.blocks.size() == job_.ahead_max) wake_.notify_all();
        job_.blocks.pop_front();
        ++job_.first_block;
        return true;
      }
      if (ended_) return false;
      if (changed_.wait_for(mutex_, kReadEvery) == std::cv_status::no_timeout) continue;
    }
    // The server must not come to a stop because nobody reads what it has to say.
    inbox_.read_if_nobody_does();
  }
}

LaneSend Lanes::send(Bytes data, std::size_t ahead_max,
                     const std::function<void(const SentBlock&)>& on_sent) {
  FLYT_ASSERT(ahead_max > 0);
  const unsigned made = made_.load(std::memory_order_acquire);
  if (made == 0 || data.empty() || !job_mutex_.try_lock()) return LaneSend::kNone;
  {
    const Lock lock(mutex_);
    job_ = {};
    job_.rest = data;
    job_.ahead_max = ahead_max;
    job_.block_bytes = std::clamp<std::size_t>((data.size() + made - 1) / made, kBlockBytesMin,
                                               wire::kLaneBlockBytesMax);
    wake_.notify_all();
  }
  bool going = true;
  SentBlock block;
  for (std::uint64_t told = 0; going && told < data.size(); told += block.bytes) {
    going = next_sent(block);
    if (going) on_sent(block);
  }
  if (!going) {
    // No lane may read the caller's memory when this returns.
    const Lock lock(mutex_);
    while (job_.at_work > 0) changed_.wait(mutex_);
  }
  job_mutex_.unlock();
  return going ? LaneSend::kSent : LaneSend::kLost;
}

void Lanes::shut_down() {
  for (Lane& lane : lanes_) {
    if (transport::Connection* connection = lane.shared.load()) connection->shut_down();
  }
  const Lock lock(mutex_);
  ended_ = true;
  job_.rest = {};
  wake_.notify_all();
  changed_.notify_all();
}

void Lanes::stop() {
  // A thread that is late may be about to start theirs.
  const Lock opening(open_mutex_);
  for (Lane& lane : lanes_) {
    lane.reader.join();
    lane.writer.join();
  }
}

void Lanes::abandon() {
  for (Lane& lane : lanes_) {
    if (transport::Connection* connection = lane.shared.load()) connection->abandon();
  }
}

}  // namespace flyt::rpc
