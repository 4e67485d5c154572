// OwnReach: memory of the host and of other devices that a program's kernels reach.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::tests {

// Answers are "ok", a CUresult in words, or what went wrong.
class OwnReach {
 public:
  explicit OwnReach(const driver::Table& cu) : cu_(cu) {}
  OwnReach(const OwnReach&) = delete;
  OwnReach& operator=(const OwnReach&) = delete;

  std::string answer(const std::string& what);

 private:
  static constexpr std::uint32_t kWords = 4096;

  CUresult make_managed();
  CUresult make_registered();
  CUresult make_pinned();
  // Of the second device, for kernels of the first one.
  CUresult make_peer();
  CUresult make_pool();
  CUresult make_mapped();
  CUresult close();
  CUresult end();

  // Adds one to each word, and nobody waits for that.
  CUresult launch();
  // The program writes other words into host memory.
  void write();
  // They are what they should be.
  std::string check();
  CUresult sync() { return cu_.cuCtxSynchronize(); }

  struct Place {
    std::uint32_t* host = nullptr;  // None: another device's.
    CUdeviceptr address = 0;
    std::vector<std::uint32_t> words;
  };
  void add(std::uint32_t* host, CUdeviceptr address);

  const driver::Table& cu_;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUcontext here_ = nullptr;
  CUcontext there_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  std::vector<Place> places_;
  std::vector<std::uint32_t> registered_;
  void* pinned_ = nullptr;
  std::uint32_t seed_ = 1;
};

}  // namespace flyt::tests
