#include "server/lease/moves.h"

#include <algorithm>
#include <array>
#include <utility>

#include "server/context_subjects.h"
#include "server/graphs/exec_origin.h"
#include "server/graphs/graphs.h"
#include "server/lease/usage_board.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server {
namespace {

// How long a part stays after its work is done: a worker may just have made it current.
constexpr Duration kGrace = std::chrono::milliseconds(20);
// Streams that the program has ended are looked through when there are that many.
constexpr std::size_t kEndedLooked = 64;

Handles::Entry primary_of(Session& session) {
  for (const Handles::Entry& entry : session.handles().all(wire::HandleKind::kContext)) {
    const ContextOrigin& origin = ContextSubjects::origin(entry);
    if (origin.primary && origin.device == 0) return entry;
  }
  return {};
}

std::uint32_t index_of(const Handles::Entry& context) {
  return wire::Handle{context.handle}.index();
}

void drop_passed(std::vector<std::shared_ptr<Fence>>& fences) {
  std::erase_if(fences, [](const auto& fence) { return fence->poll() != CUDA_ERROR_NOT_READY; });
}

// What a program may have set; a driver may refuse to copy between contexts.
void copy_attributes(const driver::Table& driver, CUstream to, CUstream from) {
  if (driver.cuStreamCopyAttributes != nullptr &&
      driver.cuStreamCopyAttributes(to, from) == CUDA_SUCCESS) {
    return;
  }
  if (driver.cuStreamGetAttribute == nullptr || driver.cuStreamSetAttribute == nullptr) return;
  constexpr std::array kAttributes = {
      CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
      CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, CU_LAUNCH_ATTRIBUTE_PRIORITY};
  for (const CUstreamAttrID attribute : kAttributes) {
    CUstreamAttrValue value{};
    if (driver.cuStreamGetAttribute(from, attribute, &value) != CUDA_SUCCESS) continue;
    driver.cuStreamSetAttribute(to, attribute, &value);
  }
}

CUresult make_twin(const driver::Table& driver, CUstream old, CUstream* fresh) {
  unsigned int flags = 0;
  int priority = 0;
  CUresult result = driver.cuStreamGetFlags(old, &flags);
  if (result == CUDA_SUCCESS) result = driver.cuStreamGetPriority(old, &priority);
  if (result == CUDA_SUCCESS) {
    result = driver.cuStreamCreateWithPriority(fresh, flags & CU_STREAM_NON_BLOCKING, priority);
  }
  if (result == CUDA_SUCCESS) copy_attributes(driver, *fresh, old);
  return result;
}

}  // namespace

Moves::Moves(Session& session)
    : session_(session),
      parts_(session.driver()),
      beginnings_(session.clock()),
      grant_(session.first_grant()) {}

Moves::~Moves() = default;

SmGrant Moves::grant() const {
  const Lock lock(mutex_);
  return grant_;
}

std::shared_ptr<SmPart> Moves::part() const {
  const Lock lock(mutex_);
  return part_;
}

std::shared_ptr<SmPart> Moves::part_of(std::uint32_t context) const {
  const Lock lock(mutex_);
  return context == context_ ? part_ : nullptr;
}

void Moves::begin(std::uint32_t context, std::shared_ptr<SmPart> part) {
  const Lock lock(mutex_);
  context_ = context;
  made_.push_back(part);
  keep(part);
  part_ = std::move(part);
}

// All work of the context is done, but for what no stream of the present part waits for.
void Moves::end() {
  std::vector<std::shared_ptr<Fence>> ends = left_behind();
  std::vector<std::shared_ptr<SmPart>> gone;
  beginnings_.clear();
  {
    const Lock lock(mutex_);
    for (const Earlier& earlier : earlier_) {
      ends.insert(ends.end(), earlier.ends.begin(), earlier.ends.end());
    }
    ends.insert(ends.end(), ended_.begin(), ended_.end());
    for (const auto& each : made_) {
      if (auto part = each.lock()) gone.push_back(std::move(part));
    }
    if (wanted_.part != nullptr) gone.push_back(std::move(wanted_.part));
    made_.clear();
    kept_.clear();
    earlier_.clear();
    idle_.clear();
    ended_.clear();
    left_behind_.clear();
    part_ = nullptr;
  }
  for (const auto& fence : ends) static_cast<void>(fence->wait());
  for (const auto& part : gone) {
    if (CUgreenCtx green = std::exchange(part->green, nullptr)) {
      session_.driver().cuGreenCtxDestroy(green);
    }
  }
}

void Moves::want(std::uint32_t version, const SmGrant& grant) {
  const Lock endings(session_.endings());
  std::shared_ptr<SmPart> present;
  {
    const Lock lock(mutex_);
    grant_ = grant;
    present = part_;
    let_go(std::move(wanted_.part));
    wanted_ = {version, nullptr};
    pending_.store(false, std::memory_order_release);
  }
  if (present == nullptr || present->grant.groups == grant.groups) {
    return session_.on_main([this, version] { tell_board(version); });
  }
  const Handles::Entry primary = primary_of(session_);
  if (!primary) return session_.on_main([this, version] { tell_board(version); });
  const std::shared_ptr<SmPart> part = find_or_make(ContextSubjects::keeper(primary), grant);
  if (part == nullptr) return;
  const Lock lock(mutex_);
  wanted_.part = part;
  pending_.store(true, std::memory_order_release);
  session_.endpoint().wake();
}

// Null where the driver makes none; the log tells.
std::shared_ptr<SmPart> Moves::find_or_make(CUcontext primary, const SmGrant& grant) {
  {
    const Lock lock(mutex_);
    if (auto kept = find_kept(grant)) return kept;
  }
  std::shared_ptr<SmPart> made;
  const CUresult result = parts_.make(0, primary, grant, made);
  if (result != CUDA_SUCCESS) {
    session_.log().warn("the session stays in its multiprocessors",
                        {{"result", static_cast<int>(result)}});
    return nullptr;
  }
  const Lock lock(mutex_);
  made_.push_back(made);
  std::erase_if(made_, [](const auto& each) { return each.expired(); });
  keep(made);
  return made;
}

std::shared_ptr<SmPart> Moves::find_kept(const SmGrant& grant) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const auto& part) {
    return part->grant.groups == grant.groups;
  });
  if (found == kept_.end()) return nullptr;
  std::rotate(found, found + 1, kept_.end());
  return kept_.back();
}

void Moves::keep(const std::shared_ptr<SmPart>& part) {
  kept_.push_back(part);
  if (kept_.size() <= kKeptMax) return;
  const auto oldest =
      std::find_if(kept_.begin(), kept_.end(),
                   [now = part_.get()](const auto& each) { return each.get() != now; });
  std::shared_ptr<SmPart> gone = std::move(*oldest);
  kept_.erase(oldest);
  let_go(std::move(gone));
}

// It ends as soon as nobody has it; not if it is kept.
void Moves::let_go(std::shared_ptr<SmPart> part) {
  const auto has = [&part](const auto& parts) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  if (part == nullptr || has(kept_) || has(idle_)) return;
  idle_.push_back(std::move(part));
}

void Moves::poll() {
  if (!pending() || !session_.endings().try_lock()) return;
  attempt();
  session_.endings().unlock();
}

void Moves::attempt() {
  Wanted wanted;
  {
    const Lock lock(mutex_);
    wanted = wanted_;
  }
  const Handles::Entry primary = primary_of(session_);
  const bool possible = primary && part() != nullptr && wanted.part != nullptr;
  if (possible && !may_move(primary)) return;
  const bool moved = possible && move(primary, wanted.part);
  {
    const Lock lock(mutex_);
    if (moved) part_ = wanted.part;
    if (!moved) let_go(wanted.part);
    wanted_.part = nullptr;
    pending_.store(false, std::memory_order_release);
  }
  if (moved || !possible) return tell_board(wanted.version);
  session_.log().warn("the session stays in its multiprocessors", {{"context", index_of(primary)}});
}

// What has been captured so far is of the present part, and what a worker is about to put into a
// stream would not be waited for. A default stream makes others wait for all that there is: where
// that may in turn wait for work to come, nothing must be in it.
bool Moves::may_move(const Handles::Entry& primary) const {
  if (session_.graphs().capturing() || placing_.use_count() != 1) return false;
  if (!default_stream_used_.load(std::memory_order_relaxed)) return true;
  const bool waits = session_.memory().host_calls.any() || waits_for_words_.load();
  if (!waits || session_.enter(index_of(primary)) != CUDA_SUCCESS) return true;
  return session_.driver().cuStreamQuery(CU_STREAM_LEGACY) != CUDA_ERROR_NOT_READY;
}

bool Moves::move(const Handles::Entry& primary, const std::shared_ptr<SmPart>& part) {
  const std::uint32_t context = index_of(primary);
  session_.memory().holds.seal();
  std::vector<Twin> twins = list_streams(context);
  std::shared_ptr<Fence> all;
  CUresult result = session_.enter(context);
  if (result == CUDA_SUCCESS) result = mark_ends(context, twins, all);
  if (result == CUDA_SUCCESS) result = session_.driver().cuCtxSetCurrent(part->context);
  session_.forget_entered();
  if (result == CUDA_SUCCESS) result = make_twins(context, part, twins);
  std::shared_ptr<Fence> all_begun;
  if (result == CUDA_SUCCESS && all != nullptr) {
    all_begun = begin_behind(context, CU_STREAM_LEGACY, *all, result);
  }
  if (result != CUDA_SUCCESS) return false;
  note_beginnings(twins, all, all_begun);
  take_over(primary, part, twins);
  retire(this->part(), twins, std::move(all));
  return true;
}

std::vector<Moves::Twin> Moves::list_streams(std::uint32_t context) {
  std::vector<Twin> twins;
  for (const Handles::Entry& entry : session_.handles().all(wire::HandleKind::kStream)) {
    auto owner = std::dynamic_pointer_cast<StreamOwner>(entry.attachment);
    if (owner == nullptr || owner->context() != context || owner->stream() == nullptr) continue;
    twins.push_back({.handle = entry.handle, .old = std::move(owner)});
  }
  for (auto& [thread, owner] : session_.contexts().thread_stream_owners(context)) {
    twins.push_back({.thread = thread, .old = std::move(owner)});
  }
  return twins;
}

// A broken context has no ends: nothing moves then.
CUresult Moves::mark_ends(std::uint32_t context, std::vector<Twin>& twins,
                          std::shared_ptr<Fence>& all) {
  EventPool& events = session_.memory().events;
  CUresult result = CUDA_SUCCESS;
  // A stream that has nothing to do stays one that has not.
  const auto mark = [&](CUstream stream, std::shared_ptr<Fence>& end) {
    result = session_.driver().cuStreamQuery(stream);
    if (result != CUDA_ERROR_NOT_READY) return result;
    end = events.record(context, stream, result);
    return result;
  };
  for (Twin& twin : twins) {
    if (mark(twin.old->stream(), twin.end) != CUDA_SUCCESS) return result;
  }
  if (!default_stream_used_.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  return mark(CU_STREAM_LEGACY, all);
}

CUresult Moves::make_twins(std::uint32_t context, const std::shared_ptr<SmPart>& part,
                           std::vector<Twin>& twins) {
  const driver::Table& driver = session_.driver();
  for (Twin& twin : twins) {
    CUstream fresh = nullptr;
    if (const CUresult bad = make_twin(driver, twin.old->stream(), &fresh); bad != CUDA_SUCCESS) {
      return bad;
    }
    twin.fresh = std::make_shared<StreamOwner>(driver, context, fresh, part);
    if (twin.end == nullptr) continue;
    CUresult result = CUDA_SUCCESS;
    twin.begun = begin_behind(context, fresh, *twin.end, result);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

std::shared_ptr<Fence> Moves::begin_behind(std::uint32_t context, CUstream stream, const Fence& end,
                                           CUresult& result) {
  result = session_.driver().cuStreamWaitEvent(stream, end.event(), 0);
  if (result != CUDA_SUCCESS) return nullptr;
  return session_.memory().events.record(context, stream, result);
}

void Moves::note_beginnings(const std::vector<Twin>& twins, const std::shared_ptr<Fence>& all,
                            const std::shared_ptr<Fence>& all_begun) {
  std::vector<Beginnings::Beginning> beginnings;
  for (const Twin& twin : twins) {
    if (twin.begun == nullptr) continue;
    beginnings.push_back({.old = twin.old->stream(),
                          .fresh = twin.fresh->stream(),
                          .end = twin.end,
                          .begun = twin.begun});
  }
  if (all_begun != nullptr) {
    beginnings.push_back(
        {.old = CU_STREAM_LEGACY, .fresh = CU_STREAM_LEGACY, .end = all, .begun = all_begun});
  }
  if (!beginnings.empty()) beginnings_.add(std::move(beginnings));
}

CUresult Moves::query(CUstream stream) {
  const driver::Table& driver = session_.driver();
  const CUresult result = driver.cuStreamQuery(stream);
  if (result != CUDA_ERROR_NOT_READY || !beginnings_.settle(stream)) return result;
  return driver.cuStreamQuery(stream);
}

void Moves::take_over(const Handles::Entry& primary, const std::shared_ptr<SmPart>& part,
                      std::vector<Twin>& twins) {
  Handles& handles = session_.handles();
  const std::uint32_t context = index_of(primary);
  for (Twin& twin : twins) {
    session_.memory().depths.forget(twin.old->stream());
    session_.memory().pools.rename_stream({context, twin.old->stream()}, twin.fresh->stream());
    if (twin.handle != 0) {
      handles.replace(wire::HandleKind::kStream, twin.handle, twin.fresh->stream(), twin.fresh);
    } else {
      session_.contexts().replace_thread_stream(context, twin.thread, twin.fresh);
    }
  }
  handles.replace(wire::HandleKind::kContext, primary.handle, part->context, primary.attachment);
  session_.forget_entered();
}

void Moves::retire(const std::shared_ptr<SmPart>& old, const std::vector<Twin>& twins,
                   std::shared_ptr<Fence> all) {
  const Lock lock(mutex_);
  drop_passed(ended_);
  Earlier earlier{.part = old, .ends = ended_, .since = session_.clock().now()};
  left_behind_.insert(left_behind_.end(), ended_.begin(), ended_.end());
  ended_.clear();
  for (const Twin& twin : twins) {
    if (twin.end != nullptr) earlier.ends.push_back(twin.end);
  }
  if (all != nullptr) earlier.ends.push_back(std::move(all));
  earlier_.push_back(std::move(earlier));
}

void Moves::tell_board(std::uint32_t version) {
  std::uint32_t fixed = 0;
  const auto present = part();
  for (const Handles::Entry& entry : session_.handles().all(wire::HandleKind::kGraphExec)) {
    const auto* origin = static_cast<const ExecOrigin*>(entry.attachment.get());
    if (origin != nullptr && origin->fixed() && origin->part() != present) ++fixed;
  }
  for (const Handles::Entry& entry : session_.handles().all(wire::HandleKind::kContext)) {
    if (!ContextSubjects::origin(entry).primary) ++fixed;
  }
  own_usage().moved(version, fixed);
}

void Moves::note_end(std::uint32_t context, CUstream stream) {
  // A capture would be made invalid by the question, and what it gathers is no work yet.
  if (part() == nullptr || session_.graphs().capturing(stream) ||
      session_.driver().cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) {
    return;
  }
  CUresult result = CUDA_SUCCESS;
  auto end = session_.memory().events.record(context, stream, result);
  if (end == nullptr) return;
  const Lock lock(mutex_);
  if (context != context_) return;
  if (ended_.size() >= kEndedLooked) drop_passed(ended_);
  ended_.push_back(std::move(end));
}

std::vector<std::shared_ptr<Fence>> Moves::left_behind() {
  const Lock lock(mutex_);
  if (!left_behind_.empty()) drop_passed(left_behind_);
  return left_behind_;
}

// Parts of which nothing runs, and that nobody else has.
std::vector<std::shared_ptr<SmPart>> Moves::take_idle() {
  const Instant now = session_.clock().now();
  std::vector<std::shared_ptr<SmPart>> gone;
  const auto is_over = [now](Earlier& earlier) {
    drop_passed(earlier.ends);
    return earlier.ends.empty() && now - earlier.since >= kGrace;
  };
  const auto using_context = session_.use();
  {
    const Lock lock(mutex_);
    if (earlier_.empty() && idle_.empty()) return {};
    if (session_.enter(context_) != CUDA_SUCCESS) return {};
    for (Earlier& earlier : earlier_) {
      if (is_over(earlier)) let_go(std::exchange(earlier.part, nullptr));
    }
    std::erase_if(earlier_, [](const Earlier& earlier) { return earlier.part == nullptr; });
    // The others are graphs' that were made in them.
    std::erase_if(idle_, [&gone](auto& part) {
      if (part.use_count() != 1) return false;
      gone.push_back(std::move(part));
      return true;
    });
  }
  session_.driver().cuCtxSetCurrent(nullptr);
  return gone;
}

bool Moves::nobody_inside() {
  if (!session_.nobody_inside()) return false;
  const Handles::Entry primary = primary_of(session_);
  if (!primary) return true;
  const std::unique_lock lock(ContextSubjects::origin(primary).waits, std::try_to_lock);
  return lock.owns_lock();
}

Moves::Left Moves::tidy() {
  std::vector<std::shared_ptr<SmPart>> gone = take_idle();
  // Whoever is in one of them has been since before it was replaced.
  if (!gone.empty() && !nobody_inside()) {
    const Lock lock(mutex_);
    idle_.insert(idle_.end(), gone.begin(), gone.end());
    return Left::kSome;
  }
  gone.clear();
  const Lock lock(mutex_);
  if (!earlier_.empty()) return Left::kSome;
  return idle_.empty() ? Left::kNothing : Left::kKept;
}

}  // namespace flyt::server
