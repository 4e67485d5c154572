#include "softgpu/interpreter/device_call.h"

#include <algorithm>
#include <array>

#include "softgpu/interpreter/call_arguments.h"
#include "softgpu/interpreter/device_runtime.h"
#include "softgpu/interpreter/lanes.h"

namespace flyt::ptx {
namespace {

constexpr std::int32_t kRuntimeVersion = 13000;
constexpr std::uint64_t kStreamNonBlocking = 1;
// cudaMemcpyKind: what kernels may ask for.
constexpr std::uint64_t kDeviceToDevice = 3;
constexpr std::uint64_t kDefaultDirection = 4;

struct DeviceCallName {
  std::string_view name;
  DeviceCall call;
};

constexpr std::array kNames = {
    DeviceCallName{"GetParameterBufferV2", DeviceCall::kGetParameterBuffer},
    DeviceCallName{"LaunchDeviceV2", DeviceCall::kLaunchDevice},
    DeviceCallName{"MemcpyAsync", DeviceCall::kMemcpyAsync},
    DeviceCallName{"Memcpy2DAsync", DeviceCall::kMemcpy2DAsync},
    DeviceCallName{"MemsetAsync", DeviceCall::kMemsetAsync},
    DeviceCallName{"Memset2DAsync", DeviceCall::kMemset2DAsync},
    DeviceCallName{"StreamCreateWithFlags", DeviceCall::kStreamCreate},
    DeviceCallName{"StreamDestroy", DeviceCall::kStreamDestroy},
    DeviceCallName{"StreamWaitEvent", DeviceCall::kStreamWaitEvent},
    DeviceCallName{"EventCreateWithFlags", DeviceCall::kEventCreate},
    DeviceCallName{"EventRecord", DeviceCall::kEventRecord},
    DeviceCallName{"EventRecordWithFlags", DeviceCall::kEventRecord},
    DeviceCallName{"EventDestroy", DeviceCall::kEventDestroy},
    DeviceCallName{"GetLastError", DeviceCall::kGetLastError},
    DeviceCallName{"PeekAtLastError", DeviceCall::kPeekAtLastError},
    DeviceCallName{"GetErrorName", DeviceCall::kGetErrorName},
    DeviceCallName{"GetErrorString", DeviceCall::kGetErrorString},
    DeviceCallName{"GetDevice", DeviceCall::kGetDevice},
    DeviceCallName{"GetDeviceCount", DeviceCall::kGetDeviceCount},
    DeviceCallName{"RuntimeGetVersion", DeviceCall::kGetRuntimeVersion},
    DeviceCallName{"DeviceGetAttribute", DeviceCall::kGetDeviceAttribute},
    DeviceCallName{"DeviceGetLimit", DeviceCall::kGetDeviceLimit},
    DeviceCallName{"DeviceGetCacheConfig", DeviceCall::kGetCacheConfig},
    DeviceCallName{"DeviceGetSharedMemConfig", DeviceCall::kGetCacheConfig},
    DeviceCallName{"FuncGetAttributes", DeviceCall::kGetFunctionAttributes},
    DeviceCallName{"OccupancyMaxActiveBlocksPerMultiprocessor", DeviceCall::kGetOccupancy},
    DeviceCallName{"OccupancyMaxActiveBlocksPerMultiprocessorWithFlags", DeviceCall::kGetOccupancy},
    DeviceCallName{"Malloc", DeviceCall::kDeviceMalloc},
    DeviceCallName{"Free", DeviceCall::kDeviceFree},
};

// One call of one lane.
class LaneCall {
 public:
  LaneCall(Warp& warp, DeviceRuntime& runtime, const CallSite& site, unsigned lane)
      : warp_(warp), runtime_(runtime), arguments_(warp, site, lane), memory_(warp, lane) {
    const auto& block = warp.block().index();
    const auto& grid = warp.block().state().launch.grid;
    const auto thread = warp.thread_index(lane);
    const auto& threads = warp.block().state().launch.block;
    const std::uint64_t before =
        block[0] + grid[0] * (block[1] + std::uint64_t{grid[1]} * block[2]);
    thread_ = before * kThreadsPerBlockMax + thread[0] +
              threads[0] * (thread[1] + std::uint64_t{threads[1]} * thread[2]);
  }

  // False: a fault.
  bool run(DeviceCall call) {
    if (work(call) || stream(call) || error(call) || query(call)) return memory_.ok();
    return end(DeviceError::kNotSupported);
  }

 private:
  // What the call answers; always true.
  bool end(DeviceError error) {
    if (!memory_.ok()) return true;
    if (error != DeviceError::kNone) runtime_.note_error(thread_, error);
    arguments_.give(static_cast<std::uint32_t>(error));
    return true;
  }
  template <class T>
  bool tell(DeviceError error, std::size_t pointer, const T& value) {
    if (error == DeviceError::kNone) memory_.put(arguments_.at(pointer), value);
    return end(error);
  }

  std::array<std::uint32_t, 3> extent(std::size_t index) const {
    return {arguments_.part<std::uint32_t>(index, 0), arguments_.part<std::uint32_t>(index, 4),
            arguments_.part<std::uint32_t>(index, 8)};
  }
  std::int32_t number(std::size_t index) const { return arguments_.part<std::int32_t>(index, 0); }

  // False: that is no kernel.
  bool find_function(std::uint64_t address, std::uint32_t& function) const {
    const std::uint64_t index = (address - kFunctionWindow) / kFunctionStride;
    const auto& functions = warp_.program().module->functions();
    if (address < kFunctionWindow || address % kFunctionStride != 0 || index >= functions.size() ||
        !functions[index].kernel) {
      return false;
    }
    function = static_cast<std::uint32_t>(index);
    return true;
  }

  bool give_buffer() {
    ChildConfig config{.grid = extent(1),
                       .block = extent(2),
                       .shared_bytes = arguments_.part<std::uint32_t>(3, 0)};
    std::uint64_t buffer = 0;
    if (find_function(arguments_.at(0), config.function)) {
      buffer = runtime_.parameter_buffer(thread_, config);
    } else {
      runtime_.note_error(thread_, DeviceError::kInvalidFunction);
    }
    arguments_.give(buffer);
    return true;
  }

  bool copy(ChildCopy what, std::uint64_t kind, std::uint64_t stream) {
    if (!what.fill && kind != kDeviceToDevice && kind != kDefaultDirection) {
      return end(DeviceError::kInvalidDirection);
    }
    if (what.width > what.to_pitch || (!what.fill && what.width > what.from_pitch)) {
      return end(DeviceError::kInvalidValue);
    }
    return end(runtime_.copy(what, stream));
  }

  // Each of these: false if it is another kind of call.
  bool work(DeviceCall call) {
    const CallArguments& given = arguments_;
    if (call == DeviceCall::kGetParameterBuffer) return give_buffer();
    if (call == DeviceCall::kLaunchDevice) return end(runtime_.launch(given.at(0), given.at(1)));
    if (call == DeviceCall::kMemcpyAsync) {
      return copy({.to = given.at(0),
                   .to_pitch = given.at(2),
                   .from = given.at(1),
                   .from_pitch = given.at(2),
                   .width = given.at(2)},
                  given.at(3), given.at(4));
    }
    if (call == DeviceCall::kMemcpy2DAsync) {
      return copy({.to = given.at(0),
                   .to_pitch = given.at(1),
                   .from = given.at(2),
                   .from_pitch = given.at(3),
                   .width = given.at(4),
                   .rows = given.at(5)},
                  given.at(6), given.at(7));
    }
    if (call == DeviceCall::kMemsetAsync) {
      return copy({.to = given.at(0),
                   .to_pitch = given.at(2),
                   .width = given.at(2),
                   .fill = true,
                   .value = static_cast<std::uint8_t>(given.at(1))},
                  0, given.at(3));
    }
    if (call != DeviceCall::kMemset2DAsync) return false;
    return copy({.to = given.at(0),
                 .to_pitch = given.at(1),
                 .width = given.at(3),
                 .rows = given.at(4),
                 .fill = true,
                 .value = static_cast<std::uint8_t>(given.at(2))},
                0, given.at(5));
  }

  bool stream(DeviceCall call) {
    const auto known = [this](std::size_t index) {
      return runtime_.is_handle(arguments_.at(index)) ? DeviceError::kNone
                                                      : DeviceError::kInvalidHandle;
    };
    if (call == DeviceCall::kStreamCreate || call == DeviceCall::kEventCreate) {
      const bool good = call == DeviceCall::kEventCreate || arguments_.at(1) == kStreamNonBlocking;
      return tell(good ? DeviceError::kNone : DeviceError::kInvalidValue, 0,
                  good ? runtime_.make_handle() : 0);
    }
    if (call == DeviceCall::kStreamWaitEvent) return end(known(1));
    if (call == DeviceCall::kStreamDestroy || call == DeviceCall::kEventRecord ||
        call == DeviceCall::kEventDestroy) {
      return end(known(0));
    }
    return false;
  }

  bool error(DeviceCall call) {
    const bool taken = call == DeviceCall::kGetLastError;
    if (taken || call == DeviceCall::kPeekAtLastError) {
      arguments_.give(static_cast<std::uint32_t>(runtime_.last_error(thread_, taken)));
      return true;
    }
    const bool name = call == DeviceCall::kGetErrorName;
    if (!name && call != DeviceCall::kGetErrorString) return false;
    arguments_.give(runtime_.text_of(static_cast<DeviceError>(number(0)), name));
    return true;
  }

  bool query(DeviceCall call) {
    if (call == DeviceCall::kGetDevice) return tell(DeviceError::kNone, 0, runtime_.device());
    if (call == DeviceCall::kGetDeviceCount) {
      return tell(DeviceError::kNone, 0, runtime_.device_count());
    }
    if (call == DeviceCall::kGetRuntimeVersion) return tell(DeviceError::kNone, 0, kRuntimeVersion);
    if (call == DeviceCall::kGetCacheConfig) return tell(DeviceError::kNone, 0, std::int32_t{0});
    if (call == DeviceCall::kGetDeviceAttribute) {
      std::int32_t value = 0;
      return tell(runtime_.attribute(number(1), number(2), value), 0, value);
    }
    if (call == DeviceCall::kGetDeviceLimit) {
      std::uint64_t value = 0;
      return tell(runtime_.limit(number(1), value), 0, value);
    }
    if (call == DeviceCall::kDeviceMalloc) return allocate();
    if (call == DeviceCall::kDeviceFree) {
      if (arguments_.at(0) != 0) warp_.block().state().environment->release(arguments_.at(0));
      return end(DeviceError::kNone);
    }
    return query_function(call);
  }

  // It is malloc() that gives the memory.
  bool allocate() {
    const std::uint64_t place = warp_.block().state().environment->allocate(arguments_.at(1));
    return tell(place != 0 ? DeviceError::kNone : DeviceError::kOutOfMemory, 0, place);
  }

  bool query_function(DeviceCall call) {
    std::uint32_t function = 0;
    const bool found = find_function(arguments_.at(1), function);
    if (call == DeviceCall::kGetOccupancy) {
      std::int32_t blocks = 0;
      const DeviceError result =
          found ? runtime_.occupancy(function, number(2), arguments_.at(3), blocks)
                : DeviceError::kInvalidFunction;
      return tell(result, 0, blocks);
    }
    if (call != DeviceCall::kGetFunctionAttributes) return false;
    if (!found) return end(DeviceError::kInvalidFunction);
    std::array<std::uint32_t, DeviceRuntime::kFunctionWords> words{};
    const DeviceError result = runtime_.function_attributes(function, words);
    for (std::size_t i = 0; result == DeviceError::kNone && i < words.size(); ++i) {
      memory_.put(arguments_.at(0) + i * sizeof(words[i]), words[i]);
    }
    return end(result);
  }

  Warp& warp_;
  DeviceRuntime& runtime_;
  const CallArguments arguments_;
  LaneMemory memory_;
  std::uint64_t thread_ = 0;
};

}  // namespace

DeviceCall device_call_named(std::string_view name) {
  constexpr std::string_view kPrefix = "__cudaCDP2";
  constexpr std::string_view kOldPrefix = "cuda";
  constexpr std::string_view kPerThread = "_ptsz";
  if (name.starts_with(kPrefix)) {
    name.remove_prefix(kPrefix.size());
  } else if (name.starts_with(kOldPrefix)) {
    name.remove_prefix(kOldPrefix.size());
  } else {
    return DeviceCall::kNone;
  }
  if (name.ends_with(kPerThread)) name.remove_suffix(kPerThread.size());
  const auto* const found = std::find_if(
      kNames.begin(), kNames.end(), [&](const DeviceCallName& one) { return one.name == name; });
  return found == kNames.end() ? DeviceCall::kNone : found->call;
}

Flow call_device(Warp& warp, DeviceCall call, const CallSite& site, Mask lanes) {
  DeviceRuntime* const runtime = warp.block().state().environment->runtime();
  if (runtime == nullptr) return warp.fault(FaultKind::kIllegalInstruction, lanes);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    if (!LaneCall(warp, *runtime, site, lane).run(call)) return Flow::kFault;
  }
  return Flow::kNext;
}

}  // namespace flyt::ptx
