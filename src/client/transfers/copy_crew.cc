// CopyCrew: several threads that copy host memory together.
#include "client/transfers/copy_crew.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/clock.h"
#include "rpc/futex.h"

namespace flyt::client {
namespace {

// More than four threads do not copy faster than a GPU's bus carries.
constexpr long kHelpersMax = 3;
constexpr long kCoresPerHelper = 4;
constexpr std::size_t kPieceBytes = 256 * kKiB;
// Longer than what lies between two pieces of one transfer.
constexpr Duration kSpin = std::chrono::microseconds(100);
constexpr int kLooksPerTurn = 64;

}  // namespace

int CopyCrew::helpers_here() {
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  return static_cast<int>(std::clamp(cores / kCoresPerHelper, 0L, kHelpersMax));
}

CopyCrew::~CopyCrew() {
  stopping_.store(true);
  const Lock lock(mutex_);
  {
    const Lock job(job_mutex_);
    wake_.notify_all();
  }
  helpers_.clear();
}

void CopyCrew::start_helpers() {
  while (helpers_.size() < static_cast<std::size_t>(helpers_wished_)) {
    helpers_.push_back(std::make_unique<rpc::Thread>());
    // With fewer helpers it only takes longer.
    if (!helpers_.back()->start("flyt-copy", [this] { run(); })) return;
  }
}

void CopyCrew::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (helpers_wished_ == 0 || bytes <= kPieceBytes || !mutex_.try_lock()) {
    std::memcpy(to, from, bytes);
    return;
  }
  start_helpers();
  {
    const Lock lock(job_mutex_);
    rest_ = {static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes};
    jobs_.fetch_add(1);
    if (sleepers_ > 0) wake_.notify_all();
  }
  for (Piece piece = take(); piece.bytes > 0; piece = take()) {
    std::memcpy(piece.to, piece.from, piece.bytes);
    done();
  }
  while (at_work_.load(std::memory_order_acquire) != 0) rpc::relax();
  mutex_.unlock();
}

CopyCrew::Piece CopyCrew::take() {
  const Lock lock(job_mutex_);
  Piece piece = rest_;
  piece.bytes = std::min(piece.bytes, kPieceBytes);
  if (piece.bytes == 0) return piece;
  rest_ = {rest_.to + piece.bytes, rest_.from + piece.bytes, rest_.bytes - piece.bytes};
  at_work_.fetch_add(1, std::memory_order_relaxed);
  return piece;
}

void CopyCrew::done() { at_work_.fetch_sub(1, std::memory_order_release); }

void CopyCrew::run() {
  while (!stopping_.load()) {
    const std::uint64_t seen = jobs_.load();
    for (Piece piece = take(); piece.bytes > 0; piece = take()) {
      std::memcpy(piece.to, piece.from, piece.bytes);
      done();
    }
    const Instant end = system_clock().now() + kSpin;
    while (jobs_.load(std::memory_order_relaxed) == seen && system_clock().now() < end) {
      for (int i = 0; i < kLooksPerTurn; ++i) rpc::relax();
    }
    if (jobs_.load() == seen) wait_for_job();
  }
}

void CopyCrew::wait_for_job() {
  const Lock lock(job_mutex_);
  ++sleepers_;
  while (rest_.bytes == 0 && !stopping_.load()) wake_.wait(job_mutex_);
  --sleepers_;
}

}  // namespace flyt::client
