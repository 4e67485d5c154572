// Child: a client process of the kill tests and the pipes to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/fd.h"

namespace flyt::kill {

// Killed and reaped at destruction.
class Child {
 public:
  // Starts this program as "--client JOB SEED" with FLYT_SERVER=url.
  Child(const std::string& job, std::uint64_t seed, const std::string& url);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // Reads until what was written holds `text`, the writer is gone or `seconds` have passed.
  bool wrote(const std::string& text, double seconds);
  // Reads until `count` bytes have been written.
  bool wrote_bytes(std::size_t count, double seconds);
  const std::string& output() const { return output_; }
  // Writes a line to it and takes the line that it answers with; empty if none comes in time.
  std::string ask(const std::string& line, double seconds);
  void close_stdin() { to_.close(); }
  void kill();
  // The exit status, minus the signal, or -1000 if it has not ended in time.
  int wait(double seconds);

 private:
  bool read_some(double seconds);

  pid_t pid_ = -1;
  Fd to_;
  Fd from_;
  std::string output_;
};

}  // namespace flyt::kill
