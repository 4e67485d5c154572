// Which GPUs NVML shows, and what it says of them.
#include <cstring>
#include <vector>

#include "tests/kill/child.h"
#include "tests/nvml/cuda_client.h"
#include "tests/nvml/library.h"

namespace flyt::tests {
namespace {

class Devices : public NvmlTest {
 protected:
  void SetUp() override {
    NvmlTest::SetUp();
    init();
  }
};

std::string text_of(nvmlReturn_t (*call)(nvmlDevice_t, char*, unsigned int), nvmlDevice_t device) {
  char text[128] = "";
  EXPECT_EQ(call(device, text, sizeof text), NVML_SUCCESS);
  return text;
}

TEST_P(Devices, AreThoseThatCudaShows) {
  kill::Child cuda("describe", 0, server_.url());
  ASSERT_TRUE(cuda.wrote("end\n", 60)) << cuda.output();
  unsigned int count = 0;
  ASSERT_EQ(nvml().nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
  EXPECT_EQ(count, 2U);
  std::string lines;
  for (unsigned int i = 0; i < count; ++i) {
    nvmlPciInfo_t pci{};
    nvmlMemory_t memory{};
    int major = 0;
    int minor = 0;
    EXPECT_EQ(nvml().nvmlDeviceGetPciInfo_v3(device(i), &pci), NVML_SUCCESS);
    EXPECT_EQ(nvml().nvmlDeviceGetMemoryInfo(device(i), &memory), NVML_SUCCESS);
    EXPECT_EQ(nvml().nvmlDeviceGetCudaComputeCapability(device(i), &major, &minor), NVML_SUCCESS);
    lines += describe_line(text_of(nvml().nvmlDeviceGetName, device(i)),
                           text_of(nvml().nvmlDeviceGetUUID, device(i)), pci.busIdLegacy,
                           memory.total, major, minor) +
             "\n";
  }
  EXPECT_EQ(cuda.output(), lines + "end\n");
}

TEST_P(Devices, AreWholeGpus) {
  unsigned int current = 7;
  unsigned int pending = 7;
  EXPECT_EQ(nvml().nvmlDeviceGetMigMode(device(0), &current, &pending), NVML_SUCCESS);
  EXPECT_EQ(current, 0U);
  EXPECT_EQ(pending, 0U);
  EXPECT_EQ(nvml().nvmlDeviceGetMigMode(device(0), &current, nullptr), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_P(Devices, HaveEventSetsThatStayQuiet) {
  nvmlEventSet_t set = nullptr;
  ASSERT_EQ(nvml().nvmlEventSetCreate(&set), NVML_SUCCESS);
  unsigned long long types = 1;
  EXPECT_EQ(nvml().nvmlDeviceGetSupportedEventTypes(device(0), &types), NVML_SUCCESS);
  EXPECT_EQ(types, 0U);
  EXPECT_EQ(nvml().nvmlDeviceRegisterEvents(device(0), 8, set), NVML_ERROR_NOT_SUPPORTED);
  nvmlEventData_t data{};
  EXPECT_EQ(nvml().nvmlEventSetWait_v2(set, &data, 1), NVML_ERROR_TIMEOUT);
  EXPECT_EQ(nvml().nvmlEventSetWait(set, nullptr, 1), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvml().nvmlEventSetFree(set), NVML_SUCCESS);
  EXPECT_EQ(nvml().nvmlEventSetFree(set), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvml().nvmlEventSetWait_v2(set, &data, 1), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_P(Devices, AreFoundByIndexUuidAndPciAddress) {
  for (unsigned int i = 0; i < 2; ++i) {
    unsigned int index = 7;
    nvmlDevice_t found = nullptr;
    nvmlPciInfo_t pci{};
    const std::string uuid = text_of(nvml().nvmlDeviceGetUUID, device(i));
    EXPECT_EQ(nvml().nvmlDeviceGetIndex(device(i), &index), NVML_SUCCESS);
    EXPECT_EQ(index, i);
    EXPECT_EQ(nvml().nvmlDeviceGetHandleByUUID(uuid.c_str(), &found), NVML_SUCCESS);
    EXPECT_EQ(found, device(i));
    ASSERT_EQ(nvml().nvmlDeviceGetPciInfo_v3(device(i), &pci), NVML_SUCCESS);
    for (const char* text : {pci.busId, pci.busIdLegacy}) {
      EXPECT_EQ(nvml().nvmlDeviceGetHandleByPciBusId_v2(text, &found), NVML_SUCCESS) << text;
      EXPECT_EQ(found, device(i));
    }
    nvmlUUID_t struct_uuid{.version = sizeof(nvmlUUID_t) | 1U << 24, .type = 1, .value = {}};
    std::memcpy(struct_uuid.value.str, uuid.c_str(), uuid.size() + 1);
    EXPECT_EQ(nvml().nvmlDeviceGetHandleByUUIDV(&struct_uuid, &found), NVML_SUCCESS);
    EXPECT_EQ(found, device(i));
  }
}

TEST_P(Devices, WriteNoMoreOfAPciAddressThanItsVersionKnows) {
  constexpr char kUntouched = 0x5a;
  const struct {
    nvmlReturn_t (*call)(nvmlDevice_t, nvmlPciInfo_t*);
    std::size_t bytes;
  } versions[] = {{nvml().nvmlDeviceGetPciInfo, 32},
                  {nvml().nvmlDeviceGetPciInfo_v2, 36},
                  {nvml().nvmlDeviceGetPciInfo_v3, sizeof(nvmlPciInfo_t)}};
  nvmlPciInfo_t whole{};
  ASSERT_EQ(nvml().nvmlDeviceGetPciInfo_v3(device(1), &whole), NVML_SUCCESS);
  for (const auto& version : versions) {
    nvmlPciInfo_t pci;
    std::memset(&pci, kUntouched, sizeof pci);
    ASSERT_EQ(version.call(device(1), &pci), NVML_SUCCESS);
    EXPECT_EQ(std::memcmp(&pci, &whole, version.bytes), 0) << version.bytes;
    char bytes[sizeof pci];
    std::memcpy(bytes, &pci, sizeof pci);
    for (std::size_t i = version.bytes; i < sizeof pci; ++i) {
      EXPECT_EQ(bytes[i], kUntouched) << "byte " << i << " of " << version.bytes;
    }
  }
}

TEST_P(Devices, ThatAreNotThereAreNotFound) {
  nvmlDevice_t found = nullptr;
  EXPECT_EQ(nvml().nvmlDeviceGetHandleByIndex_v2(2, &found), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvml().nvmlDeviceGetHandleByIndex_v2(0, nullptr), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvml().nvmlDeviceGetHandleByUUID("GPU-none", &found), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(nvml().nvmlDeviceGetHandleByUUID(nullptr, &found), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvml().nvmlDeviceGetHandleByPciBusId_v2("0000:ff:1f.0", &found), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(nvml().nvmlDeviceGetHandleByPciBusId_v2("nonsense", &found),
            NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(found, nullptr);
}

TEST_P(Devices, AreNoOtherPointers) {
  int value = 0;
  unsigned int temperature = 0;
  char name[96];
  const auto forged = static_cast<nvmlDevice_t>(static_cast<void*>(&value));
  for (const nvmlDevice_t bad : {forged, nvmlDevice_t{}}) {
    EXPECT_EQ(nvml().nvmlDeviceGetName(bad, name, sizeof name), NVML_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(nvml().nvmlDeviceGetTemperature(bad, NVML_TEMPERATURE_GPU, &temperature),
              NVML_ERROR_INVALID_ARGUMENT);
  }
}

TEST_P(Devices, SayHowMuchSpaceATextNeeds) {
  const std::string name = text_of(nvml().nvmlDeviceGetName, device(0));
  char text[96];
  const auto size = static_cast<unsigned int>(name.size());
  EXPECT_EQ(nvml().nvmlDeviceGetName(device(0), text, size), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(nvml().nvmlDeviceGetName(device(0), text, size + 1), NVML_SUCCESS);
  EXPECT_EQ(text, name);
  EXPECT_EQ(nvml().nvmlDeviceGetName(device(0), nullptr, 96), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvml().nvmlDeviceGetUUID(device(0), text, 40), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(nvml().nvmlDeviceGetUUID(device(0), text, 41), NVML_SUCCESS);
}

TEST_P(Devices, CheckTheVersionOfAStruct) {
  nvmlMemory_v2_t memory{.version = sizeof(nvmlMemory_v2_t) | 2U << 24};
  EXPECT_EQ(nvml().nvmlDeviceGetMemoryInfo_v2(device(0), &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.total, memory.free + memory.used + memory.reserved);
  memory.version = sizeof(nvmlMemory_v2_t) | 1U << 24;
  EXPECT_EQ(nvml().nvmlDeviceGetMemoryInfo_v2(device(0), &memory),
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  nvmlTemperature_t temperature{};
  EXPECT_EQ(nvml().nvmlDeviceGetTemperatureV(device(0), &temperature),
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  nvmlPciInfoExt_t pci{.version = sizeof(nvmlPciInfoExt_t) | 1U << 24};
  EXPECT_EQ(nvml().nvmlDeviceGetPciInfoExt(device(1), &pci), NVML_SUCCESS);
  EXPECT_EQ(pci.version, sizeof(nvmlPciInfoExt_t) | 1U << 24);
}

TEST_P(Devices, HaveNoSensorsIfTheyAreSoftware) {
  unsigned int value = 0;
  char text[96];
  EXPECT_EQ(nvml().nvmlDeviceGetPowerUsage(device(0), &value), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvml().nvmlDeviceGetTemperature(device(0), NVML_TEMPERATURE_GPU, &value),
            NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvml().nvmlDeviceGetClockInfo(device(0), NVML_CLOCK_SM, &value),
            NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvml().nvmlDeviceGetSerial(device(0), text, sizeof text), NVML_ERROR_NOT_SUPPORTED);
  unsigned int count = 0;
  EXPECT_EQ(nvml().nvmlDeviceGetSupportedMemoryClocks(device(0), &count, nullptr),
            NVML_ERROR_NOT_SUPPORTED);
  nvmlFieldValue_t field{.fieldId = 186};
  EXPECT_EQ(nvml().nvmlDeviceGetFieldValues(device(0), 1, &field), NVML_SUCCESS);
  EXPECT_EQ(field.fieldId, 186U);
  EXPECT_EQ(field.nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
  nvmlUtilization_t utilization{.gpu = 5, .memory = 5};
  EXPECT_EQ(nvml().nvmlDeviceGetUtilizationRates(device(0), &utilization), NVML_SUCCESS);
  EXPECT_EQ(utilization.gpu, 0U);
}

TEST_P(Devices, AnswerMoreFieldsThanOneCommandCarries) {
  std::vector<nvmlFieldValue_t> fields(1500);
  for (std::size_t i = 0; i < fields.size(); ++i) fields[i].fieldId = static_cast<unsigned int>(i);
  EXPECT_EQ(nvml().nvmlDeviceGetFieldValues(device(1), 1500, fields.data()), NVML_SUCCESS);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    EXPECT_EQ(fields[i].fieldId, i);
    EXPECT_NE(fields[i].nvmlReturn, NVML_SUCCESS);
  }
  EXPECT_EQ(nvml().nvmlDeviceGetFieldValues(device(1), 0, fields.data()),
            NVML_ERROR_INVALID_ARGUMENT);
}

TEST_P(Devices, SayHowTheyReachEachOther) {
  const auto status = [&](unsigned int from, unsigned int to, nvmlGpuP2PCapsIndex_t what) {
    auto answer = NVML_P2P_STATUS_UNKNOWN;
    EXPECT_EQ(nvml().nvmlDeviceGetP2PStatus(device(from), device(to), what, &answer), NVML_SUCCESS);
    return answer;
  };
  // As CUDA has it: tests of peers run on the same GPUs.
  EXPECT_EQ(status(0, 1, NVML_P2P_CAPS_INDEX_READ), NVML_P2P_STATUS_OK);
  EXPECT_EQ(status(1, 0, NVML_P2P_CAPS_INDEX_WRITE), NVML_P2P_STATUS_OK);
  EXPECT_EQ(status(0, 1, NVML_P2P_CAPS_INDEX_NVLINK), NVML_P2P_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status(0, 0, NVML_P2P_CAPS_INDEX_READ), NVML_P2P_STATUS_NOT_SUPPORTED);
  auto answer = NVML_P2P_STATUS_OK;
  EXPECT_EQ(
      nvml().nvmlDeviceGetP2PStatus(device(0), device(1), NVML_P2P_CAPS_INDEX_UNKNOWN, &answer),
      NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvml().nvmlDeviceGetP2PStatus(device(0), device(1), NVML_P2P_CAPS_INDEX_READ, nullptr),
            NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvml().nvmlDeviceGetP2PStatus(device(0), nullptr, NVML_P2P_CAPS_INDEX_READ, &answer),
            NVML_ERROR_INVALID_ARGUMENT);
}

TEST_P(Devices, AreInOneMachine) {
  auto level = NVML_TOPOLOGY_NODE;
  EXPECT_EQ(nvml().nvmlDeviceGetTopologyCommonAncestor(device(0), device(1), &level), NVML_SUCCESS);
  EXPECT_EQ(level, NVML_TOPOLOGY_SYSTEM);
  unsigned int count = 0;
  EXPECT_EQ(
      nvml().nvmlDeviceGetTopologyNearestGpus(device(0), NVML_TOPOLOGY_SYSTEM, &count, nullptr),
      NVML_SUCCESS);
  ASSERT_EQ(count, 1U);
  nvmlDevice_t near[2] = {};
  count = 2;
  EXPECT_EQ(nvml().nvmlDeviceGetTopologyNearestGpus(device(0), NVML_TOPOLOGY_SYSTEM, &count, near),
            NVML_SUCCESS);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(near[0], device(1));
  EXPECT_EQ(near[1], nullptr);
  count = 2;
  EXPECT_EQ(nvml().nvmlDeviceGetTopologyNearestGpus(device(0), NVML_TOPOLOGY_SINGLE, &count, near),
            NVML_SUCCESS);
  EXPECT_EQ(count, 0U);
  EXPECT_EQ(nvml().nvmlDeviceGetTopologyNearestGpus(device(0), NVML_TOPOLOGY_SYSTEM, nullptr, near),
            NVML_ERROR_INVALID_ARGUMENT);
}

TEST_P(Devices, MayNotBeChanged) {
  using Call = nvmlReturn_t (*)(nvmlDevice_t, unsigned int, unsigned int);
  for (const char* name : {"nvmlDeviceSetPersistenceMode", "nvmlDeviceSetComputeMode",
                           "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceSetPowerManagementLimit",
                           "nvmlDeviceSetMigMode", "nvmlDeviceResetGpuLockedClocks"}) {
    const auto call = reinterpret_cast<Call>(nvml_export(name));
    ASSERT_NE(call, nullptr) << name;
    EXPECT_EQ(call(device(0), 0, 0), NVML_ERROR_NO_PERMISSION) << name;
  }
  const auto refused = reinterpret_cast<Call>(nvml_export("nvmlDeviceGetGpuInstances"));
  EXPECT_EQ(refused(device(0), 0, 0), NVML_ERROR_NOT_SUPPORTED);
}

INSTANTIATE_TEST_SUITE_P(Over, Devices, testing::Values("unix", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace flyt::tests
