// HostMirror: host memory of the program that kernels reach.
#include "client/memory/host_mirror.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "client/call.h"
#include "client/memory/address_space.h"
#include "client/memory_state.h"
#include "client/session.h"
#include "commands/context.h"
#include "commands/copy.h"
#include "commands/event.h"
#include "commands/graph.h"
#include "commands/managed.h"
#include "commands/memory.h"
#include "commands/memset.h"
#include "commands/module.h"
#include "commands/pinned.h"
#include "commands/stream.h"
#include "wire/host_memory.h"
#include "wire/memory_changes.h"

namespace flyt::client {
namespace {

static_assert(commands::WriteHost::kChangesBytesMax == wire::kMemoryChangesBytesMax);

// Compared under one lock, so that the thread that reads the socket does not wait long.
constexpr std::uint64_t kTurnBytes = 1 * kMiB;

}  // namespace

std::uint32_t map_flags(const Memory& memory) {
  return (memory.flags & CU_MEMHOSTREGISTER_READ_ONLY) |
         (memory.kind == MemoryKind::kManaged ? wire::kMapManaged : 0);
}

HostMirror::HostMirror(Session& session, MemoryMap& map, AddressSpace& spare,
                       const wire::Window& window)
    : session_(session), map_(map), spare_(spare), window_(window) {}

HostMirror::~HostMirror() = default;

// Commands whose work uses no host memory but what was sent for them, or uses none at all.
bool HostMirror::names_its_memory(std::uint16_t op) {
  switch (op) {
    case commands::MapHost::kOp:
    case commands::MapManaged::kOp:
    case commands::ShareHost::kOp:
    case commands::UnmapHost::kOp:
    case commands::WriteHost::kOp:
    case commands::EventCreate::kOp:
    case commands::EventDestroy::kOp:
    case commands::EventRecord::kOp:
    case commands::StreamCreate::kOp:
    case commands::StreamWaitEvent::kOp:
    case commands::HostCall::kOp:
    case commands::MemAlloc::kOp:
    case commands::MemInfo::kOp:
    case commands::Upload::kOp:
    case commands::DescribeUpload::kOp:
    case commands::CopyToDevice::kOp:
    case commands::CopyBlockToDevice::kOp:
    case commands::CopyToDeviceAndWait::kOp:
    case commands::CopyRowsToDevice::kOp:
    case commands::CopyToHost::kOp:
    case commands::PostToHost::kOp:
    case commands::CopyOnDevice::kOp:
    case commands::CopyBoxOnDevice::kOp:
    case commands::FillMemory::kOp:
    case commands::BeginCapture::kOp:
    case commands::EndCapture::kOp:
    case commands::CaptureInfo::kOp:
    case commands::CaptureCopy::kOp:
    case commands::CreateGraph::kOp:
    case commands::DestroyGraph::kOp:
    case commands::AddGraphNode::kOp:
    case commands::GetGraphNode::kOp:
    case commands::ListGraph::kOp:
    case commands::InstantiateGraph::kOp:
    case commands::UpdateGraphExec::kOp:
    case commands::SetExecNode::kOp:
    case commands::DestroyGraphExec::kOp:
      return true;
    default:
      return false;
  }
}

CUresult HostMirror::begin(std::uint64_t base) {
  const Lock lock(beginning_);
  const auto present = map_.find(base);
  if (!present) return CUDA_ERROR_INVALID_VALUE;
  if (present->mirrored) return CUDA_SUCCESS;
  const Memory& memory = *present;
  // What is on its way here belongs to the contents.
  session_.memory().transfers().await_arrivals(memory.base, memory.bytes);
  std::uint64_t device_base = memory.base;
  CUresult result = map_at(device_base, memory);
  if (result != CUDA_SUCCESS && memory.kind == MemoryKind::kRegistered) {
    // Something of the server's lies there: kernels use another address, as CUDA allows.
    const std::uint64_t offset = memory.base % Pages::kPageBytes;
    const std::uint64_t spare =
        spare_.take(Pages::whole(offset + memory.bytes), Pages::kPageBytes, 0);
    if (spare == 0) return result;
    device_base = spare + offset;
    result = map_at(device_base, memory);
    if (result != CUDA_SUCCESS) spare_.give(spare, Pages::whole(offset + memory.bytes));
  }
  if (result != CUDA_SUCCESS) return result;
  map_.update(memory.base, [&](Memory& known) {
    known.mirrored = true;
    known.device_base = device_base;
  });
  if (device_base != memory.base) {
    Memory alias = memory;
    alias.kind = MemoryKind::kAlias;
    alias.base = alias.device_base = device_base;
    alias.mirrored = true;
    alias.context = 0;  // It goes with what it stands for.
    static_cast<void>(map_.add(alias));
  }
  if (!memory.on_device()) drop_candidate();
  send(device_base, memory.bytes);
  return CUDA_SUCCESS;
}

CUresult HostMirror::map_at(std::uint64_t device_base, const Memory& memory, bool borrowed) {
  // Known here before the server is asked: it may write as soon as it knows the range. Nothing is
  // sent before it does.
  if (!add(device_base, memory, borrowed)) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto note = [&] {
    on_mapped(device_base);
    return CUDA_SUCCESS;
  };
  if (memory.kind == MemoryKind::kManagedVariable) {
    commands::MapManaged::Reply reply;
    rpc::Reply answer;
    const CUresult result = session_.ask_and_note(
        commands::MapManaged{.address = device_base, .bytes = memory.bytes}, reply, answer, note);
    if (result != CUDA_SUCCESS) remove(device_base);
    return result;
  }
  commands::MapHost::Reply reply;
  rpc::Reply answer;
  const CUresult result = session_.ask_and_note(
      commands::MapHost{.address = device_base, .bytes = memory.bytes, .flags = map_flags(memory)},
      reply, answer, note);
  if (result != CUDA_SUCCESS) remove(device_base);
  return result;
}

bool HostMirror::add(std::uint64_t device_base, const Memory& memory, bool borrowed) {
  Range range;
  range.host = static_cast<std::byte*>(pointer_at(memory.base));
  range.bytes = memory.bytes;
  range.read_only = (memory.flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  range.borrowed = borrowed;
  range.variable = memory.kind == MemoryKind::kManagedVariable;
  range.context = thread_state().current_state;
  range.flags = map_flags(memory);
  range.shadow = Pages::make(memory.bytes);
  if (!range.shadow) return false;
  const Lock lock(mutex_);
  const bool added = ranges_.emplace(device_base, std::move(range)).second;
  active_.store(true, std::memory_order_relaxed);
  return added;
}

void HostMirror::on_mapped(std::uint64_t device_base) {
  const Lock lock(mutex_);
  const auto found = ranges_.find(device_base);
  if (found != ranges_.end()) found->second.mapped = found->second.sent = true;
}

void HostMirror::on_unmapped(std::uint64_t device_base) {
  const Lock lock(mutex_);
  const auto found = ranges_.find(device_base);
  if (found != ranges_.end()) found->second.mapped = false;
}

void HostMirror::send_no_more(std::uint64_t device_base) {
  const Lock sending(sending_);
  const Lock lock(mutex_);
  const auto found = ranges_.find(device_base);
  if (found != ranges_.end()) found->second.sent = false;
}

void HostMirror::remove(std::uint64_t device_base) {
  const Lock lock(mutex_);
  ranges_.erase(device_base);
  active_.store(!ranges_.empty(), std::memory_order_relaxed);
}

// A host function that is under way may still write what work behind it reads or writes as well.
void HostMirror::wait_for_work(std::uint64_t device_base) {
  CUcontext context = nullptr;
  {
    const Lock lock(mutex_);
    const auto found = ranges_.find(device_base);
    if (found == ranges_.end() || found->second.context == nullptr) return;
    if (found->second.context->live.load() == 0) return;
    context = static_cast<CUcontext>(pointer_at(found->second.context->handle));
  }
  // While streams are captured nobody may wait.
  if (session_.captures().any()) return;
  // An error is of that context, and the command behind this one meets it as well.
  const ContextScope scope(session_.contexts().find(context));
  commands::SynchronizeContext::Reply reply;
  rpc::Reply answer;
  static_cast<void>(session_.ask(commands::SynchronizeContext{.context = context}, reply, answer));
}

CUresult HostMirror::end(const Memory& memory) {
  wait_for_work(memory.device_base);
  // Other threads' commands may come between that one and its answer.
  send_no_more(memory.device_base);
  CUresult result = CUDA_SUCCESS;
  {
    commands::UnmapHost::Reply reply;
    rpc::Reply answer;
    result = session_.ask_and_note(commands::UnmapHost{.address = memory.device_base}, reply,
                                   answer, [&] {
                                     on_unmapped(memory.device_base);
                                     return CUDA_SUCCESS;
                                   });
  }
  const Lock lock(sending_);
  remove(memory.device_base);
  if (memory.device_base == memory.base) return result;
  static_cast<void>(map_.remove(memory.device_base, MemoryKind::kAlias));
  const std::uint64_t offset = memory.device_base % Pages::kPageBytes;
  spare_.give(memory.device_base - offset, Pages::whole(offset + memory.bytes));
  return result;
}

void HostMirror::note_candidate(const Memory& memory) {
  if (memory.kind == MemoryKind::kRegistered || window_.bytes == 0) {
    std::uint64_t low = registered_low_.load();
    while (memory.base < low && !registered_low_.compare_exchange_weak(low, memory.base)) {
    }
    std::uint64_t high = registered_high_.load();
    while (memory.end() > high && !registered_high_.compare_exchange_weak(high, memory.end())) {
    }
  }
  candidates_.fetch_add(1, std::memory_order_relaxed);
}

void HostMirror::look_for_pointers(Bytes data) {
  const std::uint64_t low = registered_low_.load(std::memory_order_relaxed);
  const std::uint64_t high = registered_high_.load(std::memory_order_relaxed);
  const std::uint64_t span = high > low ? high - low : 0;
  const std::size_t words = data.size() / sizeof(std::uint64_t);
  const auto word_at = [&](std::size_t index) {
    std::uint64_t word = 0;
    std::memcpy(&word, data.data() + index * sizeof word, sizeof word);
    return word;
  };
  // Hardly ever is any near: a loop without branches finds that out fast.
  bool any = false;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t word = word_at(i);
    any = any | (word - window_.base < window_.bytes) | (word - low < span);
  }
  for (std::size_t i = 0; any && i < words; ++i) {
    const auto memory = map_.find(word_at(i));
    // A refusal is the kernel's to find out: it may not use the address at all.
    if (memory && !memory->on_device() && !memory->mirrored) {
      static_cast<void>(begin(memory->base));
    }
  }
}

void HostMirror::send_all() {
  const Lock lock(sending_);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
  {
    const Lock ranges(mutex_);
    for (const auto& [base, range] : ranges_) all.emplace_back(base, range.bytes);
  }
  for (const auto& [base, bytes] : all) {
    // The command that comes next meets the loss, too.
    if (!send_range(base, bytes)) return;
  }
}

void HostMirror::send(std::uint64_t device_address, std::uint64_t bytes) {
  do {
    // Whoever makes the range again elsewhere does that before or after, and not meanwhile.
    const auto steady = session_.steady();
    const Lock lock(sending_);
    if (send_range(device_address, bytes)) return;
  } while (session_.health() == CUDA_SUCCESS);
}

bool HostMirror::send_range(std::uint64_t device_address, std::uint64_t bytes) {
  wire::MemoryChanges changes;
  const std::uint64_t end = device_address + bytes;
  while (device_address < end) {
    {
      const Lock lock(mutex_);
      const auto found = around(device_address);
      if (found == ranges_.end()) break;
      const std::uint64_t offset = device_address - found->first;
      const std::uint64_t left = std::min(end - device_address, found->second.bytes - offset);
      if (!found->second.sent) {
        device_address += left;
        continue;
      }
      const std::uint64_t size = std::min(kTurnBytes, left);
      device_address += compare(changes, device_address, found->second, offset, size);
    }
    if (changes.empty()) continue;
    if (!session_.post_once(commands::WriteHost{.changes = changes.bytes()})) {
      take_back(changes.bytes());
      return false;
    }
    changes.clear();
  }
  return true;
}

// Shadows that differ from what was taken for sent: it will be found again.
void HostMirror::take_back(Bytes changes) {
  wire::MemoryChangesReader reader(changes);
  wire::MemoryChange change;
  const Lock lock(mutex_);
  while (reader.next(change)) {
    const auto found = around(change.address);
    if (found == ranges_.end()) continue;
    std::vector<std::byte> other(change.data.begin(), change.data.end());
    for (std::byte& byte : other) byte = ~byte;
    change.data = other;
    change.apply(found->second.shadow.data() + (change.address - found->first));
  }
}

Status HostMirror::restore(const Another& another) {
  const Lock lock(sending_);
  std::vector<std::uint64_t> all;
  {
    const Lock ranges(mutex_);
    for (const auto& [base, range] : ranges_) {
      if (!range.mapped) continue;
      if (range.borrowed || range.variable) {
        return Error{ErrorCode::kUnsupported, "kernels reach host memory of a graph or variable"};
      }
      all.push_back(base);
    }
  }
  for (const std::uint64_t base : all) {
    if (Status restored = restore_range(another, base); !restored) return restored;
  }
  return {};
}

Status HostMirror::restore_range(const Another& another, std::uint64_t device_base) {
  const ContextState* context = nullptr;
  commands::MapHost map{.address = device_base};
  {
    const Lock lock(mutex_);
    Range& range = ranges_.at(device_base);
    context = range.context;
    map.bytes = range.bytes;
    map.flags = range.flags;
    range.shadow = Pages::make(range.bytes);
    if (!range.shadow) return Error{ErrorCode::kLimit, "no memory for what kernels reach"};
  }
  // It went with its context, and nobody has noticed yet.
  if (context == nullptr || context->live.load() == 0) return {};
  if (Status mapped = another.map(*context, map); !mapped) return mapped;
  wire::MemoryChanges changes;
  for (std::uint64_t offset = 0; offset < map.bytes;) {
    {
      const Lock lock(mutex_);
      offset += compare(changes, device_base + offset, ranges_.at(device_base), offset,
                        std::min(kTurnBytes, map.bytes - offset));
    }
    if (changes.empty()) continue;
    if (Status written = another.write(*context, changes.bytes()); !written) return written;
    changes.clear();
  }
  return {};
}

bool HostMirror::on_changes(Bytes bytes) {
  wire::MemoryChangesReader reader(bytes);
  wire::MemoryChange change;
  const Lock lock(mutex_);
  while (reader.next(change)) {
    const auto found = around(change.address);
    if (found == ranges_.end() || found->second.read_only) return false;
    const std::uint64_t offset = change.address - found->first;
    if (change.bytes > found->second.bytes - offset) return false;
    apply(change, found->second, offset);
  }
  pushes_.fetch_add(1);
  return reader.ok();
}

std::uint64_t HostMirror::compare(wire::MemoryChanges& changes, std::uint64_t device_address,
                                  Range& range, std::uint64_t offset, std::uint64_t bytes) {
  std::byte* shadow = range.shadow.data() + offset;
  const std::byte* now = range.host + offset;
  if (range.borrowed) {
    copied_.assign(shadow, shadow + bytes);
    careful_.read(copied_, now);
    now = copied_.data();
  }
  return changes.collect(device_address, now, shadow, bytes);
}

void HostMirror::apply(const wire::MemoryChange& change, Range& range, std::uint64_t offset) {
  std::byte* shadow = range.shadow.data() + offset;
  if (!range.borrowed) {
    change.apply(range.host + offset);
    change.apply(shadow);
    return;
  }
  std::vector<std::byte> now(shadow, shadow + change.bytes);
  careful_.read(now, range.host + offset);
  copied_ = now;
  change.apply(now.data());
  careful_.write(range.host + offset, now, copied_);
  change.apply(shadow);
}

CUresult HostMirror::borrow(std::uint64_t host, std::uint64_t bytes, std::uint64_t& device_address,
                            std::uint64_t& number) {
  const ContextState* current = thread_state().current_state;
  const std::uint64_t context = current != nullptr ? current->handle : 0;
  const Lock lock(beginning_);
  for (Loan& loan : loans_) {
    const bool holds = host >= loan.host && host + bytes <= loan.host + loan.bytes;
    if (!holds || loan.context != context) continue;
    ++loan.count;
    device_address = loan.device_base + (host - loan.host);
    number = loan.number;
    return CUDA_SUCCESS;
  }
  const std::uint64_t offset = host % Pages::kPageBytes;
  const std::uint64_t spare = spare_.take(Pages::whole(offset + bytes), Pages::kPageBytes, 0);
  if (spare == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Memory memory;
  memory.kind = MemoryKind::kRegistered;
  memory.base = host;
  memory.bytes = bytes;
  const std::uint64_t device_base = spare + offset;
  const CUresult result = map_at(device_base, memory, true);
  if (result != CUDA_SUCCESS) {
    spare_.give(spare, Pages::whole(offset + bytes));
    return result;
  }
  number = ++last_loan_;
  loans_.push_back({number, context, host, bytes, device_base, 1});
  device_address = device_base;
  send(device_base, bytes);
  return CUDA_SUCCESS;
}

void HostMirror::end_loan(const Loan& loan) {
  Memory memory;
  memory.base = loan.host;
  memory.bytes = loan.bytes;
  memory.device_base = loan.device_base;
  // A lost session, or a context that is gone, has nothing left to end.
  static_cast<void>(end(memory));
}

void HostMirror::give_back(std::uint64_t number) {
  const Lock lock(beginning_);
  const auto loan = std::find_if(loans_.begin(), loans_.end(),
                                 [&](const Loan& each) { return each.number == number; });
  if (loan == loans_.end() || --loan->count != 0) return;
  const Loan ended = *loan;
  loans_.erase(loan);
  end_loan(ended);
}

void HostMirror::on_context_destroyed(std::uint64_t context) {
  const Lock lock(beginning_);
  for (const Loan& loan : loans_) {
    if (loan.context == context) end_loan(loan);
  }
  std::erase_if(loans_, [&](const Loan& loan) { return loan.context == context; });
}

std::uint64_t HostMirror::host_address(std::uint64_t device_address) {
  const Lock lock(mutex_);
  const auto found = around(device_address);
  if (found == ranges_.end()) return device_address;
  return address_of(found->second.host) + (device_address - found->first);
}

HostMirror::Ranges::iterator HostMirror::around(std::uint64_t device_address) {
  auto after = ranges_.upper_bound(device_address);
  if (after == ranges_.begin()) return ranges_.end();
  --after;
  return device_address - after->first < after->second.bytes ? after : ranges_.end();
}

}  // namespace flyt::client
