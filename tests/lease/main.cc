// Tests of leases against flyt-server over the software GPU.
#include <gtest/gtest.h>

#include <string_view>

#include "tests/lease/mover.h"
#include "tests/lease/tenant.h"

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[2]) == "mover") return flyt::tests::run_mover();
  if (argc == 4 && std::string_view(argv[1]) == "--client") return flyt::tests::run_tenant();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
