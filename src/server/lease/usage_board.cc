#include "server/lease/usage_board.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/bytes.h"
#include "base/shared_word.h"
#include "base/wall_clock.h"
#include "server/shared_mutex.h"
#include "transport/machine.h"

namespace flyt::server {
namespace {

constexpr std::size_t kNameBytesMax = 63;
constexpr std::uint32_t kNoDrain = ~std::uint32_t{0};
constexpr std::array kCounters = {
    &SessionCounters::posted,         &SessionCounters::waited,  &SessionCounters::launches,
    &SessionCounters::received_bytes, &SessionCounters::busy_ns, &SessionCounters::queued_ns,
};

template <std::size_t size>
void put_text(std::array<char, size>& into, std::string_view text) {
  text = text.substr(0, size - 1);
  *std::copy(text.begin(), text.end(), into.begin()) = '\0';
}

template <std::size_t size>
std::string text_of(const std::array<char, size>& text) {
  return {text.data(), ::strnlen(text.data(), text.size())};
}

}  // namespace

enum class Handover : std::uint32_t { kBusy = 0, kReady = 1, kTaken = 2 };

// Written by one child, read by others at any moment; cleared by the parent when it has ended.
struct UsageRow {
  struct Device {
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint32_t> contexts{0};
  };

  // The server's process; stored last, so what stands below is there once this is.
  std::atomic<std::uint32_t> server_process{0};
  std::atomic<bool> end_wanted{false};
  std::atomic<std::uint32_t> grant_version{0};  // That in which the session runs.
  std::atomic<std::uint32_t> fixed{0};
  std::atomic<std::uint32_t> heeded{0};  // The last shortage for which it gave up what lay idle.
  std::atomic<bool> quiet{false};        // It does that for all.
  std::atomic<bool> held{false};
  std::atomic<bool> ended{false};
  std::atomic<std::int64_t> leaving_ns{0};  // Since when its client is gone; 0: it is not.
  std::atomic<Handover> handover{Handover::kBusy};
  std::uint64_t slot = 0;    // Its place on the board.
  std::uint64_t number = 0;  // Of the session; set by the parent.
  std::int64_t begun_ns = 0;
  std::uint32_t client_process = 0;
  SessionKind kind = SessionKind::kCuda;
  std::array<char, transport::kMachineBytesMax + 1> machine{};
  std::array<char, kNameBytesMax + 1> name{};
  std::array<std::atomic<std::uint64_t>, kCounters.size()> counters{};
  std::array<Device, kUsageDevicesMax> devices{};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Of a board's memory, which a later build of the server may find: rises with each change of what
// lies in it.
constexpr std::uint64_t kBoardLayout = 5;

// What the sessions have together. What is used is the sum of their rows: each is one word, so that
// a session that is killed at any moment leaves nothing uncounted and nothing counted twice.
struct BoardHead {
  explicit BoardHead(std::size_t rows) : count(rows) {}

  const std::uint64_t layout = kBoardLayout;
  const std::uint64_t count;  // Of rows.
  const Instant begun = system_clock().now();
  std::atomic<std::size_t> rows_used{0};  // Those beyond it were never claimed.
  std::uint64_t sessions_begun = 0;       // The parent's.
  // Held while something is reserved, while the limit changes, and while a row's counters become
  // part of what has ended.
  SharedMutex mutex;
  SessionCounters ended;  // Of rows that were released.
  std::atomic<std::uint64_t> memory_limit{0};
  std::atomic<std::uint32_t> shortages{0};
  std::atomic<std::uint32_t> drain_seconds{kNoDrain};
  std::atomic<bool> draining{false};
  std::atomic<bool> handover{false};
  // The grant is the one of the two that `grant` names, so that it is whole at any moment.
  struct Grant {
    std::uint32_t asked = 0;
    std::uint32_t granted = 0;
    std::uint32_t count = 0;
    std::array<std::uint32_t, kSmGroupsMax> groups{};
  };
  std::array<Grant, 2> grants{};
  std::uint32_t grant = 0;
  SharedWord grant_version;
  SharedWord moved;  // Advances when a session has moved.
  std::atomic<std::uint64_t> moves{0};
  std::atomic<std::int64_t> last_move_ns{0};

  // A record is that of fault number `faults`, modulo their count; the number is stored last.
  struct FaultRecord {
    std::uint64_t session = 0;
    std::int64_t unix_ms = 0;
    std::uint32_t client_process = 0;
    std::uint32_t error = 0;
    std::uint32_t suspects = 0;
    bool goes_on = false;
    std::array<char, kNameBytesMax + 1> name{};
  };
  std::array<FaultRecord, UsageBoard::kFaultsKept> fault_records{};
  std::uint64_t faults = 0;  // Told so far.
  FaultCounts fault_counts;
  std::atomic<std::uint64_t> returns{0};

  std::uint64_t memory_used() const;
};

namespace {

constinit std::atomic<UsageRow*> own_row{nullptr};

constexpr std::size_t kHeadBytes = (sizeof(BoardHead) + 63) / 64 * 64;

// The rows lie behind the head, in every process, wherever the board is mapped there.
UsageRow* rows_of(BoardHead* head) {
  return static_cast<UsageRow*>(
      static_cast<void*>(static_cast<std::byte*>(static_cast<void*>(head)) + kHeadBytes));
}
const UsageRow* rows_of(const BoardHead* head) { return rows_of(const_cast<BoardHead*>(head)); }

BoardHead& head_of(UsageRow* row) {
  UsageRow* const first = row - row->slot;
  return *static_cast<BoardHead*>(
      static_cast<void*>(static_cast<std::byte*>(static_cast<void*>(first)) - kHeadBytes));
}

std::size_t bytes_of(std::size_t rows) { return kHeadBytes + rows * sizeof(UsageRow); }

UsageRow::Device* find(UsageRow* row, CUdevice device) {
  const auto index = static_cast<std::size_t>(device);
  return row == nullptr || index >= row->devices.size() ? nullptr : &row->devices[index];
}

SessionCounters counters_of(const UsageRow& row) {
  SessionCounters counters;
  for (std::size_t i = 0; i < kCounters.size(); ++i) {
    counters.*kCounters[i] = row.counters[i].load(std::memory_order_relaxed);
  }
  return counters;
}

MemoryQuota quota_of(const BoardHead& head) {
  return {head.memory_limit.load(std::memory_order_relaxed), head.memory_used()};
}

}  // namespace

SessionCounters& SessionCounters::operator+=(const SessionCounters& more) {
  for (const auto counter : kCounters) this->*counter += more.*counter;
  return *this;
}

std::uint64_t BoardHead::memory_used() const {
  std::uint64_t used = 0;
  const std::size_t last = rows_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < last; ++i) {
    used += rows_of(this)[i].devices[0].bytes.load(std::memory_order_relaxed);
  }
  return used;
}

UsageSlot own_usage() { return UsageSlot(own_row.load(std::memory_order_relaxed)); }
void take_usage_slot(UsageSlot slot) { own_row.store(slot.row(), std::memory_order_relaxed); }

void UsedMemory::resize(std::uint64_t bytes) {
  const UsageSlot usage = own_usage();
  if (bytes > bytes_) usage.took(device_, bytes - bytes_);
  if (bytes < bytes_) usage.gave(device_, bytes_ - bytes);
  bytes_ = bytes;
}

bool UsedMemory::reserve(CUdevice device, std::uint64_t bytes) {
  FLYT_ASSERT(bytes_ == 0);
  if (!own_usage().reserve(device, bytes)) return false;
  device_ = device;
  bytes_ = bytes;
  return true;
}

void UsageSlot::publish(const Client& client) const {
  if (row_ == nullptr) return;
  row_->client_process = client.process;
  row_->kind = client.kind;
  row_->begun_ns = system_clock().now().ns;
  put_text(row_->machine, client.machine);
  put_text(row_->name, client.name);
  row_->server_process.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_release);
}

bool UsageSlot::reserve(CUdevice device, std::uint64_t bytes) const {
  auto* use = find(row_, device);
  if (use == nullptr) return true;
  BoardHead& head = head_of(row_);
  const SharedLock lock(head.mutex);
  const MemoryQuota quota = quota_of(head);
  if (device == 0 && quota.limit != 0 && bytes > quota.left()) return false;
  use->bytes.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

void UsageSlot::took(CUdevice device, std::uint64_t bytes) const {
  if (auto* use = find(row_, device)) use->bytes.fetch_add(bytes, std::memory_order_relaxed);
}
void UsageSlot::gave(CUdevice device, std::uint64_t bytes) const {
  if (auto* use = find(row_, device)) use->bytes.fetch_sub(bytes, std::memory_order_relaxed);
}
void UsageSlot::context_made(CUdevice device) const {
  if (auto* use = find(row_, device)) use->contexts.fetch_add(1, std::memory_order_relaxed);
}
void UsageSlot::context_ended(CUdevice device) const {
  if (auto* use = find(row_, device)) use->contexts.fetch_sub(1, std::memory_order_relaxed);
}

std::uint64_t UsageSlot::bytes(CUdevice device) const {
  auto* use = find(row_, device);
  return use == nullptr ? 0 : use->bytes.load(std::memory_order_relaxed);
}

void UsageSlot::count(const SessionCounters& counters) const {
  if (row_ == nullptr) return;
  for (std::size_t i = 0; i < kCounters.size(); ++i) {
    row_->counters[i].store(counters.*kCounters[i], std::memory_order_relaxed);
  }
}

MemoryQuota UsageSlot::quota() const {
  return row_ == nullptr ? MemoryQuota{} : quota_of(head_of(row_));
}

std::uint32_t UsageSlot::shortages() const {
  return row_ == nullptr ? 0 : head_of(row_).shortages.load(std::memory_order_relaxed);
}

std::uint32_t UsageSlot::tell_shortage() const {
  return row_ == nullptr ? 0 : head_of(row_).shortages.fetch_add(1, std::memory_order_relaxed) + 1;
}

void UsageSlot::heeded(std::uint32_t shortage, bool quiet) const {
  if (row_ == nullptr) return;
  // Behind what it gave up.
  row_->heeded.store(shortage, std::memory_order_release);
  row_->quiet.store(quiet, std::memory_order_release);
}

bool UsageSlot::all_heeded(std::uint32_t shortage) const {
  if (row_ == nullptr) return true;
  const BoardHead& head = head_of(row_);
  const std::size_t last = head.rows_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < last; ++i) {
    const UsageRow& row = rows_of(&head)[i];
    if (&row == row_ || row.server_process.load(std::memory_order_acquire) == 0 ||
        row.ended.load(std::memory_order_relaxed) ||
        row.leaving_ns.load(std::memory_order_relaxed) != 0 ||
        row.quiet.load(std::memory_order_acquire) ||
        row.devices[0].bytes.load(std::memory_order_relaxed) == 0) {
      continue;
    }
    // Numbers go round.
    if (static_cast<std::int32_t>(row.heeded.load(std::memory_order_acquire) - shortage) < 0) {
      return false;
    }
  }
  return true;
}

void UsageSlot::leave() const {
  std::int64_t never = 0;
  if (row_ != nullptr) row_->leaving_ns.compare_exchange_strong(never, system_clock().now().ns);
}

bool UsageSlot::others_leave(Instant by) const {
  if (row_ == nullptr) return false;
  const BoardHead& head = head_of(row_);
  const std::size_t last = head.rows_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < last; ++i) {
    const UsageRow& row = rows_of(&head)[i];
    const std::int64_t since = row.leaving_ns.load(std::memory_order_acquire);
    if (since == 0 || since > by.ns || &row == row_) continue;
    if (system_clock().now() - Instant{since} > kLeavingMax) continue;
    const auto has_any = [](const UsageRow::Device& device) {
      return device.bytes.load(std::memory_order_relaxed) != 0 ||
             device.contexts.load(std::memory_order_relaxed) != 0;
    };
    if (std::any_of(row.devices.begin(), row.devices.end(), has_any)) return true;
  }
  return false;
}

void UsageSlot::moved(std::uint32_t version, std::uint32_t fixed) const {
  if (row_ == nullptr) return;
  row_->fixed.store(fixed, std::memory_order_relaxed);
  row_->grant_version.store(version, std::memory_order_release);
  head_of(row_).moved.advance();
}

void UsageSlot::note_suspect(const Fault& fault) const {
  if (row_ == nullptr) return;
  BoardHead& head = head_of(row_);
  const SharedLock lock(head.mutex);
  BoardHead::FaultRecord& record = head.fault_records[(head.faults + 1) % UsageBoard::kFaultsKept];
  record.session = row_->number;
  record.unix_ms = unix_milliseconds();
  record.client_process = row_->client_process;
  record.error = fault.error;
  record.suspects = fault.suspects;
  record.goes_on = fault.goes_on;
  record.name = row_->name;
  ++head.faults;
  ++(fault.suspects == 1 ? head.fault_counts.caused : head.fault_counts.suspected);
}

void UsageSlot::note_innocent(bool goes_on) const {
  if (row_ == nullptr) return;
  BoardHead& head = head_of(row_);
  const SharedLock lock(head.mutex);
  ++(goes_on ? head.fault_counts.survived : head.fault_counts.lost);
}

void UsageSlot::note_return() const {
  if (row_ != nullptr) head_of(row_).returns.fetch_add(1, std::memory_order_relaxed);
}

bool UsageSlot::handover() const {
  return row_ != nullptr && head_of(row_).handover.load(std::memory_order_relaxed);
}

void UsageSlot::ready() const {
  Handover busy = Handover::kBusy;
  if (row_ != nullptr) row_->handover.compare_exchange_strong(busy, Handover::kReady);
}

bool UsageSlot::busy_again() const {
  if (row_ == nullptr) return true;
  Handover ready = Handover::kReady;
  return row_->handover.compare_exchange_strong(ready, Handover::kBusy) || ready == Handover::kBusy;
}

UsageBoard::UsageBoard(Fd file, void* memory, std::size_t count)
    : file_(std::move(file)),
      head_(static_cast<BoardHead*>(memory)),
      rows_(rows_of(head_)),
      count_(count),
      claimed_(count) {}

UsageBoard::~UsageBoard() { ::munmap(head_, bytes_of(count_)); }

Result<std::unique_ptr<UsageBoard>> UsageBoard::create(std::size_t slots) {
  Fd file(::memfd_create("flyt-board", MFD_CLOEXEC));
  const std::size_t bytes = bytes_of(slots);
  if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return system_error("making a server's board", errno);
  }
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return system_error("mmap", errno);
  std::construct_at(static_cast<BoardHead*>(memory), slots);
  // Zeroes are what a new row holds, so that pages nobody needs are never touched.
  return std::unique_ptr<UsageBoard>(new UsageBoard(std::move(file), memory, slots));
}

Result<std::unique_ptr<UsageBoard>> UsageBoard::adopt(Fd file) {
  const Error unknown{ErrorCode::kUnsupported, "the board is one of another version"};
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return system_error("a server's board", errno);
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes < bytes_of(1) || bytes > bytes_of(kSlotsMax)) return unknown;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return system_error("mmap", errno);
  auto* const head = static_cast<BoardHead*>(memory);
  if (head->layout != kBoardLayout || head->count > kSlotsMax || bytes != bytes_of(head->count)) {
    ::munmap(memory, bytes);
    return unknown;
  }
  head->draining.store(false);
  head->handover.store(false);
  head->drain_seconds.store(kNoDrain);
  const auto count = static_cast<std::size_t>(head->count);
  return std::unique_ptr<UsageBoard>(new UsageBoard(std::move(file), memory, count));
}

std::vector<UsageBoard::Left> UsageBoard::left() {
  std::vector<Left> found;
  for (std::size_t i = 0; i < std::min(count_, head_->rows_used.load()); ++i) {
    const std::uint32_t process = rows_[i].server_process.load(std::memory_order_acquire);
    if (process == 0 && !held(i)) {
      release(i);
      continue;
    }
    claimed_[i] = true;
    found.push_back({i, process});
    orphan(i);
  }
  return found;
}

std::size_t UsageBoard::claim() {
  const auto free = std::find(claimed_.begin(), claimed_.end(), false);
  if (free == claimed_.end()) return kNoSlot;
  *free = true;
  const auto slot = static_cast<std::size_t>(free - claimed_.begin());
  rows_[slot].slot = slot;
  rows_[slot].number = ++head_->sessions_begun;
  const std::size_t used = head_->rows_used.load(std::memory_order_relaxed);
  head_->rows_used.store(std::max(used, slot + 1), std::memory_order_release);
  return slot;
}

bool UsageBoard::has_room() const {
  return std::find(claimed_.begin(), claimed_.end(), false) != claimed_.end();
}

void UsageBoard::release(std::size_t slot) {
  if (slot >= count_) return;
  claimed_[slot] = false;
  UsageRow& row = rows_[slot];
  row.server_process.store(0, std::memory_order_release);
  row.end_wanted.store(false, std::memory_order_relaxed);
  row.grant_version.store(0, std::memory_order_relaxed);
  row.fixed.store(0, std::memory_order_relaxed);
  row.heeded.store(0, std::memory_order_relaxed);
  row.quiet.store(false, std::memory_order_relaxed);
  head_->moved.advance();
  row.held.store(false, std::memory_order_relaxed);
  row.ended.store(false, std::memory_order_relaxed);
  row.handover.store(Handover::kBusy, std::memory_order_relaxed);
  for (UsageRow::Device& device : row.devices) {
    device.bytes.store(0, std::memory_order_relaxed);
    device.contexts.store(0, std::memory_order_relaxed);
  }
  // Who waited for its memory finds that free.
  row.leaving_ns.store(0, std::memory_order_release);
  {
    const SharedLock lock(head_->mutex);
    head_->ended += counters_of(row);
    for (auto& counter : row.counters) counter.store(0, std::memory_order_relaxed);
  }
  row.machine.fill('\0');
  row.name.fill('\0');
}

bool UsageBoard::begun(std::size_t slot) const {
  return slot < count_ && rows_[slot].server_process.load(std::memory_order_acquire) != 0;
}

void UsageBoard::hold(std::size_t slot) {
  if (slot < count_) rows_[slot].held.store(true, std::memory_order_release);
}

bool UsageBoard::held(std::size_t slot) const {
  return slot < count_ && rows_[slot].held.load(std::memory_order_acquire);
}

void UsageBoard::orphan(std::size_t slot) {
  if (slot >= count_) return;
  rows_[slot].server_process.store(0, std::memory_order_release);
  rows_[slot].fixed.store(0, std::memory_order_relaxed);
  head_->moved.advance();
}

void UsageBoard::forbid_return(std::size_t slot) {
  if (slot < count_) rows_[slot].ended.store(true, std::memory_order_release);
}

bool UsageBoard::may_return(std::size_t slot) const {
  return slot >= count_ || !rows_[slot].ended.load(std::memory_order_acquire);
}

void UsageBoard::let_go(std::size_t slot) {
  if (slot < count_) rows_[slot].held.store(false, std::memory_order_release);
}

void UsageBoard::set_handover(bool wanted) {
  head_->handover.store(wanted, std::memory_order_release);
  rouse();
}

bool UsageBoard::ready(std::size_t slot) const {
  if (slot >= count_ || rows_[slot].server_process.load(std::memory_order_acquire) == 0) {
    return false;
  }
  return rows_[slot].kind != SessionKind::kCuda || rows_[slot].handover.load() == Handover::kReady;
}

bool UsageBoard::take(std::size_t slot) {
  if (slot >= count_ || rows_[slot].kind != SessionKind::kCuda) return true;
  if (!held(slot)) return false;
  Handover ready = Handover::kReady;
  return rows_[slot].handover.compare_exchange_strong(ready, Handover::kTaken);
}

void UsageBoard::give_back(std::size_t slot) {
  Handover taken = Handover::kTaken;
  if (slot < count_) rows_[slot].handover.compare_exchange_strong(taken, Handover::kReady);
}

UsageSlot UsageBoard::slot(std::size_t slot) {
  return slot < count_ ? UsageSlot(&rows_[slot]) : UsageSlot();
}

std::vector<UsageBoard::Use> UsageBoard::uses(CUdevice device) const {
  std::vector<Use> found;
  for (std::size_t i = 0; i < head_->rows_used.load(std::memory_order_acquire); ++i) {
    UsageRow& row = rows_[i];
    const std::uint32_t server = row.server_process.load(std::memory_order_acquire);
    const auto* use = find(&row, device);
    if (server == 0 || use == nullptr) continue;
    Use one{.client_process = row.client_process,
            .server_process = server,
            .machine = text_of(row.machine),
            .bytes = use->bytes.load(std::memory_order_relaxed),
            .has_context = use->contexts.load(std::memory_order_relaxed) != 0};
    // Given to another session meanwhile: what was read may be of both.
    if (row.server_process.load(std::memory_order_acquire) != server) continue;
    if (one.bytes != 0 || one.has_context) found.push_back(std::move(one));
  }
  return found;
}

std::vector<UsageBoard::Row> UsageBoard::rows() const {
  std::vector<Row> found;
  const Instant now = system_clock().now();
  for (std::size_t i = 0; i < head_->rows_used.load(std::memory_order_acquire); ++i) {
    UsageRow& row = rows_[i];
    const std::uint32_t server = row.server_process.load(std::memory_order_acquire);
    if (server == 0) continue;
    Row one{.number = row.number,
            .server_process = server,
            .client_process = row.client_process,
            .machine = text_of(row.machine),
            .name = text_of(row.name),
            .kind = row.kind,
            .age = now - Instant{row.begun_ns},
            .bytes = row.devices[0].bytes.load(std::memory_order_relaxed),
            .contexts = row.devices[0].contexts.load(std::memory_order_relaxed),
            .counters = counters_of(row)};
    if (row.server_process.load(std::memory_order_acquire) == server) found.push_back(one);
  }
  std::sort(found.begin(), found.end(),
            [](const Row& a, const Row& b) { return a.number < b.number; });
  return found;
}

UsageBoard::Total UsageBoard::total() const {
  const SharedLock lock(head_->mutex);
  Total total{.counters = head_->ended,
              .returns = head_->returns.load(std::memory_order_relaxed),
              .since = system_clock().now() - head_->begun};
  for (std::size_t i = 0; i < head_->rows_used.load(std::memory_order_acquire); ++i) {
    total.counters += counters_of(rows_[i]);
  }
  return total;
}

FaultCounts UsageBoard::fault_counts() const {
  const SharedLock lock(head_->mutex);
  return head_->fault_counts;
}

std::vector<Fault> UsageBoard::faults(std::uint64_t after) const {
  const SharedLock lock(head_->mutex);
  const std::uint64_t last = head_->faults;
  if (after >= last) return {};
  const std::uint64_t forgotten = last - std::min<std::uint64_t>(last, kFaultsKept);
  std::vector<Fault> found;
  for (std::uint64_t number = std::max(after, forgotten) + 1; number <= last; ++number) {
    const BoardHead::FaultRecord& record = head_->fault_records[number % kFaultsKept];
    found.push_back({.number = number,
                     .session = record.session,
                     .unix_ms = record.unix_ms,
                     .client_process = record.client_process,
                     .name = text_of(record.name),
                     .error = record.error,
                     .suspects = record.suspects,
                     .goes_on = record.goes_on});
  }
  return found;
}

MemoryQuota UsageBoard::quota() const { return quota_of(*head_); }

bool UsageBoard::set_quota(std::uint64_t bytes, Shrink shrink) {
  const SharedLock lock(head_->mutex);
  if (bytes != 0 && bytes < head_->memory_used() && shrink == Shrink::kRefuse) return false;
  head_->memory_limit.store(bytes, std::memory_order_relaxed);
  return true;
}

SmGrant UsageBoard::grant() const {
  const SharedLock lock(head_->mutex);
  const BoardHead::Grant& told = head_->grants[head_->grant];
  return {told.asked, told.granted, {told.groups.begin(), told.groups.begin() + told.count}};
}

std::uint32_t UsageBoard::set_grant(const SmGrant& grant) {
  const SharedLock lock(head_->mutex);
  const std::uint32_t other = 1 - head_->grant;
  BoardHead::Grant& into = head_->grants[other];
  into.asked = grant.asked;
  into.granted = grant.granted;
  into.count = static_cast<std::uint32_t>(std::min(grant.groups.size(), kSmGroupsMax));
  std::copy_n(grant.groups.begin(), into.count, into.groups.begin());
  head_->grant = other;
  head_->grant_version.advance();
  return head_->grant_version.value();
}

std::uint32_t UsageBoard::grant_version() const { return head_->grant_version.value(); }

void UsageBoard::await_grant(std::uint32_t version, Duration at_most) const {
  head_->grant_version.wait(version, at_most);
}

void UsageBoard::rouse() { head_->grant_version.rouse(); }

UsageBoard::Moving UsageBoard::moving() const {
  Moving moving;
  const std::uint32_t version = head_->grant_version.value();
  for (std::size_t i = 0; i < head_->rows_used.load(std::memory_order_acquire); ++i) {
    const UsageRow& row = rows_[i];
    if (row.server_process.load(std::memory_order_acquire) == 0) continue;
    if (row.kind != SessionKind::kCuda) continue;
    ++moving.sessions;
    if (row.grant_version.load(std::memory_order_acquire) != version) ++moving.behind;
    moving.fixed += row.fixed.load(std::memory_order_relaxed);
  }
  return moving;
}

void UsageBoard::await_moves(std::uint32_t version, Duration at_most) const {
  const Instant until = system_clock().now() + at_most;
  for (;;) {
    const std::uint32_t seen = head_->moved.value();
    const Duration left = until - system_clock().now();
    if (left <= Duration{0} || moving().behind == 0 || grant_version() != version) return;
    head_->moved.wait(seen, left);
  }
}

void UsageBoard::count_move(Duration took) {
  head_->last_move_ns.store(took.count(), std::memory_order_relaxed);
  head_->moves.fetch_add(1, std::memory_order_relaxed);
}

UsageBoard::Moves UsageBoard::moves() const {
  return {head_->moves.load(std::memory_order_relaxed),
          Duration(head_->last_move_ns.load(std::memory_order_relaxed))};
}

bool UsageBoard::request_end(std::uint64_t number) {
  for (std::size_t i = 0; i < head_->rows_used.load(std::memory_order_acquire); ++i) {
    UsageRow& row = rows_[i];
    if (row.server_process.load(std::memory_order_acquire) == 0 || row.number != number) continue;
    row.end_wanted.store(true, std::memory_order_release);
    return true;
  }
  return false;
}

bool UsageBoard::takes_end_request(std::size_t slot) {
  return slot < count_ && rows_[slot].end_wanted.exchange(false, std::memory_order_acquire);
}

void UsageBoard::request_drain(std::uint32_t seconds) {
  head_->draining.store(true, std::memory_order_relaxed);
  head_->drain_seconds.store(std::min(seconds, kNoDrain - 1), std::memory_order_release);
}

bool UsageBoard::draining() const { return head_->draining.load(std::memory_order_relaxed); }

bool UsageBoard::takes_drain_request(std::uint32_t& seconds) {
  seconds = head_->drain_seconds.exchange(kNoDrain, std::memory_order_acquire);
  return seconds != kNoDrain;
}

}  // namespace flyt::server
