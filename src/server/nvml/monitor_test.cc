// Monitor: what a client is told where NVIDIA's NVML is there, and what it must not do.
#include "server/nvml/monitor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "commands/context.h"
#include "commands/nvml_device.h"
#include "commands/nvml_link.h"
#include "commands/nvml_memory.h"
#include "commands/nvml_sensors.h"
#include "commands/nvml_system.h"
#include "rpc/testing/session.h"
#include "server/nvml/request.h"
#include "wire/hello.h"

namespace flyt::server::nvml {
namespace {

// Two GPUs as a driver tells of them.
Fleet sample_fleet() {
  Fleet fleet{.driver_kind = "nvidia", .cuda_version = 13000};
  for (std::uint8_t i = 0; i < 2; ++i) {
    flyt::nvml::Gpu gpu;
    gpu.name = "GPU of a test";
    gpu.uuid[15] = i;
    gpu.memory_bytes = 1ULL << 30;
    fleet.gpus.push_back(gpu);
  }
  using Reach = Fleet::Reach;
  fleet.reach = {Reach::kNot, Reach::kPlain, Reach::kAtomic, Reach::kNot};
  return fleet;
}

// An NVML of our own, which knows these GPUs by the last digit of their UUIDs.
nvmlDevice_t native_device(int digit) {
  return static_cast<nvmlDevice_t>(pointer_at(0x100U + digit));
}

driver::NvmlTable sample_nvml() {
  driver::NvmlTable table = driver::no_nvml();
  table.nvmlInit_v2 = [] { return NVML_SUCCESS; };
  table.nvmlDeviceGetHandleByUUID = [](const char* uuid, nvmlDevice_t* device) {
    *device = native_device(uuid[std::strlen(uuid) - 1] - '0');
    return NVML_SUCCESS;
  };
  table.nvmlSystemGetDriverVersion = [](char* text, unsigned int) {
    std::strcpy(text, "580.95.05");
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetPowerUsage = [](nvmlDevice_t device, unsigned int* power) {
    *power = device == native_device(1) ? 350000 : 0;
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetMemoryInfo_v2 = [](nvmlDevice_t, nvmlMemory_v2_t* memory) {
    if (memory->version != (sizeof *memory | 2U << 24)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *memory = {.version = memory->version, .total = 100, .reserved = 10, .free = 60, .used = 30};
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetFieldValues = [](nvmlDevice_t, int count, nvmlFieldValue_t* values) {
    for (int i = 0; i < count; ++i) values[i].value.ullVal = values[i].fieldId * 2ULL;
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetSupportedMemoryClocks = [](nvmlDevice_t, unsigned int* count,
                                                unsigned int* clocks) {
    *count = 2;
    clocks[0] = 3201;
    clocks[1] = 1593;
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetP2PStatus = [](nvmlDevice_t from, nvmlDevice_t to, nvmlGpuP2PCapsIndex_t what,
                                    nvmlGpuP2PStatus_t* status) {
    const bool good =
        from == native_device(0) && to == native_device(1) && what == NVML_P2P_CAPS_INDEX_NVLINK;
    *status = good ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED;
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetNvLinkState = [](nvmlDevice_t, unsigned int link, nvmlEnableState_t* state) {
    if (link >= 18) return NVML_ERROR_INVALID_ARGUMENT;
    *state = link == 4 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetNvLinkRemotePciInfo_v2 = [](nvmlDevice_t device, unsigned int link,
                                                 nvmlPciInfo_t* pci) {
    *pci = {.domain = 1, .bus = link, .device = device == native_device(1) ? 1U : 0U};
    std::strcpy(pci->busId, "00000001:04:01.0");
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetTopologyCommonAncestor = [](nvmlDevice_t, nvmlDevice_t,
                                                 nvmlGpuTopologyLevel_t* level) {
    *level = NVML_TOPOLOGY_NODE;
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetTopologyNearestGpus = [](nvmlDevice_t device, nvmlGpuTopologyLevel_t,
                                              unsigned int* count, nvmlDevice_t* found) {
    if (*count < 2) return NVML_ERROR_INSUFFICIENT_SIZE;
    found[0] = native_device(7);  // Not one of the server's.
    found[1] = native_device(device == native_device(0) ? 1 : 0);
    *count = 2;
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetSerial = [](nvmlDevice_t, char*, unsigned int) {
    return NVML_ERROR_NO_PERMISSION;
  };
  return table;
}

// A monitor on a thread of its own, and a client's channel to it.
class Served {
 public:
  explicit Served(const driver::NvmlTable& table, const UsageBoard* board = nullptr)
      : native_(fleet_, log_, table) {
    auto [client, server] = rpc::testing::make_pair(rpc::testing::PairKind::kUnix);
    thread_ = std::thread(
        [this, board, end = std::move(server)]() mutable { serve(std::move(end), board); });
    auto opened = rpc::Channel::open(std::move(client), hello(), rpc::testing::soon(), pushes_, {});
    if (opened) channel_ = std::move(opened).value();
  }
  ~Served() {
    if (channel_ != nullptr) channel_->shut_down("the test ends");
    thread_.join();
  }

  template <class Command>
  nvmlReturn_t ask(const Command& command, typename Command::Reply& reply) {
    rpc::Post post =
        channel_->begin(Command::kOp, wire::encoded_size(command), 0, rpc::Answer::kReply);
    if (!post) return NVML_ERROR_GPU_IS_LOST;
    wire::encode(post.writer(), command);
    if (!channel_->call(std::move(post), answer_)) return NVML_ERROR_GPU_IS_LOST;
    EXPECT_TRUE(wire::decode(answer_.fields(), reply)) << Command::kName;
    return static_cast<nvmlReturn_t>(answer_.result());
  }
  rpc::Channel& channel() { return *channel_; }
  const Fleet& fleet() const { return fleet_; }

 private:
  static wire::ClientHello hello() {
    wire::ClientHello hello;
    hello.role = wire::ConnectionRole::kMonitor;
    return hello;
  }
  void serve(std::unique_ptr<transport::Connection> connection, const UsageBoard* board) {
    const auto hello = rpc::receive_hello(*connection, rpc::testing::soon());
    ASSERT_TRUE(hello.ok());
    ASSERT_TRUE(rpc::send_welcome(*connection, {}, rpc::testing::soon()).ok());
    rpc::HeapBufferPool pool;
    rpc::Endpoint endpoint(std::move(connection), wire::Limits{}, pool);
    Monitor monitor({.endpoint = endpoint,
                     .fleet = fleet_,
                     .native = native_,
                     .board = board,
                     .machine = "here"});
    monitor.run();
  }

  const Log log_{"test", LogLevel::kOff};
  const Fleet fleet_ = sample_fleet();
  const Native native_;
  rpc::testing::TestPushes pushes_;
  std::unique_ptr<rpc::Channel> channel_;
  rpc::Reply answer_;
  std::thread thread_;
};

TEST(Monitor, HandsOnWhatNvmlSaysOfTheGpuThatIsMeant) {
  Served served(sample_nvml());
  commands::NvmlDeviceGetPowerUsage::Reply power;
  EXPECT_EQ(served.ask(commands::NvmlDeviceGetPowerUsage{flyt::nvml::handle_of(1)}, power),
            NVML_SUCCESS);
  EXPECT_EQ(power.power, 350000U);
  commands::NvmlDescribe::Reply about;
  EXPECT_EQ(served.ask(commands::NvmlDescribe{}, about), NVML_SUCCESS);
  EXPECT_EQ(about.driver_version, "580.95.05");
  const auto gpus = flyt::nvml::decode_gpus(about.gpus);
  ASSERT_TRUE(gpus.ok());
  EXPECT_EQ(gpus.value(), served.fleet().gpus);
}

TEST(Monitor, TellsMemoryAsNvmlCountsIt) {
  Served served(sample_nvml());
  commands::NvmlMemory::Reply memory;
  EXPECT_EQ(served.ask(commands::NvmlMemory{flyt::nvml::handle_of(0)}, memory), NVML_SUCCESS);
  EXPECT_EQ(memory.total, 100U);
  EXPECT_EQ(memory.reserved, 10U);
  EXPECT_EQ(memory.free, 60U);
  EXPECT_EQ(memory.used, 30U);
}

TEST(Monitor, CountsMemoryItselfWithoutNvml) {
  auto board = UsageBoard::create(2);
  ASSERT_TRUE(board.ok());
  const UsageSlot ours = board.value()->slot(board.value()->claim());
  const UsageSlot others = board.value()->slot(board.value()->claim());
  ours.publish({.process = 11, .machine = "here"});
  EXPECT_TRUE(ours.reserve(0, 100));
  others.publish({.process = 12, .machine = "elsewhere"});
  EXPECT_TRUE(others.reserve(0, 7));
  Served served(driver::no_nvml(), board.value().get());
  commands::NvmlMemory::Reply memory;
  EXPECT_EQ(served.ask(commands::NvmlMemory{flyt::nvml::handle_of(0)}, memory), NVML_SUCCESS);
  EXPECT_EQ(memory.total, 1U << 30);
  EXPECT_EQ(memory.used, 100U);
  EXPECT_EQ(memory.reserved, 7U);
  EXPECT_EQ(memory.free, (1U << 30) - 107);
  commands::NvmlProcesses::Reply processes;
  EXPECT_EQ(served.ask(commands::NvmlProcesses{flyt::nvml::handle_of(0)}, processes), NVML_SUCCESS);
  ASSERT_EQ(processes.processes.size(), 1U);
  EXPECT_EQ(processes.processes[0].pid, 11U);
  EXPECT_EQ(processes.processes[0].usedGpuMemory, 100U);
}

TEST(Monitor, HandsOnOpenFieldsAlone) {
  Served served(sample_nvml());
  const std::vector<nvmlFieldValue_t> wanted = {
      {.fieldId = 186}, {.fieldId = 100}, {.fieldId = 165, .scopeId = 3}};
  commands::NvmlFieldValues command{.device = flyt::nvml::handle_of(0)};
  command.wanted = wire::List<nvmlFieldValue_t>(wanted);
  commands::NvmlFieldValues::Reply reply;
  ASSERT_EQ(served.ask(command, reply), NVML_SUCCESS);
  ASSERT_EQ(reply.values.size(), 3U);
  EXPECT_EQ(reply.values[2].value.ullVal, 330U);
  EXPECT_EQ(reply.values[2].scopeId, 3U);
  EXPECT_EQ(reply.values[0].value.ullVal, 372U);
  EXPECT_EQ(reply.values[0].nvmlReturn, NVML_SUCCESS);
  EXPECT_EQ(reply.values[1].nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(reply.values[1].value.ullVal, 0U);
}

TEST(Monitor, HandsOnListsAndErrors) {
  Served served(sample_nvml());
  commands::NvmlClockList::Reply clocks;
  ASSERT_EQ(served.ask(commands::NvmlClockList{flyt::nvml::handle_of(0), 0}, clocks), NVML_SUCCESS);
  EXPECT_EQ(clocks.clocks.to_vector(), (std::vector<std::uint32_t>{3201, 1593}));
  EXPECT_EQ(served.ask(commands::NvmlClockList{flyt::nvml::handle_of(0), 1593}, clocks),
            NVML_ERROR_NOT_SUPPORTED);
  commands::NvmlDeviceText::Reply text;
  EXPECT_EQ(served.ask(commands::NvmlDeviceText{flyt::nvml::handle_of(0), 1}, text),
            NVML_ERROR_NO_PERMISSION);
  EXPECT_EQ(served.ask(commands::NvmlDeviceText{flyt::nvml::handle_of(0), 99}, text),
            NVML_ERROR_NOT_SUPPORTED);
}

TEST(Monitor, TellsWhatIsAtTheEndOfALink) {
  Served served(sample_nvml());
  const nvmlDevice_t second = flyt::nvml::handle_of(1);
  commands::NvmlDeviceGetNvLinkState::Reply state;
  using State = commands::NvmlDeviceGetNvLinkState;
  EXPECT_EQ(served.ask(State{second, 4}, state), NVML_SUCCESS);
  EXPECT_EQ(state.isActive, NVML_FEATURE_ENABLED);
  EXPECT_EQ(served.ask(State{second, 5}, state), NVML_SUCCESS);
  EXPECT_EQ(state.isActive, NVML_FEATURE_DISABLED);
  commands::NvmlDeviceGetNvLinkRemotePciInfoV2::Reply pci;
  using RemotePci = commands::NvmlDeviceGetNvLinkRemotePciInfoV2;
  EXPECT_EQ(served.ask(RemotePci{second, 4}, pci), NVML_SUCCESS);
  EXPECT_EQ(pci.pci.bus, 4U);
  EXPECT_EQ(pci.pci.device, 1U);
  EXPECT_STREQ(pci.pci.busId, "00000001:04:01.0");
}

TEST(Monitor, TellsWhatNvmlSaysOfPeers) {
  Served served(sample_nvml());
  const nvmlDevice_t first = flyt::nvml::handle_of(0);
  const nvmlDevice_t second = flyt::nvml::handle_of(1);
  commands::NvmlPeerStatus::Reply status;
  EXPECT_EQ(served.ask(commands::NvmlPeerStatus{first, second, NVML_P2P_CAPS_INDEX_NVLINK}, status),
            NVML_SUCCESS);
  EXPECT_EQ(status.status, NVML_P2P_STATUS_OK);
  EXPECT_EQ(served.ask(commands::NvmlPeerStatus{second, first, NVML_P2P_CAPS_INDEX_READ}, status),
            NVML_SUCCESS);
  EXPECT_EQ(status.status, NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED);
  EXPECT_EQ(
      served.ask(commands::NvmlPeerStatus{first, second, NVML_P2P_CAPS_INDEX_UNKNOWN}, status),
      NVML_ERROR_INVALID_ARGUMENT);
  commands::NvmlCommonAncestor::Reply ancestor;
  EXPECT_EQ(served.ask(commands::NvmlCommonAncestor{first, second}, ancestor), NVML_SUCCESS);
  EXPECT_EQ(ancestor.level, NVML_TOPOLOGY_NODE);
  commands::NvmlNearestGpus::Reply near;
  EXPECT_EQ(served.ask(commands::NvmlNearestGpus{first, NVML_TOPOLOGY_NODE}, near), NVML_SUCCESS);
  ASSERT_EQ(near.gpus.size(), 1U);
  EXPECT_EQ(near.gpus[0], 1U);
}

TEST(Monitor, TellsOfPeersWhatCudaSaysWhereThereIsNoNvml) {
  Served served(driver::no_nvml());
  const nvmlDevice_t first = flyt::nvml::handle_of(0);
  const nvmlDevice_t second = flyt::nvml::handle_of(1);
  const auto status = [&](nvmlDevice_t from, nvmlDevice_t to, nvmlGpuP2PCapsIndex_t what) {
    commands::NvmlPeerStatus::Reply reply;
    EXPECT_EQ(served.ask(commands::NvmlPeerStatus{from, to, what}, reply), NVML_SUCCESS);
    return reply.status;
  };
  EXPECT_EQ(status(first, second, NVML_P2P_CAPS_INDEX_READ), NVML_P2P_STATUS_OK);
  EXPECT_EQ(status(first, second, NVML_P2P_CAPS_INDEX_ATOMICS), NVML_P2P_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status(second, first, NVML_P2P_CAPS_INDEX_ATOMICS), NVML_P2P_STATUS_OK);
  EXPECT_EQ(status(first, first, NVML_P2P_CAPS_INDEX_WRITE), NVML_P2P_STATUS_NOT_SUPPORTED);
}

TEST(Monitor, RefusesHandlesOfNoGpu) {
  Served served(sample_nvml());
  commands::NvmlMemory::Reply memory;
  for (const nvmlDevice_t bad : {nvmlDevice_t{}, flyt::nvml::handle_of(2), native_device(0)}) {
    EXPECT_EQ(served.ask(commands::NvmlMemory{bad}, memory), NVML_ERROR_INVALID_ARGUMENT);
  }
}

TEST(Monitor, HasNoCommandsOfCuda) {
  Served served(sample_nvml());
  commands::RetainPrimary::Reply reply;
  EXPECT_EQ(served.ask(commands::RetainPrimary{}, reply), NVML_ERROR_GPU_IS_LOST);
  EXPECT_TRUE(served.channel().lost());
}

TEST(Native, IsNotThereIfItDoesNotKnowAGpu) {
  driver::NvmlTable table = sample_nvml();
  table.nvmlDeviceGetHandleByUUID = [](const char* uuid, nvmlDevice_t*) {
    return uuid[std::strlen(uuid) - 1] == '0' ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
  };
  const Native native(sample_fleet(), Log("test", LogLevel::kOff), table);
  EXPECT_FALSE(native.present());
  unsigned int power = 0;
  EXPECT_EQ(native.table().nvmlDeviceGetPowerUsage(nullptr, &power), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(native.driver_version(), "");
}

TEST(Fleet, SurvivesThePipeBetweenProcesses) {
  const Fleet fleet = sample_fleet();
  const auto decoded = decode_fleet(encode(fleet));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->driver_kind, fleet.driver_kind);
  EXPECT_EQ(decoded->cuda_version, fleet.cuda_version);
  EXPECT_EQ(decoded->gpus, fleet.gpus);
  EXPECT_EQ(decoded->reach, fleet.reach);
  Fleet wrong = fleet;
  wrong.reach.pop_back();
  EXPECT_FALSE(decode_fleet(encode(wrong)).ok());
  const std::string good = encode(fleet);
  for (std::size_t lines = 0, at = 0; lines < 6; ++lines) {
    at = good.find('\n', at) + 1;
    EXPECT_FALSE(decode_fleet(good.substr(0, at)).ok());
    EXPECT_FALSE(decode_fleet(std::string(good).insert(at, "x")).ok());
  }
}

}  // namespace
}  // namespace flyt::server::nvml
