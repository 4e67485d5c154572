#include "client/recovery/recovery.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "client/memory_state.h"
#include "client/recovery/recovery_replay.h"
#include "commands/context.h"
#include "commands/event.h"
#include "commands/graph.h"
#include "commands/launch.h"
#include "commands/link.h"
#include "commands/memory.h"
#include "commands/module.h"
#include "commands/ops.h"
#include "commands/pinned.h"
#include "commands/pool.h"
#include "commands/recovery.h"
#include "commands/stream.h"
#include "commands/texture.h"
#include "rpc/credential.h"
#include "transport/transport.h"

namespace flyt::client {
namespace {

// What may have been done, and is another thing if it is done twice.
bool is_once(std::uint16_t op) {
  using namespace commands;
  static constexpr std::array kOps = {
      TryLaunchKernel::kOp, TryLaunchGraph::kOp,    EndCapture::kOp,
      CreateGraph::kOp,     CloneGraph::kOp,        ChangeEdges::kOp,
      AddGraphNode::kOp,    CreateConditional::kOp, InstantiateGraph::kOp};
  return std::find(kOps.begin(), kOps.end(), op) != kOps.end();
}

// For all of it: connecting, and a process before that is not gone yet.
constexpr Duration kPatience = std::chrono::seconds(10);
// New processes that end, too, before the session is there.
constexpr int kTriesMax = 5;
// The server's parent may not know yet which of them are gone.
constexpr Duration kPauseFirst = std::chrono::milliseconds(10);
// While nobody listens, but another server may come.
constexpr Duration kReturnPause = std::chrono::milliseconds(20);
constexpr Duration kReturnsMax = std::chrono::hours(1);

}  // namespace

bool Recovery::possible(const rpc::Channel& channel) {
  return channel.welcome().recovery != wire::SessionToken{} &&
         channel.welcome().highest_op >= commands::EndRestoring::kOp;
}

std::span<const bool> Recovery::not_missed() {
  using namespace commands;
  // What these make or change is known here and made again, what they end is not; code is sent
  // again.
  static constexpr auto kOps = [] {
    std::array<bool, kOpMax + 1> ops{};
    for (const std::uint16_t op :
         {EventCreate::kOp,      EventDestroy::kOp,       StreamCreate::kOp,
          StreamDestroy::kOp,    StreamSetAttribute::kOp, SetContextCache::kOp,
          MemFree::kOp,          PoolCreate::kOp,         PoolSet::kOp,
          PoolDestroy::kOp,      PoolFree::kOp,           DescribeUpload::kOp,
          commands::Upload::kOp, DropUpload::kOp,         WriteHost::kOp,
          DestroyLink::kOp,      DestroyTexture::kOp,     DestroySurface::kOp,
          DestroyGraphExec::kOp, UploadGraph::kOp,        EndThread::kOp,
          MarkStream::kOp}) {
      ops[op] = true;
    }
    return ops;
  }();
  return kOps;
}

Recovery::Recovery(Session& session, rpc::PushHandler& pushes, const SessionOptions& options,
                   bool share)
    : session_(session),
      pushes_(pushes),
      options_(options),
      share_(share),
      windows_(session.channel().welcome().windows),
      token_(session.channel().welcome().recovery),
      returns_(std::min<Duration>(std::chrono::milliseconds(session.channel().welcome().returns_ms),
                                  kReturnsMax)) {}

bool Recovery::run() {
  const Lock lock(mutex_);
  rpc::Channel& channel = session_.channel();
  // Another thread was quicker.
  if (!channel.lost()) return true;
  if (given_up_) return false;
  const Instant start = system_clock().now();
  const Status status = go_on();
  if (status) {
    const auto took =
        std::chrono::duration_cast<std::chrono::microseconds>(system_clock().now() - start);
    session_.log().info("the session goes on in another process", {{"us", took.count()}});
    return true;
  }
  given_up_ = true;
  session_.log().warn("the GPU server is lost",
                      {{"why", channel.error().message}, {"recovery", status.error().message}});
  return false;
}

Status Recovery::go_on() {
  if (!session_.channel().cut()) return Error{ErrorCode::kLost, "the session was ended"};
  if (times() >= kTimesMax) return Error{ErrorCode::kLimit, "it went on too often"};
  {
    const Lock lock(code_mutex_);
    if (too_much_code_) return Error{ErrorCode::kLimit, "more code than is kept for that"};
  }
  Status last;
  Verdict verdict;
  const Instant returned = system_clock().now() + returns_;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    if (tries != 0) system_clock().sleep_for(kPauseFirst * (1 << (tries - 1)));
    auto opened = open();
    while (!opened && opened.error().code == ErrorCode::kNotFound &&
           system_clock().now() < returned) {
      system_clock().sleep_for(kReturnPause);
      opened = open();
    }
    if (!opened) {
      last = std::move(opened).error();
      // A process that ended before it answered; another one may do.
      if (last.error().code == ErrorCode::kLost) continue;
      return last;
    }
    std::unique_lock steady(session_.steady_mutex(), std::defer_lock);
    auto work_lost = restore(**opened, verdict, steady);
    if (work_lost) {
      publish(std::move(*opened), *work_lost);
      return {};
    }
    last = std::move(work_lost).error();
    if (!(*opened)->lost() || !(*opened)->cut()) return last;
  }
  return last;
}

Result<Recovery::Opened> Recovery::open() {
  const Instant deadline = system_clock().now() + kPatience;
  const auto url = transport::parse_url(options_.url);
  if (!url) return url.error();
  auto credential = options_.credential.empty() ? rpc::own_credential()
                                                : Result<std::string>(options_.credential);
  if (!credential) return std::move(credential).error();
  wire::ClientHello hello;
  hello.name = ::program_invocation_short_name;
  hello.process_id = static_cast<std::uint32_t>(::getpid());
  hello.user_id = static_cast<std::uint32_t>(::getuid());
  hello.highest_op = static_cast<std::uint16_t>(commands::kOpMax);
  hello.windows = windows_;
  hello.shared_memory = share_;
  hello.credential = std::move(*credential);
  hello.recoverable = true;
  hello.recovers = token_;
  auto connection = transport::connect(*url, deadline);
  // Nobody listens any more: the server is gone, not only the session's process.
  if (!connection) return Error{ErrorCode::kNotFound, connection.error().message};
  auto opened =
      rpc::Channel::open(std::move(*connection), hello, deadline, pushes_, options_.channel);
  if (!opened) return opened;
  const wire::Welcome& before = session_.channel().welcome();
  const wire::Welcome& now = (*opened)->welcome();
  const bool same = now.windows == before.windows && now.shared_memory == before.shared_memory &&
                    now.recovery == token_ && now.driver == before.driver &&
                    now.highest_op >= before.highest_op;
  if (!same) return Error{ErrorCode::kDenied, "the server is another one now"};
  return opened;
}

Status Recovery::judge(Replay& replay, const std::vector<rpc::Unanswered>& calls,
                       Verdict& verdict) {
  const auto told = replay.marks();
  if (!told) return told.error();
  bool unfinished = told->work != told->done;
  if (!verdict.known) {
    // Of a process that went on with it the numbers are another connection's.
    const auto behind = unfinished ? session_.channel().newest_behind(told->done) : std::nullopt;
    auto unchanging = behind ? replay.unchanging(*behind, *told) : std::nullopt;
    if (unchanging) {
      const auto fault = replay.fault();
      if (!fault) return fault.error();
      unfinished = *fault != CUDA_SUCCESS;
    }
    // Who waits for an answer asks again, unless it may have been done.
    const bool twice = std::any_of(calls.begin(), calls.end(), [&](const rpc::Unanswered& call) {
      return is_once(call.op) && call.sequence <= told->begun;
    });
    const auto pushes = replay.pushes();
    if (!pushes) return pushes.error();
    const bool late = verdict.pushes < *pushes;
    verdict = {
        .known = true,
        .lost = twice || late || session_.memory().host_work_lost(),
        .missed = session_.channel().newest_missed() > told->begun,
        .unchanging = unchanging && !unfinished ? std::move(*unchanging) : Replay::Commands(),
        .begun = told->begun,
        .done = told->done,
        .pushes = verdict.pushes};
  }
  verdict.unfinished = verdict.unfinished || unfinished;
  verdict.lost = verdict.lost || unfinished;
  if (!verdict.lost || verdict.fault != CUDA_SUCCESS) return {};
  const auto fault = replay.fault();
  if (!fault) return fault.error();
  verdict.fault = *fault;
  return {};
}

Result<CUresult> Recovery::restore(rpc::Channel& to, Verdict& verdict,
                                   std::unique_lock<std::shared_mutex>& steady) {
  rpc::Channel& before = session_.channel();
  const std::vector<rpc::Unanswered> calls = before.unanswered();
  const std::uint64_t pushes = session_.memory().mirror().take_pushes();
  // Those of a process that went no further than this are none.
  if (!verdict.pushes) verdict.pushes = pushes;
  Replay replay(session_, to);
  // All threads of the program wait for it.
  to.answer_by(system_clock().now() + options_.recovery_patience);
  if (Status judged = judge(replay, calls, verdict); !judged) return std::move(judged).error();
  steady.lock();
  if (Status made = replay.make(); !made) return std::move(made).error();
  // Before there is work again: what was kept for this and is let go of now may wait for all of it.
  if (Status ended = replay.end(); !ended) return std::move(ended).error();
  to.answer_by({});
  bool lost = verdict.lost || verdict.missed || !verdict.unchanging.empty();
  // Work that may have faulted is not done twice; what was not begun has not.
  const bool may_fault = verdict.fault != CUDA_SUCCESS && verdict.unfinished;
  // Functions of graphs would run before anybody could be told that they did.
  const bool functions = session_.memory().host_work_lost() || session_.memory().host_calls().any();
  // Nor is what may have read host memory that has changed since.
  const bool redoes = lost && !functions && !may_fault && !session_.memory().mirror().active();
  std::optional<std::vector<rpc::Unfinished::Command>> again;
  if (redoes && before.unfinished() != nullptr) {
    again = before.unfinished()->behind(verdict.done);
  } else if (redoes && !verdict.lost) {
    again = before.newest_behind(verdict.begun);
    if (again && !Replay::is_all_work(*again, not_missed())) again.reset();
    if (again) again->insert(again->begin(), verdict.unchanging.begin(), verdict.unchanging.end());
    // Whoever goes on may do it and be lost, too.
    if (again) verdict.lost = true;
  }
  // First: whoever sees what the new process does sees that it is another one.
  times_.fetch_add(1, std::memory_order_release);
  if (again) {
    auto redone = replay.redo(*again, calls);
    if (!redone) return std::move(redone).error();
    lost = !*redone;
  }
  if (!lost) return CUDA_SUCCESS;
  return verdict.fault == CUDA_SUCCESS ? CUDA_ERROR_LAUNCH_FAILED : verdict.fault;
}

void Recovery::publish(Opened opened, CUresult work_lost) {
  if (work_lost != CUDA_SUCCESS) {
    session_.contexts().table().for_each([work_lost](std::uint64_t, ContextState& context) {
      int none = 0;
      if (context.live.load() != 0) {
        context.sticky.compare_exchange_strong(none, work_lost);
      }
    });
  }
  session_.memory().on_recovered();
  session_.channel().go_on_with(std::move(opened));
}

void Recovery::keep_code(std::uint64_t handle, Bytes image,
                         const std::vector<std::int32_t>& options,
                         const std::vector<std::uint64_t>& values) {
  const Lock lock(code_mutex_);
  if (image.size() > kCodeBytesMax - code_bytes_) {
    too_much_code_ = true;
    return;
  }
  code_bytes_ += image.size();
  code_[handle] =
      std::make_shared<const KeptCode>(KeptCode{{image.begin(), image.end()}, options, values});
}

void Recovery::drop_code(std::uint64_t handle) {
  const Lock lock(code_mutex_);
  const auto found = code_.find(handle);
  if (found == code_.end()) return;
  code_bytes_ -= found->second->image.size();
  code_.erase(found);
}

std::shared_ptr<const KeptCode> Recovery::code_of(std::uint64_t handle) {
  const Lock lock(code_mutex_);
  const auto found = code_.find(handle);
  return found == code_.end() ? nullptr : found->second;
}

}  // namespace flyt::client
