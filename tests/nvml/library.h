// Library: our libnvidia-ml.so.1 as a program loads it, and a server to ask.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "driver/nvml_table.h"
#include "tests/support/server_process.h"

namespace flyt::tests {

// Every described function. The library is loaded once and stays.
const driver::NvmlTable& nvml();
// An export by name, for those whose parameters are not described; null if there is none.
void* nvml_export(const char* name);

// Where a server listens, for tests that run over each transport.
std::string listen_at(const std::string& transport);

// A server of the software GPU with two GPUs, and FLYT_SERVER for this process.
class NvmlTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  void TearDown() override;

  // As nvmlInit_v2, or the test fails.
  void init();
  nvmlDevice_t device(unsigned int index);

  ServerProcess server_;
};

}  // namespace flyt::tests
