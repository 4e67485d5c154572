#include "server/faults/fault_board.h"

#include <array>
#include <utility>

#include "base/shared_word.h"
#include "cuda/sticky.h"

namespace flyt::server {
namespace {

constexpr std::uint64_t kFaultLayout = 1;
constexpr Duration kLook = std::chrono::milliseconds(2);

}  // namespace

// Zeroes are what a new file holds.
struct FaultBoard::Page {
  struct Seat {
    std::atomic<std::uint32_t> joined;  // The last incident when its process came.
    std::atomic<std::uint32_t> part_in;
    std::atomic<FaultPart> part;  // In the incident `part_in`, which is stored after it.
  };
  std::atomic<std::uint64_t> layout;
  SharedWord incident;
  std::array<Seat, kSeatsMax> seats;
};

bool is_gpu_fault(CUresult result) {
  return cuda::is_sticky(result) || result == CUDA_ERROR_MPS_RPC_FAILURE ||
         result == CUDA_ERROR_MPS_CLIENT_TERMINATED;
}

Result<std::unique_ptr<FaultBoard>> FaultBoard::open(const std::string& path) {
  auto roll = Roll::open(path, sizeof(Page));
  if (!roll) return std::move(roll).error();
  std::unique_ptr<FaultBoard> board(new FaultBoard(std::move(*roll)));
  std::uint64_t none = 0;
  board->page_->layout.compare_exchange_strong(none, kFaultLayout);
  if (board->page_->layout.load() == kFaultLayout) return board;
  return Error{ErrorCode::kUnsupported, path + " is of servers of another version"};
}

FaultBoard::FaultBoard(Roll roll)
    : roll_(std::move(roll)), page_(static_cast<Page*>(roll_.memory())) {}

FaultBoard::~FaultBoard() = default;

std::uint32_t FaultBoard::incident() const { return page_->incident.value(); }

// Of another process's seat that is just being taken the number may be an old one: then it is
// looked at once more.
bool FaultBoard::clear(std::uint32_t incident) const {
  for (auto place = roll_.next_taken(0, kSeatsMax); place;
       place = roll_.next_taken(*place + 1, kSeatsMax)) {
    if (page_->seats[*place].joined.load(std::memory_order_acquire) != incident) return false;
  }
  return true;
}

bool FaultBoard::sit(Instant deadline, const std::function<void()>& waits) {
  bool told = false;
  for (;;) {
    const std::uint32_t now = incident();
    const bool in_time = clear(now);
    if (!in_time && system_clock().now() < deadline) {
      if (!std::exchange(told, true)) waits();
      system_clock().sleep_for(kLook);
      continue;
    }
    if (!seat_) seat_ = roll_.take(kSeatsMax);
    if (!seat_) return false;
    joined_.store(now);
    page_->seats[*seat_].joined.store(now, std::memory_order_release);
    if (incident() == now) return in_time;
  }
}

bool FaultBoard::told() const {
  return seat_ && incident() != joined_.load(std::memory_order_relaxed);
}

void FaultBoard::wait(Duration at_most) const { page_->incident.wait(joined_.load(), at_most); }

void FaultBoard::rouse() { page_->incident.rouse(); }

void FaultBoard::tell() {
  if (seat_) page_->incident.advance_from(joined_.load());
}

void FaultBoard::stay() {
  if (!seat_) return;
  const std::uint32_t now = incident();
  page_->seats[*seat_].joined.store(now, std::memory_order_release);
  joined_.store(now);
}

void FaultBoard::give(FaultPart part) {
  if (!seat_) return;
  Page::Seat& seat = page_->seats[*seat_];
  seat.part.store(part, std::memory_order_relaxed);
  seat.part_in.store(incident(), std::memory_order_release);
}

bool FaultBoard::all_have_told(std::uint32_t incident) const {
  for (auto place = roll_.next_taken(0, kSeatsMax); place;
       place = roll_.next_taken(*place + 1, kSeatsMax)) {
    const Page::Seat& seat = page_->seats[*place];
    const bool stays = seat.joined.load(std::memory_order_acquire) == incident;
    if (!stays && seat.part_in.load(std::memory_order_acquire) != incident) return false;
  }
  return true;
}

std::uint32_t FaultBoard::suspects(Instant deadline) const {
  const std::uint32_t now = incident();
  while (!all_have_told(now) && system_clock().now() < deadline) {
    system_clock().sleep_for(kLook);
  }
  std::uint32_t count = 0;
  for (const Page::Seat& seat : page_->seats) {
    const bool told = seat.part_in.load(std::memory_order_acquire) == now;
    if (told && seat.part.load(std::memory_order_relaxed) == FaultPart::kSuspect) ++count;
  }
  return count;
}

}  // namespace flyt::server
