// Tests of libnvidia-ml.so.1 against flyt-server over the software GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "tests/nvml/cuda_client.h"

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "--client") {
    return flyt::tests::run_client(argv[2], std::strtoull(argv[3], nullptr, 10));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
