// Memory and processes: what NVML tells of CUDA programs on the same machine.
#include <array>
#include <vector>

#include "tests/kill/child.h"
#include "tests/nvml/library.h"

namespace flyt::tests {
namespace {

constexpr std::uint64_t kMebibytes = 64;
constexpr double kSeconds = 60;

class Processes : public NvmlTest {
 protected:
  void SetUp() override {
    NvmlTest::SetUp();
    init();
  }

  std::vector<nvmlProcessInfo_t> list(unsigned int index) {
    std::vector<nvmlProcessInfo_t> found(16);
    auto count = static_cast<unsigned int>(found.size());
    EXPECT_EQ(nvml().nvmlDeviceGetComputeRunningProcesses_v3(device(index), &count, found.data()),
              NVML_SUCCESS);
    found.resize(count);
    return found;
  }

  std::uint64_t used(unsigned int index) {
    nvmlMemory_t memory{};
    EXPECT_EQ(nvml().nvmlDeviceGetMemoryInfo(device(index), &memory), NVML_SUCCESS);
    EXPECT_EQ(memory.total, memory.free + memory.used);
    return memory.used;
  }
};

TEST_P(Processes, AreThoseThatUseTheGpuUnderTheirOwnNumbers) {
  EXPECT_TRUE(list(1).empty());
  EXPECT_EQ(used(1), 0U);
  kill::Child cuda("allocate", kMebibytes, server_.url());
  ASSERT_TRUE(cuda.wrote("ready\n", kSeconds)) << server_.log();
  const auto found = list(1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].pid, static_cast<unsigned int>(cuda.pid()));
  EXPECT_GE(found[0].usedGpuMemory, kMebibytes << 20);
  EXPECT_GE(used(1), kMebibytes << 20);
  EXPECT_TRUE(list(0).empty());
  EXPECT_EQ(used(0), 0U);
  cuda.close_stdin();
  EXPECT_EQ(cuda.wait(kSeconds), 0);
  EXPECT_TRUE(eventually(kSeconds, [&] { return list(1).empty() && used(1) == 0; }));
}

// However they came to it.
TEST_P(Processes, HaveAllMemoryThatTheyTook) {
  constexpr std::uint64_t kBytes = kMebibytes << 20;
  for (const char* job : {"array", "graph"}) {
    kill::Child cuda(job, kMebibytes, server_.url());
    ASSERT_TRUE(cuda.wrote("ready\n", kSeconds)) << job << server_.log();
    EXPECT_GE(used(1), kBytes) << job;
    EXPECT_LT(used(1), 2 * kBytes) << job;
    cuda.close_stdin();
    EXPECT_EQ(cuda.wait(kSeconds), 0);
    EXPECT_TRUE(eventually(kSeconds, [&] { return used(1) == 0; })) << job;
  }
  kill::Child cuda("trimmed", kMebibytes, server_.url());
  ASSERT_TRUE(cuda.wrote("ready\n", kSeconds)) << server_.log();
  EXPECT_LT(used(1), kBytes);
}

TEST_P(Processes, ThatAreKilledDisappear) {
  kill::Child cuda("allocate", 1, server_.url());
  ASSERT_TRUE(cuda.wrote("ready\n", kSeconds)) << server_.log();
  EXPECT_EQ(list(1).size(), 1U);
  cuda.kill();
  EXPECT_TRUE(eventually(kSeconds, [&] { return list(1).empty(); }));
}

TEST_P(Processes, AreCountedInTwoCalls) {
  kill::Child first("allocate", 0, server_.url());
  kill::Child second("allocate", 1, server_.url());
  ASSERT_TRUE(first.wrote("ready\n", kSeconds)) << server_.log();
  ASSERT_TRUE(second.wrote("ready\n", kSeconds)) << server_.log();
  unsigned int count = 0;
  EXPECT_EQ(nvml().nvmlDeviceGetComputeRunningProcesses(device(1), &count, nullptr),
            NVML_ERROR_INSUFFICIENT_SIZE);
  ASSERT_EQ(count, 2U);
  std::array<nvmlProcessInfo_v1_t, 3> infos{};
  infos[2].pid = 77;
  EXPECT_EQ(nvml().nvmlDeviceGetComputeRunningProcesses(device(1), &count, infos.data()),
            NVML_SUCCESS);
  EXPECT_EQ(count, 2U);
  EXPECT_NE(infos[0].pid, infos[1].pid);
  EXPECT_EQ(infos[2].pid, 77U);
  std::array<nvmlProcessInfo_v2_t, 2> second_version{};
  EXPECT_EQ(
      nvml().nvmlDeviceGetComputeRunningProcesses_v2(device(1), &count, second_version.data()),
      NVML_SUCCESS);
  EXPECT_EQ(second_version[1].gpuInstanceId, ~0U);
  EXPECT_EQ(nvml().nvmlDeviceGetComputeRunningProcesses_v3(device(1), &count, nullptr),
            NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvml().nvmlDeviceGetGraphicsRunningProcesses_v3(device(1), &count, nullptr),
            NVML_ERROR_INVALID_ARGUMENT);
  count = 0;
  EXPECT_EQ(nvml().nvmlDeviceGetGraphicsRunningProcesses_v3(device(1), &count, nullptr),
            NVML_SUCCESS);
  EXPECT_EQ(count, 0U);
}

TEST_P(Processes, ThatOnlyAskAreNotAmongThem) {
  kill::Child monitor("monitor", 0, server_.url());
  ASSERT_TRUE(monitor.wrote("ready\n", kSeconds)) << server_.log();
  EXPECT_TRUE(list(0).empty());
  EXPECT_TRUE(list(1).empty());
  EXPECT_EQ(server_.log().find("session started"), std::string::npos);
}

TEST_P(Processes, AreListedWithTheirNames) {
  kill::Child cuda("allocate", 1, server_.url());
  ASSERT_TRUE(cuda.wrote("ready\n", kSeconds)) << server_.log();
  char name[64] = "";
  const auto pid = static_cast<unsigned int>(cuda.pid());
  EXPECT_EQ(nvml().nvmlSystemGetProcessName(pid, name, sizeof name), NVML_SUCCESS);
  EXPECT_STREQ(name, "flyt_kill");
  EXPECT_EQ(nvml().nvmlSystemGetProcessName(pid, name, 5), NVML_SUCCESS);
  EXPECT_STREQ(name, "flyt");
  EXPECT_EQ(nvml().nvmlSystemGetProcessName(~0U, name, sizeof name), NVML_ERROR_NOT_FOUND);
}

// What nvidia-smi calls by its place in a table.
TEST_P(Processes, AreInTheTableWithoutNames) {
  struct Entry {
    nvmlProcessInfo_t info;
    unsigned long long protected_memory;
    char name[4096];
  };
  using Get = nvmlReturn_t (*)(const void**, const void*);
  using List = nvmlReturn_t (*)(nvmlDevice_t, unsigned int*, Entry*);
  const auto get = reinterpret_cast<Get>(nvml_export("nvmlInternalGetExportTable"));
  constexpr std::array<unsigned char, 16> kId = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                                 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
  const void* table = nullptr;
  ASSERT_EQ(get(&table, kId.data()), NVML_SUCCESS);
  const auto* entries = static_cast<void* const*>(table);
  const auto list = reinterpret_cast<List>(entries[213]);
  kill::Child cuda("allocate", 1, server_.url());
  ASSERT_TRUE(cuda.wrote("ready\n", kSeconds)) << server_.log();
  std::vector<Entry> found(4);
  unsigned int count = 4;
  ASSERT_EQ(list(device(1), &count, found.data()), NVML_SUCCESS);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(found[0].info.pid, static_cast<unsigned int>(cuda.pid()));
  EXPECT_STREQ(found[0].name, "flyt_kill");
  const std::array<unsigned char, 16> unknown{};
  EXPECT_EQ(get(&table, unknown.data()), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(get(nullptr, kId.data()), NVML_ERROR_INVALID_ARGUMENT);
}

INSTANTIATE_TEST_SUITE_P(Over, Processes, testing::Values("unix", "tcp"),
                         [](const auto& info) { return info.param; });

// Who comes another way is another machine: it has other process numbers.
TEST(OtherMachines, DoNotSeeEachOther) {
  ServerProcess server;
  ::setenv("FLYT_SOFTGPU_DEVICES", "2", 1);
  ASSERT_TRUE(
      server.start({.program = server_program(), .arguments = {"--listen", "tcp://127.0.0.1:0"}})
          .ok());
  ASSERT_TRUE(server.logged("tcp://127.0.0.1:", kSeconds)) << server.log();
  const std::string log = server.log();
  const std::size_t at = log.find("tcp://");
  const std::string tcp = log.substr(at, log.find_first_of("\" \n", at) - at);
  kill::Child cuda("allocate", 1, tcp);
  ASSERT_TRUE(cuda.wrote("ready\n", kSeconds)) << server.log();
  for (const std::string& url : {tcp, server.url()}) {
    ::setenv("FLYT_SERVER", url.c_str(), 1);
    ASSERT_EQ(nvml().nvmlInit_v2(), NVML_SUCCESS);
    nvmlDevice_t device = nullptr;
    ASSERT_EQ(nvml().nvmlDeviceGetHandleByIndex_v2(1, &device), NVML_SUCCESS);
    std::array<nvmlProcessInfo_t, 4> found{};
    unsigned int count = 4;
    EXPECT_EQ(nvml().nvmlDeviceGetComputeRunningProcesses_v3(device, &count, found.data()),
              NVML_SUCCESS);
    EXPECT_EQ(count, url == tcp ? 1U : 0U) << url;
    EXPECT_EQ(nvml().nvmlShutdown(), NVML_SUCCESS);
  }
}

}  // namespace
}  // namespace flyt::tests
