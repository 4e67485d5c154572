// OwnLinks: the linker as a program uses it, step by step.
#pragma once

#include <string>

#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::tests {

// Answers are CUresults in words, or what went wrong.
class OwnLinks {
 public:
  explicit OwnLinks(const driver::Table& cu) : cu_(cu) {}
  OwnLinks(const OwnLinks&) = delete;
  OwnLinks& operator=(const OwnLinks&) = delete;

  std::string answer(const std::string& what);

 private:
  CUresult begin();
  CUresult add(const char* ptx);
  CUresult complete();
  // What was linked computes what it should.
  std::string run();

  const driver::Table& cu_;
  CUlinkState link_ = nullptr;
  CUmodule module_ = nullptr;
};

}  // namespace flyt::tests
