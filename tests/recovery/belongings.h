// Belongings: what a program may have beside memory, streams and code of its own.
#pragma once

#include <cstddef>
#include <string>

#include "driver/table.h"
#include "tests/recovery/own_images.h"
#include "tests/recovery/own_links.h"
#include "tests/recovery/own_reach.h"

namespace flyt::tests {

class Belongings {
 public:
  explicit Belongings(const driver::Table& cu) : images_(cu), links_(cu), reach_(cu) {}

  static bool knows(const std::string& what) {
    return what.starts_with("image-") || what.starts_with("link-") || what.starts_with("reach-");
  }
  std::string answer(const std::string& what, std::size_t number) {
    if (what.starts_with("image-")) return images_.answer(what.substr(6), number);
    if (what.starts_with("link-")) return links_.answer(what.substr(5));
    return reach_.answer(what.substr(6));
  }

 private:
  OwnImages images_;
  OwnLinks links_;
  OwnReach reach_;
};

}  // namespace flyt::tests
