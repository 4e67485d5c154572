// Deliveries: copies to the host, from the GPU through staging memory to the client.
#include "server/transfers/deliveries.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server {
namespace {

// How often a slot of staging memory is looked for when there is none: at first, and when none
// has come for long.
constexpr Duration kSlotPauseMin = std::chrono::microseconds(20);
constexpr Duration kSlotPauseMax = std::chrono::microseconds(500);

CUresult copy_from_array(const driver::Table& driver, const DeliveryJob& job,
                         const BoxCursor::Piece& piece, void* to) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = job.array.array;
  copy.srcXInBytes = job.array.x + piece.column;
  copy.srcY = job.array.y + piece.row;
  copy.srcZ = job.array.z + piece.slice;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  copy.dstPitch = piece.width;
  copy.dstHeight = piece.rows;
  copy.WidthInBytes = piece.width;
  copy.Height = piece.rows;
  copy.Depth = 1;
  return driver.cuMemcpy3DAsync_v2(&copy, job.stream);
}

}  // namespace

BoxCursor DeliveryJob::cursor() const {
  return BoxCursor(box, Staging::kSlotBytes, array.array != nullptr);
}

bool Deliveries::StreamKey::operator<(const StreamKey& other) const {
  if (context != other.context) return context < other.context;
  if (stream != other.stream) return stream < other.stream;
  return owner.owner_before(other.owner);
}

CUresult Deliveries::issue(const DeliveryJob& job, const BoxCursor::Piece& piece, Piece& out) {
  const driver::Table& driver = session_.driver();
  CUresult result = CUDA_SUCCESS;
  if (job.array.array != nullptr) {
    result = copy_from_array(driver, job, piece, out.slot.data);
  } else if (piece.rows == 1) {
    result = driver.cuMemcpyDtoHAsync_v2(out.slot.data, piece.address, piece.width, job.stream);
  } else {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = piece.address;
    copy.srcPitch = piece.pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = out.slot.data;
    copy.dstPitch = piece.width;
    copy.WidthInBytes = piece.width;
    copy.Height = piece.rows;
    result = driver.cuMemcpy2DAsync_v2(&copy, job.stream);
  }
  if (result != CUDA_SUCCESS) return result;
  out.delivery = job.delivery;
  out.offset = piece.offset;
  out.bytes = piece.bytes();
  out.fence = events_.record(job.context, job.stream, result);
  return result;
}

CUresult Deliveries::issue_on_worker(const DeliveryJob& job, const BoxCursor::Piece& piece,
                                     Piece& out) {
  const auto using_stream = session_.use();
  const CUresult entered = session_.enter_again(job.context_handle);
  return entered == CUDA_SUCCESS ? issue(job, piece, out) : entered;
}

Deliveries::Issuing::Issuing(Deliveries& deliveries, CUstream stream)
    : deliveries_(deliveries), stream_(stream) {
  const Lock lock(deliveries_.mutex_);
  deliveries_.issuing_.insert(stream_);
}

void Deliveries::Issuing::end() {
  if (std::exchange(ended_, true)) return;
  const Lock lock(deliveries_.mutex_);
  deliveries_.issuing_.erase(deliveries_.issuing_.find(stream_));
}

bool Deliveries::issues_into(CUstream stream) const {
  const Lock lock(mutex_);
  return issuing_.contains(stream);
}

Staging::Slot Deliveries::wait_for_slot(const DeliveryJob& job, std::uint64_t bytes,
                                        bool must_not_wait) {
  for (Duration pause = kSlotPauseMin;; pause = std::min(pause * 2, kSlotPauseMax)) {
    if (Staging::Slot slot = staging_.take(bytes, Staging::kBytesMax)) return slot;
    if (must_not_wait || pending() == 0) return staging_.take(bytes, Staging::kBytesHardMax);
    if (session_.endpoint().closed()) return {};
    send_finished();
    session_.clock().sleep_for(pause);
    session_.enter(job.context);
  }
}

CUresult Deliveries::post(Request& request, const DeliveryJob& job) {
  BoxCursor cursor = job.cursor();
  if (cursor.done()) {
    session_.endpoint().deliver(job.delivery, 0, {});
    return CUDA_SUCCESS;
  }
  // A stream may stand until the client runs a host function, which it tells in a command that is
  // read only after this one: waiting here for the client would then be for ever.
  const bool must_not_wait = session_.memory().host_calls.any();
  std::uint64_t begun = 0;
  for (; begun < request.begun(); ++begun) cursor.next();
  for (; !cursor.done(); ++begun) {
    if (session_.gives_way(request, begun)) break;
    // The copy of a piece, and the event behind it.
    for (int i = 0; i < 2; ++i) session_.memory().depths.count(job.context, job.stream);
    const BoxCursor::Piece next = cursor.next();
    Piece piece;
    piece.slot = wait_for_slot(job, next.bytes(), must_not_wait);
    CUresult result = piece.slot ? issue(job, next, piece) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
      if (piece.slot) staging_.give(piece.slot);
      session_.endpoint().drop_delivery(job.delivery);
      return result;
    }
    const Lock lock(mutex_);
    piece.number = next_number_++;
    const auto stream = posted_.try_emplace({job.context, job.stream, job.stream_owner}).first;
    if (stream->second.empty()) fronts_.emplace(piece.number, stream);
    stream->second.push_back(std::move(piece));
    pending_.fetch_add(1, std::memory_order_release);
  }
  lookout_.expect();
  return CUDA_SUCCESS;
}

void Deliveries::answer(Request request, const DeliveryJob& job) {
  request.forget_payload();
  BoxCursor cursor = job.cursor();
  if (cursor.done()) return request.reply(CUDA_SUCCESS);
  const BoxCursor::Piece first = cursor.next();
  Piece piece;
  if (cursor.done()) {
    piece.slot = staging_.take(first.bytes(), Staging::kBytesMax, Staging::Memory::kRegistered);
  }
  if (!piece.slot) {
    auto issuing = std::make_shared<Issuing>(*this, job.stream);
    session_.run_slow(std::move(request), [this, job, issuing](Request slow) {
      const CUresult result = run_pipeline(job);
      // Who hears of it may begin a capture at once.
      issuing->end();
      if (result != CUDA_SUCCESS) session_.endpoint().drop_delivery(job.delivery);
      slow.reply(result);
    });
    return;
  }
  const CUresult result = issue(job, first, piece);
  if (result == CUDA_SUCCESS) return finish_small(std::move(request), std::move(piece));
  staging_.give(piece.slot);
  session_.endpoint().drop_delivery(job.delivery);
  request.reply(result);
}

void Deliveries::finish_small(Request request, Piece piece) {
  // std::function copies what it holds.
  auto shared_request = std::make_shared<Request>(std::move(request));
  Completion completion;
  completion.context = piece.fence->context();
  completion.poll = [fence = piece.fence] { return fence->poll(); };
  completion.block = [fence = piece.fence] { return fence->wait(); };
  completion.finish = [this, shared_request, piece](CUresult result) {
    if (result == CUDA_SUCCESS) {
      static_cast<void>(session_.memory().host_mirror.before_delivery());
      session_.endpoint().deliver(piece.delivery, piece.offset,
                                  bytes_at(piece.slot.data, piece.bytes), rpc::Then::kReply);
    } else {
      session_.endpoint().drop_delivery(piece.delivery);
    }
    staging_.give(piece.slot);
    shared_request->reply(result);
  };
  session_.completions().add(std::move(completion));
}

CUresult Deliveries::run_pipeline(const DeliveryJob& job) {
  BoxCursor cursor = job.cursor();
  std::deque<Piece> in_flight;
  ByLanes by_lanes;
  // Unknown until what came before the copy is done.
  std::optional<bool> in_order;
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && (!cursor.done() || !in_flight.empty())) {
    if (session_.endpoint().closed()) result = CUDA_ERROR_UNKNOWN;
    while (result == CUDA_SUCCESS && !cursor.done() && in_flight.size() < kPiecesInFlight) {
      Piece piece;
      // Waiting copies are few and small in flight: they may exceed what posted ones fill.
      piece.slot = staging_.take(Staging::kSlotBytes, Staging::kBytesHardMax);
      if (!piece.slot) {
        if (in_flight.empty()) result = CUDA_ERROR_OUT_OF_MEMORY;
        break;
      }
      result = issue_on_worker(job, cursor.next(), piece);
      in_flight.push_back(std::move(piece));
    }
    if (in_flight.empty()) break;
    Piece& oldest = in_flight.front();
    if (oldest.fence != nullptr && result == CUDA_SUCCESS) result = oldest.fence->wait();
    if (result != CUDA_SUCCESS) break;
    if (!in_order) in_order = session_.memory().host_mirror.before_delivery();
    deliver(oldest, by_lanes, rpc::Then::kAnything, *in_order);
    in_flight.pop_front();
  }
  tell(by_lanes);
  // After an error the DMA of the others may still run: the slots wait for it.
  for (const Piece& piece : in_flight) {
    if (piece.fence != nullptr) static_cast<void>(piece.fence->wait());
    staging_.give(piece.slot);
  }
  return result;
}

void Deliveries::deliver(const Piece& piece, ByLanes& by_lanes, rpc::Then then, bool in_order) {
  const bool next =
      by_lanes.delivery == piece.delivery && by_lanes.offset + by_lanes.bytes == piece.offset;
  const Bytes data = bytes_at(piece.slot.data, piece.bytes);
  const bool by_lane = !in_order && piece.bytes >= kLaneBytesMin &&
                       lanes_.send({.delivery = piece.delivery,
                                    .offset = piece.offset,
                                    .data = data,
                                    .sent = [this, slot = piece.slot] { staging_.give(slot); }});
  if (!next || !by_lane) tell(by_lanes);
  if (by_lane) {
    if (by_lanes.bytes == 0) by_lanes = {piece.delivery, piece.offset, 0};
    by_lanes.bytes += piece.bytes;
    if (by_lanes.bytes >= kToldBytesMax) tell(by_lanes);
    return;
  }
  session_.endpoint().deliver(piece.delivery, piece.offset, data, then);
  staging_.give(piece.slot);
}

void Deliveries::tell(ByLanes& by_lanes) {
  if (by_lanes.bytes != 0) {
    session_.endpoint().deliver_by_lane(by_lanes.delivery, by_lanes.offset, by_lanes.bytes);
  }
  by_lanes = {};
}

void Deliveries::send_finished(rpc::Then then) {
  if (pending() == 0) return;
  const Lock lock(send_mutex_);
  Piece piece;
  ByLanes by_lanes;
  std::uint64_t sent = 0;
  CUresult result = CUDA_SUCCESS;
  while (take_finished(piece, result)) {
    if (result == CUDA_SUCCESS) {
      deliver(piece, by_lanes, then, false);
    } else {
      tell(by_lanes);
      session_.endpoint().drop_delivery(piece.delivery);
      staging_.give(piece.slot);
    }
    ++sent;
  }
  tell(by_lanes);
  // Not before: whoever finds nothing pending replies.
  pending_.fetch_sub(sent, std::memory_order_release);
}

bool Deliveries::take_finished(Piece& piece, CUresult& result) {
  const Lock lock(mutex_);
  auto finished = fronts_.end();
  // What a finished one has waited for is finished, but may not have been when it was looked at: so
  // those before it are looked at again.
  for (auto end = fronts_.end();; end = finished) {
    auto front = fronts_.begin();
    for (; front != end; ++front) {
      const CUresult polled = front->second->second.front().fence->poll();
      if (polled == CUDA_ERROR_NOT_READY) continue;
      finished = front;
      result = polled;
      break;
    }
    if (front == end) break;
  }
  if (finished == fronts_.end()) return false;
  const auto stream = finished->second;
  std::deque<Piece>& pieces = stream->second;
  fronts_.erase(finished);
  piece = std::move(pieces.front());
  pieces.pop_front();
  if (pieces.empty()) {
    posted_.erase(stream);
  } else {
    fronts_.emplace(pieces.front().number, stream);
  }
  return true;
}

}  // namespace flyt::server
