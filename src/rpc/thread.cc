#include "rpc/thread.h"

#include <signal.h>

namespace flyt::rpc {
namespace {

constexpr std::size_t kNameBytesMax = 15;

void* run(void* body) {
  (*static_cast<std::function<void()>*>(body))();
  return nullptr;
}

}  // namespace

Status Thread::start(std::string_view name, std::function<void()> body) {
  FLYT_ASSERT(!running_);
  body_ = std::move(body);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failure = ::pthread_create(&thread_, nullptr, run, &body_);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure != 0) return system_error("starting a thread", failure);
  running_ = true;
  ::pthread_setname_np(thread_, std::string(name.substr(0, kNameBytesMax)).c_str());
  return {};
}

void Thread::join() {
  if (!running_) return;
  ::pthread_join(thread_, nullptr);
  running_ = false;
}

}  // namespace flyt::rpc
