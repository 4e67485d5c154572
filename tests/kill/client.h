// The clients of the kill tests: this program once more, with one of these jobs.
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

// Has threads with work in default streams of their own, which end when a call has failed. Prints
// "ready" first and then
//   lost result=R late_result=R ended_us=T
// and ends as programs do, with 0 unless a new thread's own stream was there all the same.
int run_deserted(const std::string& library, std::uint64_t seed);

// Exits while some threads have such streams, and others have ended; what exit() calls uses the
// main thread's. Prints "ok" if it could.
int run_leaving(const std::string& library, std::uint64_t seed);

// Prints the bytes of free device memory.
int run_info(const std::string& library);

}  // namespace flyt::kill
