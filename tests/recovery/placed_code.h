// PlacedCode: code whose variables a program reaches by the addresses that it was told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::tests {

// Answers are "ok", or what went wrong.
class PlacedCode {
 public:
  explicit PlacedCode(const driver::Table& cu) : cu_(cu) {}
  PlacedCode(const PlacedCode&) = delete;
  PlacedCode& operator=(const PlacedCode&) = delete;

  std::string answer(const std::string& what, std::size_t bytes);

 private:
  struct Variable {
    CUmodule module = nullptr;
    CUlibrary library = nullptr;  // In place of a module.
    CUfunction bump = nullptr;
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    std::uint64_t count = 0;
  };
  // A variable of so many bytes, at least 8.
  CUresult load(std::size_t bytes, bool as_library);
  CUresult load_constant();
  // In a context of its own.
  CUresult load_elsewhere(std::size_t bytes);
  // Where it is, in the current context.
  CUresult learn(Variable& variable) const;
  // Adds one to the last word of each: a kernel that is given the address, and reads by name.
  CUresult use();
  CUresult bump(Variable& variable);

  const driver::Table& cu_;
  std::vector<Variable> variables_;
};

}  // namespace flyt::tests
