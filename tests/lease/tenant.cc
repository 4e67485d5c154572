#include "tests/lease/tenant.h"

#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "driver/table.h"
#include "tests/support/cuda_table.h"

namespace flyt::tests {
namespace {

// One of each kind at a time, the newest.
class Program {
 public:
  CUresult start() {
    CUresult result = cuda_.cuInit(0);
    if (result == CUDA_SUCCESS) result = cuda_.cuDevicePrimaryCtxRetain(&context_, 0);
    if (result == CUDA_SUCCESS) result = cuda_.cuCtxSetCurrent(context_);
    return result;
  }

  // The answer to a line: CUresults, or numbers.
  std::string obey(const std::string& what, const std::string& argument) {
    const std::uint64_t bytes = std::strtoull(argument.c_str(), nullptr, 10);
    if (what == "where") return where(argument);
    if (what == "info") return info();
    if (what == "devices") return devices();
    if (what == "sms") return sms();
    if (what == "green") return green();
    return std::to_string(static_cast<int>(act(what, bytes)));
  }

 private:
  CUresult act(const std::string& what, std::uint64_t bytes) {
    if (what == "alloc") return cuda_.cuMemAlloc_v2(&address_, bytes);
    if (what == "free") return cuda_.cuMemFree_v2(address_);
    if (what == "create") return create(bytes);
    if (what == "map") return map(bytes);
    if (what == "release") return cuda_.cuMemRelease(allocation_);
    if (what == "unmap") return cuda_.cuMemUnmap(mapped_, bytes);
    if (what == "pool") return cuda_.cuMemAllocAsync(&pooled_, bytes, nullptr);
    if (what == "pool-free") return pool_free();
    if (what == "array") return array(bytes);
    if (what == "array-free") return cuda_.cuArrayDestroy(array_);
    if (what == "mipmap") return mipmap(bytes);
    if (what == "managed") return cuda_.cuMemAllocManaged(&managed_, bytes, CU_MEM_ATTACH_GLOBAL);
    if (what == "managed-free") return cuda_.cuMemFree_v2(managed_);
    if (what == "module") return module(bytes);
    if (what == "module-free") return cuda_.cuModuleUnload(module_);
    if (what == "library") return library(bytes);
    if (what == "library-free") return cuda_.cuLibraryUnload(library_);
    if (what == "graph") return graph(bytes);
    if (what == "graph-free") return cuda_.cuGraphDestroy(graph_);
    if (what == "capture") return capture(bytes);
    if (what == "cooperative") return cooperative(static_cast<unsigned>(bytes));
    if (what == "reset") return reset();
    return what == "wait" ? cuda_.cuCtxSynchronize() : CUDA_ERROR_NOT_FOUND;
  }

  std::string info() {
    std::size_t free = 0;
    std::size_t total = 0;
    std::size_t device = 0;
    cuda_.cuMemGetInfo_v2(&free, &total);
    cuda_.cuDeviceTotalMem_v2(&device, 0);
    return std::to_string(free / kMiB) + " " + std::to_string(total / kMiB) + " " +
           std::to_string(device / kMiB);
  }
  std::string devices() {
    int count = 0;
    char bus[32] = {};
    cuda_.cuDeviceGetCount(&count);
    cuda_.cuDeviceGetPCIBusId(bus, sizeof bus, 0);
    return std::to_string(count) + " " + bus;
  }
  // As the attribute, as a resource of the device, and as one of the context.
  std::string sms() {
    int count = 0;
    CUdevResource device{};
    CUdevResource context{};
    cuda_.cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    cuda_.cuDeviceGetDevResource(0, &device, CU_DEV_RESOURCE_TYPE_SM);
    cuda_.cuCtxGetDevResource(context_, &context, CU_DEV_RESOURCE_TYPE_SM);
    return std::to_string(count) + " " + std::to_string(device.sm.smCount) + " " +
           std::to_string(context.sm.smCount);
  }
  // How many multiprocessors a green context of one group of the device has.
  std::string green() {
    CUdevResource device{};
    CUdevResource group{};
    CUdevResource rest{};
    CUdevResource has{};
    CUdevResourceDesc description = nullptr;
    CUgreenCtx green = nullptr;
    unsigned int count = 1;
    cuda_.cuDeviceGetDevResource(0, &device, CU_DEV_RESOURCE_TYPE_SM);
    cuda_.cuDevSmResourceSplitByCount(&group, &count, &device, &rest, 0, 1);
    cuda_.cuDevResourceGenerateDesc(&description, &group, 1);
    cuda_.cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    cuda_.cuGreenCtxGetDevResource(green, &has, CU_DEV_RESOURCE_TYPE_SM);
    cuda_.cuGreenCtxDestroy(green);
    return std::to_string(has.sm.smCount);
  }

  CUfunction kernel(const char* name) {
    static constexpr const char* kCode = R"(
      .version 8.0
      .target sm_80
      .address_size 64
      .visible .entry where(.param .u64 out) {
        .reg .u32 %r<2>; .reg .u64 %rd<4>;
        mov.u32 %r0, %ctaid.x;
        mov.u32 %r1, %smid;
        ld.param.u64 %rd1, [out];
        mul.wide.u32 %rd2, %r0, 4;
        add.u64 %rd3, %rd1, %rd2;
        st.global.u32 [%rd3], %r1;
        ret;
      }
      .visible .entry nothing() { ret; })";
    CUmodule code = nullptr;
    CUfunction function = nullptr;
    cuda_.cuModuleLoadData(&code, kCode);
    cuda_.cuModuleGetFunction(&function, code, name);
    return function;
  }
  // How many blocks ran outside of groups 1 and 3 of eight multiprocessors each.
  std::string where(const std::string& stream_kind) {
    constexpr unsigned kBlocks = 500;
    CUstream stream = stream_kind == "thread" ? CU_STREAM_PER_THREAD : nullptr;
    if (stream_kind == "own") cuda_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    std::vector<std::uint32_t> at(kBlocks, ~0U);
    CUdeviceptr out = 0;
    cuda_.cuMemAlloc_v2(&out, kBlocks * 4);
    void* parameters[] = {&out};
    CUresult result = cuda_.cuLaunchKernel(kernel("where"), kBlocks, 1, 1, 1, 1, 1, 0, stream,
                                           parameters, nullptr);
    if (result == CUDA_SUCCESS) result = cuda_.cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS) result = cuda_.cuMemcpyDtoH_v2(at.data(), out, kBlocks * 4);
    const auto outside = std::count_if(at.begin(), at.end(),
                                       [](std::uint32_t sm) { return sm / 8 != 1 && sm / 8 != 3; });
    return result == CUDA_SUCCESS ? std::to_string(outside) : "error " + std::to_string(result);
  }

  CUresult cooperative(unsigned blocks) {
    const CUresult result = cuda_.cuLaunchCooperativeKernel(kernel("nothing"), blocks, 1, 1, 128, 1,
                                                            1, 0, nullptr, nullptr);
    const CUresult waited = cuda_.cuCtxSynchronize();
    return result != CUDA_SUCCESS ? result : waited;
  }
  CUresult reset() {
    CUresult result = cuda_.cuDevicePrimaryCtxReset_v2(0);
    if (result == CUDA_SUCCESS) result = cuda_.cuDevicePrimaryCtxRetain(&context_, 0);
    return result == CUDA_SUCCESS ? cuda_.cuCtxSetCurrent(context_) : result;
  }

  static CUmemAllocationProp on_device() {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return prop;
  }
  CUresult create(std::uint64_t bytes) {
    const CUmemAllocationProp prop = on_device();
    return cuda_.cuMemCreate(&allocation_, bytes, &prop, 0);
  }
  CUresult map(std::uint64_t bytes) {
    const CUresult reserved = cuda_.cuMemAddressReserve(&mapped_, bytes, 0, 0, 0);
    return reserved == CUDA_SUCCESS ? cuda_.cuMemMap(mapped_, bytes, 0, allocation_, 0) : reserved;
  }
  CUresult pool_free() {
    const CUresult freed = cuda_.cuMemFreeAsync(pooled_, nullptr);
    return freed == CUDA_SUCCESS ? cuda_.cuCtxSynchronize() : freed;
  }
  static CUDA_ARRAY3D_DESCRIPTOR square(std::uint64_t bytes) {
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    descriptor.Width = 1024;
    descriptor.Height = bytes / 4096;
    descriptor.Format = CU_AD_FORMAT_FLOAT;
    descriptor.NumChannels = 1;
    return descriptor;
  }
  CUresult array(std::uint64_t bytes) {
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = square(bytes);
    return cuda_.cuArray3DCreate_v2(&array_, &descriptor);
  }
  CUresult mipmap(std::uint64_t bytes) {
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = square(bytes);
    return cuda_.cuMipmappedArrayCreate(&mipmap_, &descriptor, 2);
  }
  static std::string ptx(std::uint64_t bytes) {
    return ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 4 .b8 big[" +
           std::to_string(bytes) + "];\n";
  }
  CUresult module(std::uint64_t bytes) {
    return cuda_.cuModuleLoadData(&module_, ptx(bytes).c_str());
  }
  CUresult library(std::uint64_t bytes) {
    return cuda_.cuLibraryLoadData(&library_, ptx(bytes).c_str(), nullptr, nullptr, 0, nullptr,
                                   nullptr, 0);
  }
  CUresult graph(std::uint64_t bytes) {
    CUresult result = cuda_.cuGraphCreate(&graph_, 0);
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = bytes;
    CUgraphNode node = nullptr;
    if (result == CUDA_SUCCESS) {
      result = cuda_.cuGraphAddMemAllocNode(&node, graph_, nullptr, 0, &params);
    }
    return result;
  }
  CUresult capture(std::uint64_t bytes) {
    CUstream stream = nullptr;
    CUdeviceptr address = 0;
    cuda_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    cuda_.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    const CUresult result = cuda_.cuMemAllocAsync(&address, bytes, stream);
    cuda_.cuStreamEndCapture(stream, &graph_);
    cuda_.cuStreamDestroy_v2(stream);
    return result;
  }

  const driver::Table cuda_ = client_table();
  CUcontext context_ = nullptr;
  CUdeviceptr address_ = 0;
  CUdeviceptr mapped_ = 0;
  CUdeviceptr pooled_ = 0;
  CUdeviceptr managed_ = 0;
  CUmemGenericAllocationHandle allocation_ = 0;
  CUarray array_ = nullptr;
  CUmipmappedArray mipmap_ = nullptr;
  CUmodule module_ = nullptr;
  CUlibrary library_ = nullptr;
  CUgraph graph_ = nullptr;
};

}  // namespace

int run_tenant() {
  Program program;
  const CUresult started = program.start();
  std::cout << (started == CUDA_SUCCESS ? "ready" : "no " + std::to_string(started)) << std::endl;
  std::string line;
  while (started == CUDA_SUCCESS && std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string what;
    std::string argument;
    words >> what >> argument;
    std::cout << program.obey(what, argument) << std::endl;
  }
  return 0;
}

LeaseTest::~LeaseTest() {
  server_.kill();
  std::error_code error;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
}

const std::string& LeaseTest::folder() {
  if (!folder_.empty()) return folder_;
  std::string pattern = "/tmp/flyt-lease-XXXXXX";
  EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
  return folder_ = pattern;
}

void LeaseTest::start(std::vector<std::string> arguments, const std::string& listen) {
  ASSERT_FALSE(folder().empty());
  arguments.insert(arguments.end(), {"--control", control_url(), "--log-level", "debug"});
  const Status started = server_.start(
      {.program = server_program(), .listen = listen, .arguments = std::move(arguments)});
  ASSERT_TRUE(started.ok()) << started.error().message;
}

std::unique_ptr<control::ControlClient> LeaseTest::control() {
  auto client = control::ControlClient::connect(control_url());
  EXPECT_TRUE(client.ok()) << client.error().message;
  return client.ok() ? std::move(client).value() : nullptr;
}

std::unique_ptr<kill::Child> LeaseTest::tenant(bool may_fail) {
  auto child = std::make_unique<kill::Child>("tenant", 0, server_.url());
  if (may_fail) return child;
  EXPECT_TRUE(child->wrote("ready\n", kSeconds)) << server_.log();
  return child;
}

std::uint64_t LeaseTest::sleeps(pid_t process) {
  std::uint64_t sum = 0;
  std::error_code none;
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, none)) {
    std::ifstream file(task.path() / "status");
    std::string word;
    std::uint64_t count = 0;
    while (file >> word) {
      if (word == "voluntary_ctxt_switches:" && file >> count) sum += count;
    }
  }
  return sum;
}

}  // namespace flyt::tests
