// Driver: the CUDA driver under test, loaded by path; every call and its result can be recorded.
#pragma once

#include <iosfwd>
#include <string>

#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::conformance {

// Appends one "test thread call result" line to the transcript, if one is being written.
void record(const char* call, CUresult result);

// The same of a call in which a driver died or hung: "CRASHED".
void record_end(const std::string& call);

// While one is alive, this thread's calls are not recorded: polling and set-up may differ from
// driver to driver without being a difference.
class Unrecorded {
 public:
  Unrecorded();
  ~Unrecorded();
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;
};

// One exported function. Safe from any thread once bound.
template <class Pointer>
class Call;

template <class... Args>
class Call<CUresult (*)(Args...)> {
 public:
  explicit Call(const char* name) : name_(name) {}

  CUresult operator()(Args... args) const {
    const CUresult result =
        function_ ? function_(args...) : CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
    record(name_, result);
    return result;
  }
  const char* name() const { return name_; }
  bool present() const { return function_ != nullptr; }
  void bind(void* symbol) { function_ = reinterpret_cast<CUresult (*)(Args...)>(symbol); }

 private:
  const char* name_;
  CUresult (*function_)(Args...) = nullptr;
};

struct Driver {
#define FLYT_CALL(name) Call<decltype(driver::Table::name)> name{#name};
#include "tests/conformance/calls.inc"
#undef FLYT_CALL

  // The library as dlopen gave it, for symbols that are asked for by name.
  void* library = nullptr;
};

// The driver of this process, loaded at the first use from the path in FLYT_CONFORMANCE_LIBRARY;
// ends the process with a message when it cannot be loaded.
const Driver& cu();

// "CUDA_ERROR_INVALID_VALUE" and the like, from our own list: independent of the driver under test.
std::string name_of(CUresult result);

}  // namespace flyt::conformance

// Lets gtest print results by name; found by argument-dependent lookup.
void PrintTo(CUresult result, std::ostream* out);
