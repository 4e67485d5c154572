// OutputWorker, ErrorOutput: what the driver prints (printf and failed assertions in kernels) goes
// to the client instead.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <thread>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/fd.h"
#include "base/result.h"

namespace flyt::server {

// Makes this process's stdout a pipe and hands on what comes out of it. One a process: it has one
// stdout. A thread empties the pipe meanwhile, because a driver that prints more than a pipe holds
// would wait for ever. Safe from any thread.
class OutputWorker {
 public:
  // `push` gets the text; called by one thread at a time.
  static Result<std::unique_ptr<OutputWorker>> start(std::function<void(Bytes)> push);
  ~OutputWorker();
  OutputWorker(const OutputWorker&) = delete;
  OutputWorker& operator=(const OutputWorker&) = delete;

  // Hands on everything that was printed before the call.
  void flush() EXCLUDES(mutex_);

 private:
  OutputWorker(Fd pipe, Fd stop, std::function<void(Bytes)> push);
  void loop();
  void drain() EXCLUDES(mutex_);

  const Fd pipe_;  // The reading end; does not block.
  const Fd stop_;
  std::function<void(Bytes)> push_;
  Mutex mutex_;  // Held from reading text to having pushed it, so that it stays in order.
  std::thread thread_;
};

// Takes the place of stdio's stderr, where drivers tell of assertions, before the call that finds
// the error returns. The descriptor stays: our log and what sanitizers say are not for clients.
class ErrorOutput {
 public:
  // `push` gets whole lines, on whatever thread the driver prints.
  explicit ErrorOutput(std::function<void(Bytes)> push);
  ~ErrorOutput();
  ErrorOutput(const ErrorOutput&) = delete;
  ErrorOutput& operator=(const ErrorOutput&) = delete;

 private:
  static ssize_t take(void* self, const char* text, std::size_t size);

  const std::function<void(Bytes)> push_;
  std::FILE* const before_;
  std::FILE* file_ = nullptr;
};

}  // namespace flyt::server
