#include "server/streams/completion.h"

#include <memory>
#include <utility>

#include "server/code/code_subjects.h"
#include "server/lease/moves.h"
#include "server/session.h"

namespace flyt::server {

void Completions::add(Completion completion) {
  Waiting waiting{std::move(completion), session_.clock().now()};
  if (!advance(waiting)) waiting_.push_back(std::move(waiting));
}

bool Completions::poll() {
  // finish() may add more, so the list is walked by index and swapped out.
  std::vector<Waiting> present = std::exchange(waiting_, {});
  for (Waiting& waiting : present) {
    if (!advance(waiting)) waiting_.push_back(std::move(waiting));
  }
  return !waiting_.empty();
}

bool Completions::advance(Waiting& waiting) {
  Completion& completion = waiting.completion;
  if (completion.poll) {
    CUresult result = session_.enter(completion.context);
    if (result == CUDA_SUCCESS) result = completion.poll();
    if (result != CUDA_ERROR_NOT_READY) {
      // A driver hands out what kernels printed, or asserted, when it is waited for, not when it is
      // asked.
      const bool printed = result == CUDA_SUCCESS && session_.code().may_print();
      if (printed || result == CUDA_ERROR_ASSERT) result = completion.block();
      session_.moves().note_done();
      completion.finish(result);
      return true;
    }
    const Instant now = session_.clock().now();
    const Duration poll_time = spare_cores_.any(now) ? kPollTime : kPollTimeBusy;
    if (now - waiting.since < poll_time) return false;
    if (blocked_.load() >= kBlockedMax) return false;
  }
  block_on_worker(std::move(completion));
  return true;
}

void Completions::block_on_worker(Completion completion) {
  auto shared = std::make_shared<Completion>(std::move(completion));
  blocked_.fetch_add(1);
  session_.workers().run([this, shared] {
    CUresult result = CUDA_SUCCESS;
    {
      // The context is there while it is made current. Later block() sees to it.
      const auto using_context = session_.use();
      result = session_.enter(shared->context);
    }
    if (result == CUDA_SUCCESS) result = shared->block();
    blocked_.fetch_sub(1);
    session_.moves().note_done();
    shared->finish(result);
  });
}

}  // namespace flyt::server
