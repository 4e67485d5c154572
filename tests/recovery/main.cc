// The program of the recovery tests: they themselves, or a client of theirs.
#include <gtest/gtest.h>

#include <string>

#include "tests/recovery/survivor.h"
#include "tests/recovery/taken_places.h"

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--client") {
    flyt::tests::take_places(argv[2]);
    return flyt::tests::run_survivor(argv[2], std::stoull(argv[3]));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
