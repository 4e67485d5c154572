#include "tests/conformance/lists.h"

#include <fstream>

namespace flyt::conformance {
namespace {

Status read_list(const std::string& path, Expectation::Kind kind, Expectations& into) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t space = line.find(' ');
    const std::size_t reason = line.find_first_not_of(' ', space);
    if (space == std::string::npos || reason == std::string::npos) {
      return Error{ErrorCode::kInvalid, path + ": no reason given: " + line};
    }
    const std::string test = line.substr(0, space);
    const Expectation expectation{kind, line.substr(reason)};
    if (test.ends_with(".*") && expectation.runnable()) {
      return Error{ErrorCode::kInvalid, path + ": only tests that crash or hang together: " + line};
    }
    if (!into.emplace(test, expectation).second) {
      return Error{ErrorCode::kInvalid, path + ": listed twice: " + test};
    }
  }
  return {};
}

}  // namespace

bool Expectation::runnable() const {
  return !reason.starts_with("crashes:") && !reason.starts_with("hangs:");
}

const Expectation* expected(const Expectations& lists, const std::string& test) {
  auto found = lists.find(test);
  if (found == lists.end()) found = lists.find(test.substr(0, test.find('.')) + ".*");
  return found == lists.end() ? nullptr : &found->second;
}

Result<Expectations> read_lists(const std::string& directory, const std::string& driver) {
  Expectations lists;
  if (directory.empty()) return lists;
  const std::string stem = directory + "/" + driver;
  if (auto read = read_list(stem + ".never", Expectation::Kind::kNever, lists); !read) {
    return read.error();
  }
  if (auto read = read_list(stem + ".not_yet", Expectation::Kind::kNotYet, lists); !read) {
    return read.error();
  }
  return lists;
}

}  // namespace flyt::conformance
