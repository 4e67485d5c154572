// Lists: which tests a driver never passes or does not pass yet, and why.
#pragma once

#include <map>
#include <string>

#include "base/result.h"

namespace flyt::conformance {

struct Expectation {
  enum class Kind { kNever, kNotYet };
  Kind kind;
  std::string reason;
  // A reason that begins with "crashes:" or "hangs:" keeps the test from being run at all.
  bool runnable() const;
};

using Expectations = std::map<std::string, Expectation>;

// What the lists say of a test; null: nothing.
const Expectation* expected(const Expectations& lists, const std::string& test);

// Reads DIRECTORY/DRIVER.never and DIRECTORY/DRIVER.not_yet: a line each "Suite.Test reason...", or
// "Suite.* crashes: reason..." for tests of which none shall be run;
// '#' begins a comment line. A missing file is an empty list; a line without a reason is refused.
Result<Expectations> read_lists(const std::string& directory, const std::string& driver);

}  // namespace flyt::conformance
