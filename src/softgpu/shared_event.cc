// SharedEvent: how far an event is that several processes use: two counters in a file in memory.
#include "softgpu/shared_event.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "softgpu/stream.h"

namespace flyt::softgpu {
namespace {

constexpr std::uint64_t kMagic = 0x746e657665'74796cULL;

// What a handle holds: where its maker has the file open, and what stands in it.
struct Content {
  std::uint64_t magic = 0;
  std::uint64_t secret[2] = {};
  std::int32_t process = 0;
  std::int32_t file = 0;
};
static_assert(sizeof(Content) <= sizeof(CUipcEventHandle));

}  // namespace

std::shared_ptr<SharedEvent> SharedEvent::map(Fd file) {
  void* at = ::mmap(nullptr, Pages::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return nullptr;
  struct Made : SharedEvent {
    Made(Fd file, Counters* counters) : SharedEvent(std::move(file), counters) {}
  };
  return std::make_shared<Made>(std::move(file), static_cast<Counters*>(at));
}

std::shared_ptr<SharedEvent> SharedEvent::make() {
  Fd file(::memfd_create("flyt-softgpu-event", MFD_CLOEXEC));
  if (!file.valid() || ::ftruncate(file.get(), Pages::kPageBytes) != 0) return nullptr;
  auto event = map(std::move(file));
  if (event == nullptr) return nullptr;
  random_bytes(event->counters_->secret, sizeof event->counters_->secret);
  event->counters_->magic = kMagic;
  return event;
}

std::shared_ptr<SharedEvent> SharedEvent::open(const CUipcEventHandle& handle) {
  Content content;
  std::memcpy(&content, handle.reserved, sizeof content);
  if (content.magic != kMagic || content.process <= 0 || content.file < 0) return nullptr;
  const std::string path =
      "/proc/" + std::to_string(content.process) + "/fd/" + std::to_string(content.file);
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size != static_cast<off_t>(Pages::kPageBytes)) {
    return nullptr;
  }
  auto event = map(std::move(file));
  const bool same =
      event != nullptr && event->counters_->magic == kMagic &&
      std::memcmp(event->counters_->secret, content.secret, sizeof content.secret) == 0;
  return same ? event : nullptr;
}

SharedEvent::~SharedEvent() { ::munmap(counters_, Pages::kPageBytes); }

CUipcEventHandle SharedEvent::handle() const {
  Content content{kMagic,
                  {counters_->secret[0], counters_->secret[1]},
                  static_cast<std::int32_t>(::getpid()),
                  file_.get()};
  CUipcEventHandle handle{};
  std::memcpy(handle.reserved, &content, sizeof content);
  return handle;
}

void SharedEvent::complete(std::uint64_t number) {
  std::uint64_t done = counters_->done.load();
  while (done < number && !counters_->done.compare_exchange_weak(done, number)) {
  }
}

// No process can wake another one here, so it is looked at again and again, ever more rarely.
void await(const SharedEvent& event, std::uint64_t number, const Fate& fate) {
  constexpr Duration kFirst = std::chrono::microseconds(2);
  constexpr Duration kLast = std::chrono::microseconds(500);
  Duration pause = kFirst;
  while (!event.reached(number) && !fate.ended() && fate.error() == CUDA_SUCCESS) {
    system_clock().sleep_for(pause);
    pause = std::min(pause * 2, kLast);
  }
}

}  // namespace flyt::softgpu
