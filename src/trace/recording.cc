#include "trace/recording.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/assert.h"
#include "base/fd.h"

namespace flyt::trace {
namespace {

constexpr int kNamesTried = 1000;

// A new file of this process, or nothing with errno set.
Fd create(const std::string& stem, std::string& path) {
  for (int turn = 1; turn <= kNamesTried; ++turn) {
    path = stem + (turn == 1 ? "" : "-" + std::to_string(turn));
    Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.valid() || errno != EEXIST) return file;
  }
  return {};
}

template <class T>
std::span<T> next_array(std::byte*& at, std::size_t count) {
  const std::span<T> array(static_cast<T*>(static_cast<void*>(at)), count);
  at += count * sizeof(T);
  return array;
}

}  // namespace

std::uint64_t bytes_of_recording(std::uint64_t calls, std::uint64_t commands,
                                 std::uint64_t events) {
  return sizeof(Header) + (calls + commands) * sizeof(Name) + calls * sizeof(CallCounters) +
         commands * sizeof(CommandCounters) + events * sizeof(Event);
}

void set_text(std::span<char> field, std::string_view text) {
  const std::size_t size = std::min(text.size(), field.size() - 1);
  std::copy_n(text.begin(), size, field.begin());
  std::fill(field.begin() + static_cast<std::ptrdiff_t>(size), field.end(), '\0');
}

Status Recording::open(const std::string& path, const Shape& shape) {
  FLYT_ASSERT(shape.calls <= kCallsMax && shape.commands <= kCommandsMax &&
              shape.events_max <= kEventsMax);
  const auto process = static_cast<std::uint32_t>(::getpid());
  const Fd file = create(path + "." + std::to_string(process), path_);
  if (!file.valid()) return system_error("making " + path_, errno);
  bytes_ = bytes_of_recording(shape.calls, shape.commands, shape.events_max);
  const int full = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes_));
  void* base = MAP_FAILED;
  if (full == 0) {
    base = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  }
  if (base == MAP_FAILED) {
    const Error error = system_error("making " + path_, full != 0 ? full : errno);
    ::unlink(path_.c_str());
    return error;
  }
  shape_ = shape;
  lay_out(base);
  header_->calls = shape.calls;
  header_->commands = shape.commands;
  header_->events_max = shape.events_max;
  header_->process = process;
  return {};
}

void Recording::lay_out(void* base) {
  base_ = base;
  auto* at = static_cast<std::byte*>(base);
  header_ = next_array<Header>(at, 1).data();
  call_names_ = next_array<Name>(at, shape_.calls);
  command_names_ = next_array<Name>(at, shape_.commands);
  calls_ = next_array<CallCounters>(at, shape_.calls);
  commands_ = next_array<CommandCounters>(at, shape_.commands);
  events_ = next_array<Event>(at, shape_.events_max);
}

void Recording::abandon() {
  if (base_ != nullptr) ::munmap(std::exchange(base_, nullptr), bytes_);
}

void Recording::add(const Event& event) {
  if (events_.empty()) return;
  const std::uint64_t place =
      std::atomic_ref(header_->events_begun).fetch_add(1, std::memory_order_relaxed);
  if (place >= events_.size()) return;
  Event& kept = events_[place];
  kept = event;
  std::atomic_ref(kept.written).store(1, std::memory_order_release);
}

}  // namespace flyt::trace
