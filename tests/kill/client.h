// The clients of the kill tests: this program once more, with one of three jobs.
#pragma once

#include <cstdint>
#include <string>

namespace flyt::kill {

// Calls in endless random order, one '.' on stdout for each; ends only by being killed.
int run_busy(const std::string& library, std::uint64_t seed);

// Works and checks its results until its stdin ends; then "ok" and 0 if all were right.
int run_witness(const std::string& library, std::uint64_t seed);

// As busy, until a call fails; from then on every call of every kind must fail, quickly, and a
// thread that was waiting must have been told. Prints "ready" first and then
//   lost result=R calls=N slowest_us=T over_100ms=N waiter_result=R waiter_late_us=T
// and returns 0 only if no call succeeded after the first failure.
int run_bereaved(const std::string& library, std::uint64_t seed);

// Prints the bytes of free device memory.
int run_info(const std::string& library);

}  // namespace flyt::kill
