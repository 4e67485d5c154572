// What tests of green contexts stand on: groups of multiprocessors, owned green contexts, and a
// kernel that tells where its blocks ran.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "tests/conformance/fixture.h"

namespace flyt::conformance {

// All multiprocessors of device 0.
CUdevResource device_resource();
// The smallest groups that they split into; `rest`, if not null, what is left.
std::vector<CUdevResource> smallest_groups(CUdevResource* rest = nullptr);

// A green context of some groups, destroyed at the end of its scope.
class GreenContext {
 public:
  explicit GreenContext(std::vector<CUdevResource> groups);
  ~GreenContext();
  GreenContext(const GreenContext&) = delete;
  GreenContext& operator=(const GreenContext&) = delete;
  operator CUgreenCtx() const { return green_; }
  // What it converts to.
  CUcontext context() const { return context_; }
  CUresult destroy();

 private:
  CUgreenCtx green_ = nullptr;
  CUcontext context_ = nullptr;
};

// A stream of a green context, destroyed at the end of its scope.
class GreenStream {
 public:
  explicit GreenStream(CUgreenCtx green);
  ~GreenStream();
  GreenStream(const GreenStream&) = delete;
  GreenStream& operator=(const GreenStream&) = delete;
  operator CUstream() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

// The context is current in its scope.
class CurrentContext {
 public:
  explicit CurrentContext(CUcontext context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
};

// place(out): out[block] = %smid.
class Places {
 public:
  Places();
  // Runs `blocks` blocks in the stream and waits; the multiprocessors that they were on.
  std::set<std::uint32_t> of(CUstream stream, unsigned blocks = kBlocks) const;
  CUfunction function() const { return place_; }
  const DeviceMemory& memory() const { return out_; }
  std::set<std::uint32_t> seen(unsigned blocks) const;

  static constexpr unsigned kBlocks = 512;

 private:
  Module module_;
  CUfunction place_;
  DeviceMemory out_;
};

}  // namespace flyt::conformance
