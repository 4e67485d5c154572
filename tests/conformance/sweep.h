// The argument sweep: every call that is not refused is made with plausible arguments, and then
// with one after the other changed. Which results are right it does not say: they are recorded, so
// that a run through a server can be compared with a run without one.
#pragma once

#include <string>

namespace flyt::conformance {

// Makes a test of each call, if this run, or the process that started this worker, is a sweep.
void register_sweep();

// Makes this run a sweep against `driver`, and nothing else.
void sweep_only(const std::string& driver);

// The test's worker has died. True if the test is one of a sweep, and goes on behind the call that
// was its end when another worker is started for it.
bool goes_on_behind(const std::string& test);

}  // namespace flyt::conformance
