// MemorySubjects: what a session keeps about memory, copies, streams and events.
#include "server/memory_subjects.h"

#include <algorithm>
#include <chrono>

#include "server/context_subjects.h"
#include "server/graphs/graphs.h"
#include "server/lease/usage_board.h"
#include "server/session.h"

namespace flyt::server {
namespace {

// How long the lease's other sessions have at most for giving up what lies idle, which takes them
// a turn, and how often to look whether they have, or are gone.
constexpr Duration kShortageWait = std::chrono::seconds(2);
constexpr Duration kLookPause = std::chrono::milliseconds(2);

}  // namespace

MemorySubjects::MemorySubjects(Session& owner)
    : session(owner),
      events(owner.driver()),
      ended_streams(owner.driver(), events),
      blocks(owner.driver(), window_for(owner.windows(), wire::WindowPurpose::kArena),
             owner.recovery()),
      arena(blocks, owner.regions(), blocks.window()),
      reaper(owner),
      virtual_memory(owner.driver(), owner.regions(),
                     window_for(owner.windows(), wire::WindowPurpose::kVmm), owner.recovery()),
      pools(owner, arena, events),
      lanes(owner),
      holds(owner, events),
      lookout(owner.workers(), owner.clock(), [&owner] { return owner.endpoint().closed(); }),
      deliveries(owner, events, owner.buffers().staging, lookout, lanes),
      watches(owner, lookout),
      host_calls(owner),
      host_mirror(owner),
      images(std::make_shared<Images>(owner)),
      saved_arrays(owner),
      depths(owner, events) {
  owner.driver().cuDeviceGetCount(&devices_);
  lookout.add(deliveries);
  lookout.add(watches);
  owner.before_replies([this] { deliveries.send_finished(rpc::Then::kReply); });
  for (PinnedStock* stock : stocks()) {
    stock->on_shortage([this, stock] { restock_later(*stock); });
  }
}

MemorySubjects::~MemorySubjects() { lanes.stop(); }

void MemorySubjects::on_context_made(CUcontext context) {
  session.buffers().restock(context);
  if (lanes.any()) lanes.stock().restock(context);
}

void MemorySubjects::on_context_gone(CUcontext context) {
  session.buffers().forget(context);
  lanes.stock().forget(context);
}

std::optional<CUcontext> MemorySubjects::enter_any() {
  for (const Handles::Entry& entry : session.handles().all(wire::HandleKind::kContext)) {
    // What is registered goes with a context that has memory of its own.
    if (ContextSubjects::origin(entry).green != nullptr) continue;
    if (session.enter(wire::Handle{entry.handle}.index()) != CUDA_SUCCESS) continue;
    return ContextSubjects::keeper(entry);
  }
  return std::nullopt;
}

void MemorySubjects::restock_later(PinnedStock& stock) {
  session.workers().run([this, &stock] {
    const auto using_context = session.use();
    if (const auto context = enter_any()) return stock.restock(*context);
    stock.given_up();
  });
}

std::optional<std::uint64_t> MemorySubjects::prepare_copies(std::uint32_t kind,
                                                            std::uint64_t wanted) {
  const auto prepare = [](PinnedStock& stock, std::uint64_t bytes, std::uint64_t block_bytes,
                          std::size_t blocks_max) {
    const std::uint64_t most = std::min(bytes, block_bytes * blocks_max);
    return block_bytes * stock.prepare((most + block_bytes - 1) / block_bytes, blocks_max);
  };
  switch (kind) {
    case 0: {
      // A third of it is for what else comes, and for streams that have nothing there.
      constexpr std::uint64_t kMost =
          std::uint64_t{PinnedBufferPool::kChunkBytes} * PinnedBufferPool::kChunksMax;
      const std::uint64_t all = std::min(wanted, kMost) * 3 / 2;
      return prepare(session.buffers().received.stock(), all, PinnedBufferPool::kChunkBytes,
                     PinnedBufferPool::kChunksMax) *
             2 / 3;
    }
    case 1:
      return prepare(lanes.stock(), wanted, wire::kLaneBlockBytesMax, Lanes::kSlotsMax);
    case 2: {
      // Copies that are waited for take of the same.
      constexpr std::uint64_t kOfOthers = std::uint64_t{16} * Staging::kSlotBytes;
      constexpr std::uint64_t kMost = Staging::kBytesMax + kOfOthers;
      const std::uint64_t ready =
          prepare(session.buffers().staging.stock(), std::min(wanted, kMost) + kOfOthers,
                  Staging::kSlotBytes, kMost / Staging::kSlotBytes);
      return ready - std::min(ready, kOfOthers);
    }
    default:
      return std::nullopt;
  }
}

std::array<PinnedStock*, 3> MemorySubjects::stocks() {
  return {&session.buffers().staging.stock(), &session.buffers().received.stock(), &lanes.stock()};
}

bool MemorySubjects::keeps_buffers() {
  const auto all = stocks();
  return std::any_of(all.begin(), all.end(), [](const auto* stock) { return stock->may_rest(); });
}

void MemorySubjects::give_buffers_back() {
  session.workers().run([this, seen = session.endpoint().last_sequence()] {
    for (PinnedStock* stock : stocks()) {
      // A driver may wait for what a command that has come meanwhile has begun, so one at a time.
      bool more = true;
      while (more && session.endpoint().last_sequence() == seen) {
        const auto using_context = session.use();
        static_cast<void>(enter_any());
        more = stock->rest_one();
      }
    }
  });
}

void MemorySubjects::poll() { holds.poll(); }

void MemorySubjects::make_room(CUdevice device) {
  reaper.drain();
  drop_idle(device);
  await_leaving();
  const UsageSlot usage = own_usage();
  const MemoryQuota quota = usage.quota();
  if (quota.limit == 0 || quota.used == usage.bytes(device)) return;
  const std::uint32_t shortage = usage.tell_shortage();
  const Instant until = session.clock().now() + kShortageWait;
  while (!usage.all_heeded(shortage) && session.clock().now() < until) {
    session.clock().sleep_for(kLookPause);
  }
}

void MemorySubjects::await_leaving() {
  const UsageSlot usage = own_usage();
  const Instant asked = system_clock().now();
  while (usage.others_leave(asked)) system_clock().sleep_for(kLookPause);
}

void MemorySubjects::drop_idle(CUdevice device) {
  pools.release_excess();
  arena.trim(device);
}

void MemorySubjects::heed_shortages(bool quiet) {
  const UsageSlot usage = own_usage();
  const std::uint32_t shortages = usage.shortages();
  quiet = quiet && usage.quota().limit != 0;
  const bool asked = shortages != shortages_;
  if (asked || quiet) drop_idle(0);
  if (asked || quiet != quiet_) usage.heeded(shortages, quiet);
  shortages_ = shortages;
  quiet_ = quiet;
}

void MemorySubjects::reclaim() {
  holds.seal();
  // What is not held here is held by requests that workers will get to.
  static_cast<void>(holds.poll());
}

void MemorySubjects::before_context_destroy() {
  session.driver().cuCtxSynchronize();
  deliveries.send_finished();
}

void MemorySubjects::on_context_destroy(std::uint32_t context) {
  host_mirror.drop_context(context);
  holds.seal();
  holds.poll();
  images->on_context_destroy(context);
  depths.forget_context(context);
  saved_arrays.forget_context(context);
  for (const wire::HandleKind kind :
       {wire::HandleKind::kArray, wire::HandleKind::kMipmappedArray}) {
    for (const Handles::Entry& entry : session.handles().all(kind)) {
      const auto& owner = static_cast<const ImageOwner&>(*entry.attachment);
      if (owner.context() == context) session.handles().drop(kind, entry.handle);
    }
  }
  for (const wire::HandleKind kind : {wire::HandleKind::kStream, wire::HandleKind::kEvent}) {
    for (const Handles::Entry& entry : session.handles().all(kind)) {
      if (auto* stream = dynamic_cast<StreamOwner*>(entry.attachment.get())) {
        if (stream->context() != context) continue;
        depths.forget(stream->stream());
        pools.forget_stream(stream->stream());
        session.graphs().forget_stream(stream->stream());
        stream->abandon();
      } else if (auto* event = dynamic_cast<EventOwner*>(entry.attachment.get())) {
        if (event->context() != context) continue;
        event->abandon();
      } else {
        continue;
      }
      session.handles().drop(kind, entry.handle);
    }
  }
}

void MemorySubjects::after_context_destroy(std::uint32_t context) {
  events.drop_context(context);
  pools.forget_chunks(arena.drop_context(context));
}

void MemorySubjects::on_green_destroy(std::uint32_t context) {
  holds.seal();
  holds.poll();
  depths.forget_context(context);
  for (const Handles::Entry& entry : session.handles().all(wire::HandleKind::kStream)) {
    auto* stream = dynamic_cast<StreamOwner*>(entry.attachment.get());
    if (stream == nullptr || stream->context() != context) continue;
    depths.forget(stream->stream());
    pools.forget_stream(stream->stream());
    // The driver keeps it for the program to destroy, which has no name for it any more.
    session.driver().cuStreamDestroy_v2(stream->stream());
    stream->abandon();
    session.handles().drop(wire::HandleKind::kStream, entry.handle);
  }
}

void MemorySubjects::after_green_destroy(std::uint32_t context) {
  events.drop_context(context, EventPool::Events::kStay);
}

void MemorySubjects::answer_at_end_of(CUstream stream, Request request) {
  CUresult result = session.driver().cuStreamQuery(stream);
  std::shared_ptr<Fence> fence;
  // Other threads may keep the stream busy for ever; what counts is its present end.
  if (result == CUDA_ERROR_NOT_READY) fence = events.record(request.context(), stream, result);
  if (fence == nullptr) return request.reply(result);
  request.forget_payload();
  auto waiting = std::make_shared<Request>(std::move(request));
  Completion completion;
  completion.context = fence->context();
  completion.poll = [fence] { return fence->poll(); };
  completion.block = [fence] { return fence->wait(); };
  completion.finish = [waiting, this](CUresult done) {
    waiting->reply(done);
    if (pools.has_excess()) session.workers().run([this] { pools.release_excess(); });
  };
  session.completions().add(std::move(completion));
}

bool MemorySubjects::free_later(std::uint64_t address, std::uint32_t context) {
  if (const auto retired = pools.retire(address)) {
    reaper.add(context, [this, retired = *retired] { pools.recycle(retired); });
    return true;
  }
  const auto found = arena.find(address);
  if (!found || found->owner == Arena::kPoolOwner) return false;
  const auto retired = arena.retire(address);
  if (!retired) return false;
  reaper.add(retired->owner, [this, retired = *retired] { arena.recycle(retired); });
  return true;
}

void MemorySubjects::set_access(CUdevice owner, CUdevice accessor, bool allowed) {
  if (!blocks.allow(owner, accessor, allowed)) return;
  for (const Block& block : arena.blocks_of(owner)) {
    // One that goes meanwhile needs nothing.
    static_cast<void>(blocks.grant(block, accessor, allowed));
  }
}

void MemorySubjects::open_to_current(std::uint64_t address) {
  if (devices_ < 2 || !blocks.fixed_addresses()) return;
  const driver::Table& driver = session.driver();
  const std::optional<Block> block = arena.mapped_around(address);
  CUdevice accessor = 0;
  if (!block || driver.cuCtxGetDevice(&accessor) != CUDA_SUCCESS || accessor == block->device) {
    return;
  }
  const Lock lock(opened_mutex_);
  if (opened_.count({block->device, accessor}) != 0) return;
  int reaches = 0;
  driver.cuDeviceCanAccessPeer(&reaches, accessor, block->device);
  if (reaches == 0) return;
  set_access(block->device, accessor, true);
  opened_.emplace(block->device, accessor);
}

bool MemorySubjects::allowed(const Box& box) const {
  const std::optional<std::uint64_t> extent = box.extent();
  if (!extent) return false;
  return *extent == 0 || session.regions().allowed(box.address, *extent);
}

bool MemorySubjects::may_be_captured(CUstream stream, const Box& box) {
  return !session.graphs().capturing(stream) ||
         host_mirror.note_in_graphs(box.address, box.extent().value_or(0));
}

}  // namespace flyt::server
