#include "server/output_worker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>

namespace flyt::server {

Result<std::unique_ptr<OutputWorker>> OutputWorker::start(std::function<void(Bytes)> push) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("pipe2", errno);
  Fd reading(ends[0]);
  const Fd writing(ends[1]);
  std::fflush(stdout);
  if (::dup2(writing.get(), STDOUT_FILENO) < 0) return system_error("dup2", errno);
  if (::fcntl(reading.get(), F_SETFL, O_NONBLOCK) < 0) return system_error("fcntl", errno);
  Fd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop.valid()) return system_error("eventfd", errno);
  return std::unique_ptr<OutputWorker>(
      new OutputWorker(std::move(reading), std::move(stop), std::move(push)));
}

OutputWorker::OutputWorker(Fd pipe, Fd stop, std::function<void(Bytes)> push)
    : pipe_(std::move(pipe)), stop_(std::move(stop)), push_(std::move(push)) {
  thread_ = std::thread([this] { loop(); });
}

OutputWorker::~OutputWorker() {
  const std::uint64_t one = 1;
  // An eventfd takes a 1 at any time.
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void OutputWorker::loop() {
  while (true) {
    std::array<pollfd, 2> wanted = {pollfd{pipe_.get(), POLLIN, 0}, pollfd{stop_.get(), POLLIN, 0}};
    if (::poll(wanted.data(), wanted.size(), -1) < 0 && errno != EINTR) return;
    if (wanted[1].revents != 0) return;
    drain();
  }
}

void OutputWorker::flush() {
  // A driver prints through stdio, like anybody.
  std::fflush(stdout);
  drain();
}

void OutputWorker::drain() {
  std::array<std::byte, 16 * kKiB> text;
  const Lock lock(mutex_);
  while (true) {
    const ssize_t got = ::read(pipe_.get(), text.data(), text.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    push_(bytes_at(text.data(), static_cast<std::size_t>(got)));
  }
}

ErrorOutput::ErrorOutput(std::function<void(Bytes)> push)
    : push_(std::move(push)), before_(stderr) {
  file_ = ::fopencookie(this, "w",
                        {.read = nullptr, .write = &take, .seek = nullptr, .close = nullptr});
  if (file_ == nullptr) return;
  std::setvbuf(file_, nullptr, _IOLBF, BUFSIZ);
  stderr = file_;
}

ErrorOutput::~ErrorOutput() {
  stderr = before_;
  if (file_ != nullptr) std::fclose(file_);
}

ssize_t ErrorOutput::take(void* self, const char* text, std::size_t size) {
  static_cast<ErrorOutput*>(self)->push_(bytes_at(text, size));
  return static_cast<ssize_t>(size);
}

}  // namespace flyt::server
