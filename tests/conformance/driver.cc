#include "tests/conformance/driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <ostream>

namespace flyt::conformance {
namespace {

thread_local int unrecorded_depth = 0;

int transcript_fd() {
  static const int fd = [] {
    const char* path = std::getenv("FLYT_CONFORMANCE_TRANSCRIPT");
    return path ? ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
  }();
  return fd;
}

// Threads are numbered within the running test, in the order of their first recorded call.
int thread_number(const std::string& test) {
  static std::mutex mutex;
  static std::size_t running = 0;
  static int next = 0;
  thread_local std::size_t mine_for = 0;
  thread_local int mine = 0;
  const std::size_t hash = std::hash<std::string>{}(test);
  if (mine_for == hash) return mine;
  const std::lock_guard lock(mutex);
  if (running != hash) next = 0;
  running = mine_for = hash;
  mine = next++;
  return mine;
}

Driver load() {
  const char* path = std::getenv("FLYT_CONFORMANCE_LIBRARY");
  Driver driver;
  driver.library = path ? ::dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (driver.library == nullptr) {
    const char* reason = path ? ::dlerror() : "no --library PATH given";
    std::fprintf(stderr, "flyt_conformance: %s\n", reason);
    ::_exit(2);
  }
#define FLYT_CALL(name) driver.name.bind(::dlsym(driver.library, #name));
#include "tests/conformance/calls.inc"
#undef FLYT_CALL
  return driver;
}

void write_line(const std::string& call, const std::string& result) {
  if (unrecorded_depth > 0 || transcript_fd() < 0) return;
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string line = test ? std::string(test->test_suite_name()) + "." + test->name() : "-";
  line += " " + std::to_string(thread_number(line)) + " " + call + " " + result + "\n";
  if (::write(transcript_fd(), line.data(), line.size()) < 0) ::_exit(3);
}

}  // namespace

void record(const char* call, CUresult result) { write_line(call, name_of(result)); }

void record_end(const std::string& call) { write_line(call, "CRASHED"); }

Unrecorded::Unrecorded() { ++unrecorded_depth; }
Unrecorded::~Unrecorded() { --unrecorded_depth; }

const Driver& cu() {
  static const Driver driver = load();
  return driver;
}

}  // namespace flyt::conformance

void PrintTo(CUresult result, std::ostream* out) { *out << flyt::conformance::name_of(result); }
