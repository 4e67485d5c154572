// What conformance tests stand on: an initialised driver, a current context, owned resources,
// waits with a deadline, and work that stays unfinished until a test lets it finish.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/conformance/driver.h"

// The call must succeed; otherwise the test ends here.
#define CU_OK(call) ASSERT_EQ(CUDA_SUCCESS, (call))
// The call must give this very result.
#define CU_IS(expected, call) EXPECT_EQ((expected), (call))

namespace flyt::conformance {

// Longest time that anything in a test may take before the test has failed.
inline constexpr int kDeadlineSeconds = 60;

// Calls `done` until it says true; false when the deadline passes. Nothing in it is recorded.
bool eventually(const std::function<bool()>& done);

// Tests that need an initialised driver and look after contexts themselves. Each starts and ends
// without a current context.
class DriverTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  CUdevice device = 0;
};

// Tests that run in the primary context of device 0, which stays retained for the whole process.
class ContextTest : public ::testing::Test {
 protected:
  void SetUp() override;
  CUdevice device = 0;
  CUcontext context = nullptr;
};

// How much device memory other processes of a GPU may take or give back during a test.
constexpr std::size_t kOthersMemory = 8u << 20;

// cuDeviceGetAttribute for device 0, unrecorded.
int attribute(CUdevice_attribute which);
// Whether there is a second device that reaches the memory of device 0, unrecorded.
bool has_peer();

// Device memory, freed at the end of its scope.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  operator CUdeviceptr() const { return address_; }
  std::size_t size() const { return size_; }
  void fill(std::uint8_t value) const;
  template <class T>
  std::vector<T> read() const {
    std::vector<T> values(size_ / sizeof(T));
    read_into(values.data(), values.size() * sizeof(T));
    return values;
  }
  template <class T>
  void write(const std::vector<T>& values) const {
    write_from(values.data(), values.size() * sizeof(T));
  }

 private:
  void read_into(void* out, std::size_t bytes) const;
  void write_from(const void* in, std::size_t bytes) const;

  CUdeviceptr address_ = 0;
  std::size_t size_ = 0;
};

// Page-locked memory of the program's own process.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes, unsigned flags = 0);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::uint8_t* bytes() const { return static_cast<std::uint8_t*>(memory_); }
  void* data() const { return memory_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_ = nullptr;
};

class Stream {
 public:
  explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING, int priority = 0);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator CUstream() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = 0);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator CUevent() const { return event_; }

 private:
  CUevent event_ = nullptr;
};

// A module from PTX text, unloaded at the end of its scope.
class Module {
 public:
  explicit Module(const std::string& ptx);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  operator CUmodule() const { return module_; }
  CUfunction function(const char* name) const;
  CUdeviceptr global(const char* name) const;

 private:
  CUmodule module_ = nullptr;
};

// Launches with the arguments in order, each by its own type. One-dimensional.
template <class... Args>
CUresult launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream,
                Args... args) {
  void* parameters[] = {&args..., nullptr};
  return cu().cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr);
}

// Work on a stream that stays unfinished until open(): a kernel of one thread that watches a word
// of device memory (and gives up by itself after a while, so that no test can wedge a device).
// The word is written by a copy on a stream of the gate's own. A driver gives its streams a few
// queues of the GPU in turn, and work in a queue waits for what is in front of it: only a stream of
// another priority is sure to have another queue than the stream that stands.
class Gate {
 public:
  Gate();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  // Everything issued to `stream` after this waits until open().
  void close(CUstream stream);
  void open();

 private:
  Module module_;
  CUfunction watch_;
  DeviceMemory word_;
  PinnedMemory one_;
  Stream own_;
};

}  // namespace flyt::conformance
