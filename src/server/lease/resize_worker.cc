#include "server/lease/resize_worker.h"

#include "server/lease/moves.h"
#include "server/lease/usage_board.h"
#include "server/session.h"

namespace flyt::server {
namespace {

// How long the destructor may take.
constexpr Duration kQuietTurn = std::chrono::seconds(1);

// How soon to look whether earlier parts have nothing to do any more.
Duration turn_of(Moves::Left left) {
  switch (left) {
    case Moves::Left::kNothing:
      return kQuietTurn;
    case Moves::Left::kKept:
      return std::chrono::milliseconds(200);
    case Moves::Left::kSome:
      return std::chrono::milliseconds(5);
  }
  return kQuietTurn;
}

}  // namespace

ResizeWorker::ResizeWorker(Session& session, UsageBoard& board, std::size_t slot)
    : session_(session), board_(board), slot_(slot) {
  thread_ = std::thread([this] { loop(); });
}

ResizeWorker::~ResizeWorker() {
  stopping_.store(true);
  board_.rouse();
  thread_.join();
}

void ResizeWorker::loop() {
  std::uint32_t seen = 0;
  while (!stopping_.load()) {
    if (!board_.may_return(slot_)) {
      session_.endpoint().end(wire::EndedCode::kShutdown, "the server is stopped");
      return;
    }
    if (own_usage().handover()) session_.endpoint().wake();
    const std::uint32_t version = board_.grant_version();
    // A newer grant than that of the version is asked for once more, which does no harm.
    if (version != seen) session_.moves().want(version, board_.grant());
    seen = version;
    const Duration turn = turn_of(session_.moves().tidy());
    if (!stopping_.load()) board_.await_grant(version, turn);
  }
}

}  // namespace flyt::server
