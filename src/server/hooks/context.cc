// Primary and ordinary contexts.
#include "server/hooks_context.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "server/code/code_subjects.h"
#include "server/code/empty_kernel.h"
#include "server/context_description.h"
#include "server/context_subjects.h"
#include "server/faults/gpu_return.h"
#include "server/graphs/graphs.h"
#include "server/lease/moves.h"
#include "server/lease/usage_board.h"
#include "server/memory_subjects.h"
#include "server/recovery/recovery.h"
#include "server/session.h"
#include "server/transfers/pinned_memory.h"

namespace flyt::server::hooks {
namespace {

// How a server waits is its own affair, and core dumps would be files here.
constexpr unsigned int kFlagsKept =
    CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_SYNC_MEMOPS;
// A context with more streams than that is waited for without polling each.
constexpr std::size_t kStreamsPolledMax = 16;

// Puts a new context into the table and describes it; it is current on this thread.
template <class Reply>
void adopt(Request request, CUcontext client, CUcontext native, CUdevice device, bool primary,
           CUcontext confined = nullptr) {
  auto attachment = std::make_shared<ContextOrigin>(device, primary);
  attachment->confined = confined;
  if (!request.adopt(wire::HandleKind::kContext, client, native, std::move(attachment))) return;
  own_usage().context_made(device);
  const std::uint32_t index = wire::Handle{address_of(client)}.index();
  request.session().code().variables().on_context(index);
  request.session().memory().on_context_made(confined != nullptr ? confined : native);
  describe_context<Reply>(std::move(request), native);
}

// Lets go of what dies with a context, if it is the client's and of the kind that the client says:
// else something would die whose handles live on. Null if it is not. The caller holds endings().
template <class Fits>
CUcontext let_go(Request& request, CUcontext client, Fits&& fits) {
  Session& session = request.session();
  const auto entry = session.handles().entry(wire::HandleKind::kContext, address_of(client));
  if (!entry || !fits(ContextSubjects::origin(entry))) return nullptr;
  session.contexts().let_go(entry);
  if (ContextSubjects::origin(entry).confined != nullptr) {
    session.driver().cuCtxSetCurrent(nullptr);
    session.moves().end();
  }
  return ContextSubjects::keeper(entry);
}

CUcontext let_go_primary(Request& request, CUcontext client, CUdevice device) {
  return let_go(request, client, [&](const ContextOrigin& origin) {
    return origin.primary && origin.device == device;
  });
}

// What a wait for a whole context looks at: the streams that the client can have work in.
std::vector<std::shared_ptr<StreamOwner>> streams_of(Session& session, std::uint32_t context) {
  std::vector<std::shared_ptr<StreamOwner>> streams;
  for (const auto& entry : session.handles().all(wire::HandleKind::kStream)) {
    auto stream = std::static_pointer_cast<StreamOwner>(entry.attachment);
    if (stream != nullptr && stream->context() == context) streams.push_back(std::move(stream));
  }
  return streams;
}

}  // namespace

void retain_primary(Request request, const commands::RetainPrimary& command) {
  const driver::Table& driver = request.driver();
  using Reply = commands::RetainPrimary::Reply;
  const Lock lock(request.session().endings());
  // Two handles of one context would not die together.
  if (request.session().contexts().has_primary(command.device)) {
    return request.reply(CUDA_ERROR_INVALID_VALUE, Reply{});
  }
  // Refused where it is active already, by a warm server for example; only a preference.
  driver.cuDevicePrimaryCtxSetFlags_v2(command.device, command.flags & kFlagsKept);
  CUcontext native = nullptr;
  CUresult result =
      once_gpu_is_back([&] { return driver.cuDevicePrimaryCtxRetain(&native, command.device); });
  if (result != CUDA_SUCCESS) return request.reply(result, Reply{});
  request.session().contexts().count_retained(command.device);
  // All that the program does in it is done in the lease's part of the GPU: what is made there
  // belongs to the primary context all the same.
  Session& session = request.session();
  const SmGrant grant = session.grant();
  std::shared_ptr<SmPart> part;
  if (command.device == 0 && (grant.confined() || session.movable())) {
    result = session.moves().parts().make(command.device, native, grant, part);
  }
  const CUcontext context = part != nullptr ? part->context : native;
  if (result == CUDA_SUCCESS) result = driver.cuCtxSetCurrent(context);
  if (result != CUDA_SUCCESS) return request.reply(result, Reply{});
  const CUcontext confined = part != nullptr ? native : nullptr;
  if (part != nullptr) {
    session.moves().begin(wire::Handle{address_of(command.context)}.index(), std::move(part));
  }
  adopt<Reply>(std::move(request), command.context, context, command.device, true, confined);
}

CUresult release_primary(Request& request, const commands::ReleasePrimary& command) {
  const Lock lock(request.session().endings());
  // After a reset the handle is gone already; but it must not stay where the context goes.
  const CUcontext native = let_go_primary(request, command.context, command.device);
  if (request.session().contexts().has_primary(command.device)) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult result = CUDA_SUCCESS;
  for (int count = request.session().contexts().take_retained(command.device); count > 0; --count) {
    result = request.driver().cuDevicePrimaryCtxRelease_v2(command.device);
  }
  request.session().memory().on_context_gone(native);
  return result;
}

CUresult reset_primary(Request& request, const commands::ResetPrimary& command) {
  const Lock lock(request.session().endings());
  const CUcontext native = let_go_primary(request, command.context, command.device);
  if (native == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = request.driver().cuDevicePrimaryCtxReset_v2(command.device);
  request.session().memory().on_context_gone(native);
  return result;
}

CUresult set_primary_flags(Request& request, const commands::SetPrimaryFlags& command) {
  return request.driver().cuDevicePrimaryCtxSetFlags_v2(command.device, command.flags & kFlagsKept);
}

void create_context(Request request, const commands::CreateContext& command) {
  const driver::Table& driver = request.driver();
  using Reply = commands::CreateContext::Reply;
  const unsigned int flags = command.flags & kFlagsKept;
  CUcontext native = nullptr;
  CUexecAffinityParam affinity{};
  affinity.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT;
  affinity.param.smCount.val = command.sm_count;
  // Green contexts are of primary ones: others get as many multiprocessors as the lease, where the
  // driver can do that.
  const SmGrant grant = request.session().grant();
  const bool confined = grant.confined() && command.device == 0;
  if (confined && (command.sm_count == 0 || command.sm_count > grant.granted)) {
    affinity.param.smCount.val = grant.granted;
  }
  const CUresult result = once_gpu_is_back([&] {
    return affinity.param.smCount.val == 0
               ? driver.cuCtxCreate_v2(&native, flags, command.device)
               : driver.cuCtxCreate_v3(&native, &affinity, 1, flags, command.device);
  });
  if (result != CUDA_SUCCESS) return request.reply(result, Reply{});
  // It lies on top of this worker's stack, where nobody would take it from: another worker destroys
  // it. Only one context is ever there.
  CUcontext pushed = nullptr;
  static_cast<void>(driver.cuCtxPopCurrent_v2(&pushed));
  static_cast<void>(driver.cuCtxSetCurrent(native));
  adopt<Reply>(std::move(request), command.context, native, command.device, false);
}

CUresult destroy_context(Request& request, const commands::DestroyContext& command) {
  const Lock lock(request.session().endings());
  const CUcontext native = let_go(request, command.context, [](const ContextOrigin& origin) {
    return !origin.primary && origin.green == nullptr;
  });
  if (native == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = request.driver().cuCtxDestroy_v2(native);
  request.session().memory().on_context_gone(native);
  return result;
}

CUresult set_context_flags(Request& request, const commands::SetContextFlags& command) {
  return request.driver().cuCtxSetFlags(command.flags & kFlagsKept);
}

CUresult set_context_limit(Request& request, const commands::SetContextLimit& command,
                           commands::SetContextLimit::Reply& reply) {
  const auto limit = static_cast<CUlimit>(command.limit);
  CUresult result = request.driver().cuCtxSetLimit(limit, command.value);
  std::size_t value = 0;
  if (result == CUDA_SUCCESS) result = request.driver().cuCtxGetLimit(&value, limit);
  reply.value = value;
  // What is done again then may wait for the program, and keep the next launch from that it has to
  // wait for.
  const Recovery* const recovery = request.session().recovery();
  if (result == CUDA_SUCCESS && recovery != nullptr && recovery->restoring()) {
    run_empty_kernel(request.driver());
  }
  return result;
}

CUresult set_context_cache(Request& request, const commands::SetContextCache& command) {
  return request.driver().cuCtxSetCacheConfig(static_cast<CUfunc_cache>(command.config));
}

namespace {

// Whether all that the client can have in a context is done, without waiting for it. If its streams
// move meanwhile, the new ones are looked at, which wait for the old.
class ContextPoll {
 public:
  ContextPoll(Session& session, std::uint32_t context)
      : session_(session),
        context_(context),
        part_(session.moves().part()),
        streams_(streams_of(session, context)) {}

  bool worth_it() const { return streams_.size() <= kStreamsPolledMax; }
  CUresult operator()() {
    if (part_ != session_.moves().part()) *this = ContextPoll(session_, context_);
    const driver::Table& driver = session_.driver();
    CUresult result = driver.cuStreamQuery(CU_STREAM_LEGACY);
    for (const auto& stream : streams_) {
      if (result != CUDA_SUCCESS) return result;
      result = driver.cuStreamQuery(stream->stream());
    }
    return result == CUDA_SUCCESS ? driver.cuCtxSynchronize() : result;
  }
  ContextPoll& operator=(ContextPoll&& other) noexcept {
    part_ = std::move(other.part_);
    streams_ = std::move(other.streams_);
    return *this;
  }
  ContextPoll(const ContextPoll&) = default;
  ~ContextPoll() = default;

 private:
  Session& session_;
  const std::uint32_t context_;
  std::shared_ptr<SmPart> part_;
  std::vector<std::shared_ptr<StreamOwner>> streams_;
};

// What works in the context, and in green contexts of it: those are not the part's in which it may
// be confined, but its own.
CUresult synchronize(Session& session, std::uint32_t context, const Handles::Entry& entry) {
  const driver::Table& driver = session.driver();
  CUresult result = session.enter(context);
  if (result != CUDA_SUCCESS) return result;
  result = driver.cuCtxSynchronize();
  CUcontext keeper = ContextSubjects::keeper(entry);
  if (result != CUDA_SUCCESS || keeper == nullptr || !session.contexts().has_greens(context)) {
    return result;
  }
  result = driver.cuCtxSetCurrent(keeper);
  session.forget_entered();
  return result == CUDA_SUCCESS ? driver.cuCtxSynchronize() : result;
}

// Another of the client's threads may destroy the context meanwhile, and its streams may move: then
// the new ones have to come to their beginnings, too, and those that ended before to their ends.
CUresult wait_for_all(Session& session, std::uint32_t context, const Handles::Entry& entry) {
  auto& origin = static_cast<ContextOrigin&>(*entry.attachment);
  for (;;) {
    const auto part = session.moves().part();
    for (const auto& end : session.moves().left_behind()) static_cast<void>(end->wait());
    const std::shared_lock lock(origin.waits);
    if (origin.ended) return CUDA_SUCCESS;
    const CUresult result = synchronize(session, context, entry);
    if (result != CUDA_SUCCESS || part == session.moves().part()) return result;
  }
}

}  // namespace

void synchronize_context(Request request, const commands::SynchronizeContext& command) {
  Session& session = request.session();
  const Handles::Entry entry =
      session.handles().entry(wire::HandleKind::kContext, address_of(command.context));
  if (!entry) return request.reply(CUDA_ERROR_INVALID_CONTEXT);
  const std::uint32_t index = wire::Handle{address_of(command.context)}.index();
  request.forget_payload();
  auto answer = std::make_shared<Request>(std::move(request));
  Completion wait;
  wait.context = index;
  ContextPoll poll(session, index);
  // What is left of an ended stream may be behind a function of the client's, of which this thread
  // would have to hear. Those of its green contexts are waited for too. Captures forbid to wait for
  // a context, and the driver has to be asked that at once.
  const std::uint64_t ended = session.contexts().ended_streams(index);
  const bool polled = poll.worth_it() && ended == 0 && !session.contexts().has_greens(index) &&
                      !session.graphs().capturing() && session.moves().left_behind().empty();
  if (polled) wait.poll = std::move(poll);
  wait.block = [&session, index, entry] { return wait_for_all(session, index, entry); };
  wait.finish = [&session, answer, index, ended](CUresult result) {
    if (result == CUDA_SUCCESS) session.contexts().note_ended_streams_done(index, ended);
    answer->reply(result);
  };
  session.completions().add(std::move(wait));
}

CUresult context_affinity(Request& request, const commands::ContextAffinity& command,
                          commands::ContextAffinity::Reply& reply) {
  CUexecAffinityParam affinity{};
  const CUresult result = request.driver().cuCtxGetExecAffinity(
      &affinity, static_cast<CUexecAffinityType>(command.kind));
  reply.sm_count = affinity.param.smCount.val;
  const SmGrant grant = request.session().grant();
  if (grant.confined()) reply.sm_count = std::min(reply.sm_count, grant.granted);
  return result;
}

}  // namespace flyt::server::hooks
