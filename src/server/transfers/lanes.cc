#include "server/transfers/lanes.h"

#include <sys/socket.h>  // lint: allow(sockets): lanes come from the parent process

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "rpc/endpoint.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server {
namespace {

// A lane that has no slot looks whether the GPU has passed one so often.
constexpr Duration kLookMin = std::chrono::microseconds(20);
constexpr Duration kLookMax = std::chrono::microseconds(500);
// All of a hello has come when the parent passes a connection on.
constexpr Duration kHelloTime = std::chrono::seconds(1);

}  // namespace

Lane::Lane(Lanes& lanes, std::unique_ptr<transport::Connection> connection,
           wire::LanePacking packing)
    : lanes_(lanes), connection_(std::move(connection)), packing_(packing) {}

void Lane::join() {
  receiver_.join();
  sender_.join();
}

bool Lane::start() {
  return receiver_.start("flyt-lane", [this] { receive(); }) &&
         sender_.start("flyt-lane", [this] { send(); });
}

void Lane::shut_down() {
  connection_->shut_down();
  const Lock lock(mutex_);
  ended_ = true;
  slot_free_.notify_all();
  to_send_.notify_all();
}

rpc::Chunk* Lane::acquire() {
  {
    const Lock lock(mutex_);
    if (ended_ || slots_ >= lanes_.quota()) return nullptr;
    ++slots_;
  }
  const auto index = lanes_.stock().take(Lanes::kSlotsMax);
  const Lock lock(mutex_);
  if (!index) {
    --slots_;
    return nullptr;
  }
  if (chunks_.size() <= *index) chunks_.resize(*index + 1);
  std::unique_ptr<rpc::Chunk>& chunk = chunks_[*index];
  if (chunk == nullptr) {
    chunk = std::make_unique<rpc::Chunk>(*this, lanes_.stock().bytes(*index), *index);
  }
  return chunk.get();
}

void Lane::recycle(rpc::Chunk& chunk) {
  lanes_.stock().give(chunk.tag());
  const Lock lock(mutex_);
  --slots_;
  slot_free_.notify_all();
}

// Nobody else may look for what the GPU has passed: the main thread sleeps while nothing comes.
rpc::ChunkRef Lane::wait_for_slot() {
  Duration pause = kLookMin;
  while (true) {
    if (rpc::ChunkRef chunk{acquire()}) return chunk;
    {
      const auto using_objects = lanes_.session().use();
      lanes_.session().memory().holds.seal();
      static_cast<void>(lanes_.session().memory().holds.poll());
    }
    const Lock lock(mutex_);
    if (ended_) return {};
    slot_free_.wait_for(mutex_, pause);
    pause = std::min(pause * 2, kLookMax);
  }
}

void Lane::receive() {
  rpc::LaneReader reader(*connection_);
  for (std::uint64_t number = 1;; ++number) {
    const Result<wire::LaneBlock> block = reader.next();
    if (!block) return lanes_.lost(block.error().message);
    if (block->name != number || block->offset != 0) {
      return lanes_.lost("a block out of order");
    }
    rpc::ChunkRef chunk = wait_for_slot();
    if (!chunk) return;
    const Status got = reader.read(*block, chunk->bytes().first(block->bytes));
    if (!got) return lanes_.lost(got.error().message);
    {
      const Lock lock(mutex_);
      received_.push_back({number, block->bytes, std::move(chunk)});
    }
    if (awaited_.exchange(false)) lanes_.session().endpoint().wake();
  }
}

Lane::Found Lane::take(std::uint64_t number, std::uint32_t bytes, rpc::ChunkRef& chunk) {
  const Lock lock(mutex_);
  if (number != taken_ + 1 || bytes == 0 || bytes > wire::kLaneBlockBytesMax) return Found::kNever;
  if (received_.empty()) {
    awaited_.store(true);
    return Found::kNotYet;
  }
  Block& first = received_.front();
  if (first.bytes != bytes) return Found::kNever;
  chunk = std::move(first.chunk);
  received_.pop_front();
  ++taken_;
  awaited_.store(false);
  return Found::kThere;
}

bool Lane::add(Part& part) {
  const Lock lock(mutex_);
  if (ended_ || parts_.size() >= kWaitingMax) return false;
  parts_.push_back(std::move(part));
  to_send_.notify_one();
  return true;
}

std::size_t Lane::waiting() const {
  const Lock lock(mutex_);
  return parts_.size();
}

bool Lane::next(Part& part) {
  const Lock lock(mutex_);
  while (!ended_ && parts_.empty()) to_send_.wait(mutex_);
  if (ended_) return false;
  part = std::move(parts_.front());
  parts_.pop_front();
  return true;
}

void Lane::send() {
  rpc::LaneWriter writer(*connection_, lanes_.session().clock(), packing_);
  Part part;
  while (next(part)) {
    lanes_.made_room();
    const Status sent = writer.write(part.delivery, part.offset, part.data);
    if (!sent) return lanes_.lost(sent.error().message);
    part.sent();
  }
}

Lanes::Lanes(Session& session)
    : session_(session), stock_(session.driver(), {wire::kLaneBlockBytesMax, kSlotsReserve}) {}

Lanes::~Lanes() = default;

void Lanes::shut_down() {
  ended_.store(true);
  for (const auto& at : lanes_) {
    if (Lane* lane = at.load()) lane->shut_down();
  }
  made_room();
}

std::size_t Lanes::quota() const {
  return kSlotsMax / std::max(1U, count_.load(std::memory_order_relaxed));
}

void Lanes::lost(std::string_view what) {
  if (ended_.load()) return;
  session_.end("a lane was lost: " + std::string(what));
  shut_down();
}

void Lanes::made_room() {
  const Lock lock(mutex_);
  room_.notify_all();
}

void Lanes::admit(std::unique_ptr<transport::Connection> connection,
                  const wire::ClientHello& hello) {
  // lost() takes the lock.
  if (!take_in(std::move(connection), hello)) lost("no thread for it");
}

bool Lanes::take_in(std::unique_ptr<transport::Connection> connection,
                    const wire::ClientHello& hello) {
  const Instant deadline = system_clock().now() + kHelloTime;
  const Lock lock(mutex_);
  std::unique_ptr<Lane>& owned = owned_[hello.lane];
  if (owned != nullptr || ended_.load()) {
    const wire::Refusal refusal{wire::RefusalCode::kMalformed, "the session has this lane already"};
    static_cast<void>(rpc::send_refusal(*connection, refusal, deadline).ok());
    return true;
  }
  transport::Connection& socket = *connection;
  owned = std::make_unique<Lane>(*this, std::move(connection), hello.packing);
  // The client may name a block as soon as it has read the welcome.
  lanes_[hello.lane].store(owned.get(), std::memory_order_release);
  const unsigned before = count_.fetch_add(1);
  const wire::Welcome welcome{.name = "flyt-server", .token = hello.token};
  // Without it the lane is lost, which its receiver finds out.
  static_cast<void>(rpc::send_welcome(socket, welcome, deadline).ok());
  const bool started = owned->start();
  if (before == 0) session_.memory().restock_later(stock_);
  return started;
}

void Lanes::stop() {
  shut_down();
  for (const auto& at : lanes_) {
    if (Lane* lane = at.load()) lane->join();
  }
}

Lane::Found Lanes::take(std::uint32_t lane, std::uint64_t number, std::uint32_t bytes,
                        rpc::ChunkRef& chunk) {
  Lane* at = lane < lanes_.size() ? lanes_[lane].load(std::memory_order_acquire) : nullptr;
  return at == nullptr ? Lane::Found::kNever : at->take(number, bytes, chunk);
}

bool Lanes::awaited() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& at) {
    const Lane* lane = at.load(std::memory_order_acquire);
    return lane != nullptr && lane->awaited();
  });
}

bool Lanes::send(Lane::Part part) {
  if (!any()) return false;
  const Lock lock(mutex_);
  while (!ended_.load()) {
    Lane* emptiest = nullptr;
    std::size_t fewest = Lane::kWaitingMax;
    for (const auto& lane : owned_) {
      const std::size_t waiting = lane == nullptr ? Lane::kWaitingMax : lane->waiting();
      if (waiting < fewest) emptiest = lane.get();
      fewest = std::min(fewest, waiting);
    }
    if (emptiest != nullptr && emptiest->add(part)) return true;
    room_.wait(mutex_);
  }
  return false;
}

LaneDoor::LaneDoor(Fd channel, const wire::SessionToken& token, Lanes& lanes)
    : channel_(std::move(channel)), token_(token), lanes_(lanes) {
  // Without the thread no lane is welcomed, and the session has one connection.
  if (channel_.valid()) static_cast<void>(thread_.start("flyt-door", [this] { run(); }).ok());
}

LaneDoor::~LaneDoor() {
  if (!thread_.running()) return;
  ::shutdown(channel_.get(), SHUT_RDWR);
  thread_.join();
}

void LaneDoor::run() {
  while (true) {
    // Of the server's parent, as long as the session lasts: the destructor ends it.
    auto received = transport::receive_fd(channel_.get(), transport::kNever);
    if (!received) return;
    auto connection = transport::adopt(std::move(received->fd));
    if (!connection) continue;
    const auto hello = rpc::receive_hello(**connection, system_clock().now() + kHelloTime);
    if (!hello || hello->role != wire::ConnectionRole::kBulk || hello->token != token_) continue;
    lanes_.admit(std::move(*connection), *hello);
  }
}

}  // namespace flyt::server
