#include "tests/conformance/sweep_values.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace flyt::conformance {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// The numbers of a parameter, the first of them plausible; of an enum that may be all there is to
// say, for its other values are known. Of several entries that fit the first one holds.
struct Numbers {
  const char* calls;
  const char* parameters;
  std::vector<std::int64_t> values;
};

const std::vector<Numbers>& numbers_of_memory() {
  static const std::vector<Numbers> kNumbers = {
      // What waits finds what it waits for.
      {"cuStreamW*Value*", "value", {1, 0}},
      {"cuStreamWait*", "flags", {0, 1, 2, 3, 4, 8, -1}},
      {"cuStreamBatchMemOp*", "count", {1, 0}},
      // A driver dies of others.
      {"cuStreamAttachMemAsync", "flags", {4, 1, 2}},
      {"cuStreamAttachMemAsync", "length", {0, 1, 4096, 8192}},
      {"cuDeviceGetName:cuDeviceGetPCIBusId", "len", {64, 1, 13}},
      {"cuDevResourceGenerateDesc", "nbResources", {1}},
      {"cuMem*ImportFromShareableHandle", "*andleType", {1, 0, -1, 0x7fffffff}},
      {"cuMem*ExportToShareableHandle", "handleType", {1}},
      // What may be set, and on what this call is plausible.
      {"cuFuncSetAttribute:cuKernelSetAttribute", "attrib", {8}},
      {"cuGraphKernelNode?etAttribute", "attr", {2}},
      {"cuStream?etAttribute", "attr", {3}},
      {"cuPointerSetAttribute", "attribute", {6}},
      {"cuGreenCtxStreamCreate", "flags", {1, 0, 2, 3, -1}},
      // Never so much that it could be had.
      {"cuLaunch*", "gridDimX", {1, 0, 0xffffffff}},
      {"cuLaunchGrid*", "grid_width:grid_height", {1, 0, -1}},
      {"cuLaunch*", "gridDim?:blockDim?", {1, 0, 0x7fffffff, 0xffffffff}},
      {"cuLaunch*", "sharedMemBytes", {0, 1, 0x7fffffff, 0xffffffff}},
      {"cuCtxSetLimit", "value", {1024, 0, 1}},
      {"cuMemAlloc:cuMemAllocHost:cuMemAllocPitch", "bytesize:Width*:Height", {16, 0, 1}},
      {"cuMemAllocPitch*", "ElementSizeBytes", {4, 0, 1, 8, 16, 3, -1}},
      {"cuMemAllocPitch*", "WidthInBytes:Height", {64, 0, 1, kMost}},
      {"cuMem*Alloc*", "bytesize", {4096, 0, 1, kMost}},
      {"cuMemAllocManaged", "flags", {1, 0, 2, 3, 4, 8, -1}},
      {"cuMemAddressReserve", "size", {2 << 20, 0, 1, 4096, kMost}},
      {"cuMemAddressReserve", "alignment", {0, 1, 3, 4096, 2 << 20}},
      {"cuMemAddressReserve", "addr", {0, 0x1000, 1}},
      {"cuMemAddressFree", "size", {2 << 20, 0, 1, 4096, kMost}},
      {"cuMemCreate", "size", {2 << 20, 0, 1, 4096, kMost}},
      {"cuMemMap:cuMemUnmap:cuMemSetAccess", "size", {2 << 20, 0, 1, 4096, 4 << 20, kMost}},
      {"cuMemMap", "offset", {0, 1, 4096, 2 << 20, kMost}},
      {"cuMemHostRegister*", "bytesize", {4096, 0, 1}},
  };
  return kNumbers;
}

const std::vector<Numbers>& numbers_of_code() {
  static const std::vector<Numbers> kNumbers = {
      // What a driver keeps in tables of its own.
      {"cuTexRef*", "dim", {0, 1, 2}},
      {"cuParamSet*", "offset", {0, 4}},
      {"cuParamSet*", "numbytes", {8, 0, 4}},
      {"cuParamSetTexRef", "texunit", {-1, 0, 1}},
      {"cuTexRefSetFormat", "NumPackedComponents", {1, 2, 4, 0, 3, -1}},
      {"cuTexRefSetFormat:cuDeviceGetTexture1DLinearMaxWidth", "fmt:format", {0x20}},
      {"cuDeviceGetTexture1DLinearMaxWidth", "numChannels", {1, 2, 4, 0, 3, -1}},
      {"cuTexRefSetAddress2D*", "Pitch", {64, 0, 1, 32, 256}},
      {"cuTexRefSetAddress*", "bytes", {64, 0, 1, 4096, 4097}},
      {"cuTexRefSet*Array", "Flags", {1, 0, 2, -1}},
      // Batches.
      {"cuLink*:cuModule*", "numOptions", {0, 1}},
      {"cuLibraryLoad*", "num*Options", {0, 1}},
      {"cuCtxCreate*", "numParams", {0, 1}},
      {"cuModuleEnumerateFunctions:cuLibraryEnumerateKernels", "num*", {1, 0, 2, 5}},
      {"cuStreamUpdateCaptureDependencies*:cuStreamBeginCaptureToGraph", "num*", {0, 1}},
      {"cuMemRangeGetAttribute", "dataSize", {4, 0, 1, 8}},
      {"cuMemRangeGetAttribute*:cuMemAdvise*:cuMemPrefetchAsync*", "count", {4096, 0, 1, 8192}},
      {"cuUserObject*:cuGraph*UserObject", "*ount", {1, 0}},
      {"cuUserObjectCreate", "flags", {1, 0, 2, -1}},
      // Code.
      {"cuLinkAddData*", "size", {-2, 0, 1}},
      {"cuLinkAdd*", "type", {1}},
      {"cuGetProcAddress*", "cudaVersion", {12000, 0, -1, 3020, 0x7fffffff}},
      {"cuOccupancy*", "blockSize", {32, 0, -1, 1024, 1025, 0x7fffffff}},
      {"cuOccupancy*", "numBlocks", {1, 0, -1, 1000, 0x7fffffff}},
      {"cuOccupancy*", "dynamicSMemSize", {0, 1, 1 << 20, -1}},
      {"cuFuncSetBlockShape", "?", {1, 0, -1, 1024, 1025, 0x7fffffff}},
      {"cuFuncSetSharedSize", "bytes", {0, 1, 1 << 20, 0x7fffffff, 0xffffffff}},
      {"*", "paramIndex", {0, 1, 2, -1}},
      // Tensors.
      {"cuTensorMap*", "tensorDataType", {7}},
      {"cuTensorMapEncodeTiled", "tensorRank", {2, 0, 1, 3, 4, 5, 6, -1}},
      {"cuTensorMap*", "tensorRank", {3, 0, 1, 2, 4, 5, 6, -1}},
      {"cuTensorMap*", "channelsPerPixel:pixelsPerColumn", {4, 0, 1, 256, 257, 1024, 1025, -1}},
  };
  return kNumbers;
}

const std::vector<Numbers>& other_numbers() {
  static const std::vector<Numbers> kNumbers = {
      // Contexts and devices.
      {"cuDeviceSetGraphMemAttribute", "attr", {1}},
      {"cuGreenCtxCreate", "flags", {1, 0, 2, 3, -1}},
      {"cuDevSmResourceSplitByCount", "minCount", {0, 1, 2, 8, 1000, -1}},
      {"cu*GetDevResource", "type", {1}},
      {"cuMipmappedArrayCreate", "numMipmapLevels", {2, 0, 1, 7, 8, -1}},
      {"cuMipmappedArrayGetLevel", "level", {0, 1, 2, -1}},
      {"cuGraphInstantiate*", "bufferSize", {1024, 0, 1}},
      {"cuCoredump*", "attrib", {1, 2, 3, 4, 5, 6, 0, 0x7fffffff}},
      {"cuMemGetDefaultMemPool:cuMemGetMemPool:cuMemSetMemPool", "type", {1}},
      // Bytes of copies and of memory to fill.
      {"*", "ByteCount", {16, 0, 1, 4097}},
      {"*", "srcOffset:dstOffset", {0, 1, 4, 16384, 65536}},
      // Not what cannot be: NVIDIA's driver fills what lies behind the memory, or never ends.
      {"cuMemset*", "N", {16, 0, 1, 4097}},
      {"cuMemset*", "dstPitch", {64, 0, 1, 4}},
      {"cuMemset*", "Width:Height", {4, 0, 1, 17, 4097}},
      {"cuMemset*", "uc:us:ui", {1, 0}},
  };
  return kNumbers;
}

const std::vector<std::int64_t>* numbers_of(const SweptCall& call, const Parameter& parameter) {
  for (const auto* const list : {&numbers_of_memory(), &numbers_of_code(), &other_numbers()}) {
    for (const Numbers& each : *list) {
      if (like(call.base, each.calls) && like(parameter.name, each.parameters)) {
        return &each.values;
      }
    }
  }
  return nullptr;
}

std::vector<std::int64_t> values_of_enum(std::string_view type) {
  std::vector<std::int64_t> values = values_of(type);
  std::int64_t past = 0;
  for (const std::int64_t value : values) {
    if (value < 0x7fffffff) past = std::max(past, value + 1);
  }
  for (const std::int64_t more : {past, std::int64_t{-1}, std::int64_t{0x7fffffff}}) {
    if (std::find(values.begin(), values.end(), more) == values.end()) values.push_back(more);
  }
  return values;
}

// Where no entry of numbers() fits: by type and name; the first is plausible.
std::vector<std::int64_t> usual_numbers(const Parameter& parameter) {
  if (parameter.kind == Kind::kEnum) return values_of_enum(parameter.type);
  if (parameter.type == "CUdevice") return {0, -1, 1, 99};
  if (parameter.type == "CUdeviceptr_v1") return {0x1000, 0};
  if (like(parameter.name, "*lags")) return {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, -1};
  if (like(parameter.name, "num*:nb*:*ount")) return {1, 0};
  if (like(parameter.type, "unsigned char:unsigned short")) return {0, 1};
  if (parameter.type == "int") return {0, 1, -1, 0x7fffffff};
  return {0, 1, 16, -1};
}

bool is_address(const Parameter& parameter) {
  return parameter.kind == Kind::kInteger && parameter.type == "CUdeviceptr";
}

bool is_object(const Parameter& parameter) {
  if (parameter.kind != Kind::kInteger) return parameter.kind == Kind::kHandle;
  return like(parameter.type, "CUtexObject:CUsurfObject:CUmemGenericAllocationHandle");
}

std::vector<std::int64_t> numbers_for(const SweptCall& call, const Parameter& parameter) {
  const std::vector<std::int64_t>* listed = numbers_of(call, parameter);
  if (listed == nullptr) return usual_numbers(parameter);
  std::vector<std::int64_t> values = *listed;
  if (parameter.kind == Kind::kEnum && values.size() == 1) {
    for (const std::int64_t value : values_of_enum(parameter.type)) {
      if (value != values.front()) values.push_back(value);
    }
  }
  return values;
}

std::size_t nothing() { return 0; }

Argument pointer(Scene& scene, const Parameter& parameter) {
  if (parameter.stars == 1 && parameter.type == "void") {
    if (void* const known = scene.host(parameter.name)) return Argument::of(known);
  }
  if (like(parameter.name, "extra:blockSizeToDynamicSMemSize") ||
      (parameter.name == "dependencyData" || parameter.name == "edgeData")) {
    return {};
  }
  std::byte* const bytes = scene.buffer();
  if (parameter.type == "char" && parameter.stars == 1 && parameter.is_const) {
    const std::string text = scene.text(parameter.name);
    std::memcpy(bytes, text.c_str(), text.size() + 1);
  } else {
    scene.describe(parameter.type, parameter.name, bytes);
  }
  return Argument::of(bytes);
}

Argument plausible(Scene& scene, const SweptCall& call, const Parameter& parameter) {
  switch (parameter.kind) {
    case Kind::kInteger:
    case Kind::kEnum:
      if (is_object(parameter)) {
        return Argument::of(scene.object(parameter.type, parameter.name));
      }
      if (is_address(parameter)) return Argument::of(scene.address(parameter.name));
      return Argument::of(numbers_for(call, parameter).front());
    case Kind::kFloat:
      return Argument::of(1.0f);
    case Kind::kHandle:
      return Argument::of(scene.object(parameter.type, parameter.name));
    case Kind::kCallback:
      return Argument::of(&nothing);
    case Kind::kStruct: {
      Argument made;
      scene.describe(parameter.type, parameter.name, made.bytes.data());
      return made;
    }
    case Kind::kPointer:
      return pointer(scene, parameter);
  }
  return {};
}

// Members whose other values would make a driver take a handle of one kind for another.
bool decides_what_is_meant(const Member& member) {
  return like(member.type, "CUresourcetype:CUgraphNodeType:CUmemcpy3DOperandType");
}

// Numbers of members, beside zero. What is copied stays within the buffers of both ends.
struct MemberNumbers {
  const char* structs;
  const char* members;
  std::vector<std::int64_t> values;
};

const std::vector<MemberNumbers>& member_numbers() {
  static const std::vector<MemberNumbers> kNumbers = {
      {"*", "*lags:*eserved*", {1, 2, 4, 8, 16, 32, 64, 128, 256, -1}},
      {"CUDA_ARRAY*", "Width:Height:Depth:NumChannels", {1, 2, 3, -1}},
      {"CUDA_MEMCPY*", "WidthInBytes", {1, 65, 4097}},
      {"CUDA_MEMCPY*", "Height:Depth:*.height:*.depth", {2, 64, 65}},
      {"CUDA_MEMCPY*", "???XInBytes", {1, 4090}},
      {"CUDA_MEMCPY*", "???Y:???Z", {1, 63, 64}},
      {"CUDA_MEMCPY*", "???Pitch", {8, 16, 128}},
      {"CUDA_MEMCPY*", "???Height", {2, 64}},
      {"CUDA_MEMCPY*", "???LOD", {1}},
      {"*", "gridDim?:blockDim?:sharedMemBytes", {2, 1025, -1}},
      {"CUDA_MEMSET*", "elementSize", {1, 2, 3, 8, -1}},
      {"CUDA_MEMSET*", "width:height", {2, 5000, -1}},
      {"CUDA_MEMSET*", "pitch", {8, 16, 512}},
      {"CUDA_MEMSET*", "value", {256, 65536, -1}},
      {"CUDA_MEM_ALLOC*", "bytesize", {1, -1}},
      {"CUmem*:CUDA_MEM*", "id:*.id", {1, -1, 99}},
      {"CUmemPoolProps*", "maxSize:usage", {1, -1}},
      {"CUDA_RESOURCE_VIEW*", "width:height:depth", {1, 128}},
      {"CUDA_RESOURCE_VIEW*", "first*:last*", {1, -1}},
      {"CUDA_TEXTURE*", "maxAnisotropy", {1, 16, 17, -1}},
  };
  return kNumbers;
}

// Calls `each` with the label and the bytes of every other value of a member.
template <class Each>
void each_member(const Member& member, const Each& each) {
  const bool pointer = member.kind == Kind::kPointer || member.kind == Kind::kHandle ||
                       member.kind == Kind::kCallback || member.kind == Kind::kStruct;
  const std::string name(member.path);
  each(name + "=0", 0, pointer);
  if (member.kind == Kind::kEnum) {
    const std::vector<std::int64_t> named = values_of(member.type);
    for (const std::int64_t value : values_of_enum(member.type)) {
      const bool known = std::find(named.begin(), named.end(), value) != named.end();
      if (value != 0 && !(known && decides_what_is_meant(member))) {
        each(name + "=" + std::to_string(value), value, false);
      }
    }
  }
  if (member.kind != Kind::kInteger) return;
  for (const MemberNumbers& numbers : member_numbers()) {
    if (!like(member.of, numbers.structs) || !like(member.path, numbers.members)) continue;
    for (const std::int64_t value : numbers.values) {
      each(name + "=" + std::to_string(value), value, false);
    }
    return;
  }
}

class Collector {
 public:
  Collector(Scene& scene, const SweptCall& call) : scene_(scene), call_(call) {}

  void add(std::size_t index, const std::string& value, Argument argument, bool null = false) {
    const std::string name(call_.parameters[index].name);
    found_.push_back({name + "=" + value, index, argument, null});
  }
  void numbers(std::size_t index, bool& first) {
    for (const std::int64_t value : numbers_for(call_, call_.parameters[index])) {
      if (!first) add(index, std::to_string(value), Argument::of(value));
      first = false;
    }
  }
  void members(std::size_t index, const Argument& plausible) {
    const Parameter& parameter = call_.parameters[index];
    const bool indirect = parameter.kind == Kind::kPointer;
    if (indirect && parameter.stars != 1) return;
    if (indirect && plausible.as<std::byte*>() == nullptr) return;
    // What a call only writes has nothing to change.
    std::byte* const probe = scene_.buffer();
    if (indirect) scene_.describe(parameter.type, parameter.name, probe);
    if (indirect && !parameter.is_const &&
        std::all_of(probe, probe + kSweepBuffer, [](std::byte b) { return b == std::byte{0}; })) {
      return;
    }
    for (const Member& member : members_of(parameter.type)) {
      each_member(member, [&](const std::string& label, std::int64_t value, bool null) {
        Argument changed = plausible;
        std::byte* bytes = changed.bytes.data();
        if (indirect) {
          bytes = scene_.buffer();
          std::memcpy(bytes, plausible.as<std::byte*>(), kSweepBuffer);
          changed = Argument::of(bytes);
        } else if (member.offset + member.bytes > sizeof changed.bytes) {
          return;
        }
        std::memset(bytes + member.offset, 0, member.bytes);
        std::memcpy(bytes + member.offset, &value, std::min(member.bytes, sizeof value));
        found_.push_back({std::string(parameter.name) + "." + label, index, changed, null});
      });
    }
  }
  void pointers(std::size_t index, const Argument& plausible) {
    const Parameter& parameter = call_.parameters[index];
    members(index, plausible);
    if (parameter.type == "char" && parameter.stars == 1 && parameter.is_const) {
      add(index, "empty", Argument::of(scene_.buffer()));
      std::byte* const other = scene_.buffer();
      constexpr std::string_view kNoSuch = "/no/such";
      std::memcpy(other, kNoSuch.data(), kNoSuch.size());
      add(index, "nosuch", Argument::of(other));
    }
    const bool nothing_there = plausible.as<std::byte*>() == nullptr;
    if (like(call_.base, "cuMem*ImportFromShareableHandle") && like(parameter.name, "*andle"))
      return;
    if (nothing_there) {
      add(index, "zeros", Argument::of(scene_.buffer()));
    } else {
      add(index, "null", {}, true);
    }
  }
  std::vector<Alternative> take() {
    std::stable_partition(found_.begin(), found_.end(),
                          [](const Alternative& each) { return !each.null; });
    return std::move(found_);
  }

 private:
  Scene& scene_;
  const SweptCall& call_;
  std::vector<Alternative> found_;
};

}  // namespace

std::vector<Argument> plausible_arguments(Scene& scene, const SweptCall& call) {
  const Unrecorded quiet;
  std::vector<Argument> arguments;
  for (const Parameter& parameter : call.parameters) {
    arguments.push_back(plausible(scene, call, parameter));
  }
  // A linker's input says how long it is.
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].as<std::int64_t>() == -2 && call.parameters[i].name == "size") {
      arguments[i] = Argument::of(std::strlen(arguments[i - 1].as<const char*>()) + 1);
    }
  }
  return arguments;
}

std::vector<Alternative> alternatives(Scene& scene, const SweptCall& call,
                                      const std::vector<Argument>& plausible) {
  const Unrecorded quiet;
  Collector all(scene, call);
  for (std::size_t i = 0; i < call.parameters.size(); ++i) {
    const Parameter& parameter = call.parameters[i];
    bool first = true;
    if (parameter.type == "CUstream" && parameter.kind == Kind::kHandle) {
      for (const std::uint64_t value : {0, 1, 2}) {
        all.add(i, std::to_string(value), Argument::of(value));
      }
    } else if (is_object(parameter)) {
      all.add(i, "null", {}, true);
    } else if (is_address(parameter)) {
      const auto live = plausible[i].as<std::uint64_t>();
      // Where any address may be one of the host, it is used as that.
      if (!like(call.base, "cuMemcpy:cuMemcpyAsync")) {
        all.add(i, "0", {});
        all.add(i, "0x1000", Argument::of(std::uint64_t{0x1000}));
      }
      all.add(i, "last-byte", Argument::of(live + kSweepMemory - 1));
    } else if (parameter.kind == Kind::kInteger || parameter.kind == Kind::kEnum) {
      all.numbers(i, first);
    } else if (parameter.kind == Kind::kFloat) {
      all.add(i, "-1", Argument::of(-1.0f));
      all.add(i, "1e30", Argument::of(1e30f));
    } else if (parameter.kind == Kind::kCallback) {
      all.add(i, "null", {}, true);
    } else if (parameter.kind == Kind::kStruct) {
      all.members(i, plausible[i]);
    } else {
      all.pointers(i, plausible[i]);
    }
  }
  return all.take();
}

}  // namespace flyt::conformance
