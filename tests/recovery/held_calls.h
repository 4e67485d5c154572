// HeldCalls: calls that stand still on their way, at a page of the program's, until they may go on.
#pragma once

#include <cstddef>
#include <string>
#include <thread>

#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::tests {

// One call at a time. Answers are CUresults in words.
class HeldCalls {
 public:
  explicit HeldCalls(const driver::Table& cu) : cu_(cu) {}
  HeldCalls(const HeldCalls&) = delete;
  HeldCalls& operator=(const HeldCalls&) = delete;

  // To memory of the host by way of shared memory, held when half of it is there.
  std::string copy();
  // Loads a module, and is held when it is loaded and the caller does not know it yet.
  std::string load();
  // Lets the call go on: what it returns; of a module, what launching a function of it does.
  std::string end();

 private:
  // Starts the call, and waits until it comes to the page.
  template <class Call>
  void hold(std::byte* page, Call call);
  CUresult load_module(std::byte* page);

  const driver::Table& cu_;
  std::thread thread_;
  CUresult result_ = CUDA_SUCCESS;
};

}  // namespace flyt::tests
