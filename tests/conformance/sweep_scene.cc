#include "tests/conformance/sweep_scene.h"

#include <fnmatch.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sstream>

#include "tests/conformance/green.h"
#include "tests/conformance/sweep_text.h"

namespace flyt::conformance {
namespace {

constexpr std::size_t kGranule = 2 << 20;

CUmemAllocationProp shareable() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  return properties;
}

}  // namespace

bool like(std::string_view text, const char* patterns) {
  const std::string name(text);
  std::stringstream stream(patterns);
  std::string pattern;
  while (std::getline(stream, pattern, ':')) {
    if (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  }
  return false;
}

Scene::~Scene() {
  const Unrecorded quiet;
  while (!owned_.empty()) {
    owned_.back().second();
    owned_.pop_back();
  }
}

std::uint64_t Scene::once(const std::string& key, const std::function<std::uint64_t()>& make) {
  const auto found = made_.find(key);
  if (found != made_.end()) return found->second;
  const std::uint64_t made = make();
  made_.emplace(key, made);
  return made;
}

void Scene::own(std::uint64_t object, Destroy destroy) {
  if (object != 0) owned_.emplace_back(object, std::move(destroy));
}

void Scene::tell(const char* what, CUresult result) {
  if (result != CUDA_SUCCESS) failed_.emplace_back(what, result);
}

std::byte* Scene::buffer() {
  buffers_.push_back(std::make_unique<std::array<std::byte, kSweepBuffer + 4096>>());
  buffers_.back()->fill(std::byte{0});
  const std::uint64_t address = number_of(buffers_.back()->data());
  return from_number<std::byte*>((address + 4095) & ~std::uint64_t{4095});
}

std::uint64_t Scene::object(std::string_view type, std::string_view parameter) {
  if (context_ == nullptr) return 0;
  if (type == "CUstream") return number_of(stream());
  if (type == "CUevent") return number_of(event(parameter));
  if (type == "CUmodule") return number_of(module(like(call_.base, "*TexRef*:*SurfRef*")));
  if (type == "CUfunction") return number_of(function());
  if (type == "CUlibrary") return number_of(library());
  if (type == "CUkernel") return number_of(kernel());
  if (type == "CUlinkState") return number_of(link());
  if (type == "CUarray") return number_of(array(parameter));
  if (type == "CUmipmappedArray") return number_of(levels());
  if (type == "CUtexref") return number_of(texture_reference());
  if (type == "CUsurfref") return number_of(surface_reference());
  if (type == "CUtexObject") return texture();
  if (type == "CUsurfObject") return surface();
  if (type == "CUcontext") return number_of(context_for_call());
  if (type == "CUgreenCtx") return number_of(green());
  if (type == "CUdevResourceDesc") return number_of(green_description());
  if (type == "CUmemoryPool") return number_of(pool());
  if (type == "CUuserObject") return number_of(user_object());
  if (type == "CUmemGenericAllocationHandle") return allocation();
  if (type == "CUgraph") return number_of(graph(parameter));
  if (type == "CUgraphNode") return number_of(node(parameter));
  if (type == "CUgraphExec") return number_of(exec());
  if (type == "CUasyncCallbackHandle") return number_of(notification());
  if (type == "CUlogsCallbackHandle") return number_of(log_callback());
  return 0;
}

CUstream Scene::stream() {
  return from_number<CUstream>(once("stream", [this] {
    CUstream made = nullptr;
    tell("stream", cu().cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    if (like(call_.base, "cuStreamEndCapture:cuStreamUpdateCaptureDependencies*")) {
      cu().cuStreamBeginCapture_v2(made, CU_STREAM_CAPTURE_MODE_RELAXED);
    }
    own(number_of(made), [made] {
      CUstreamCaptureStatus status{};
      CUgraph captured = nullptr;
      cu().cuStreamIsCapturing(made, &status);
      if (status != CU_STREAM_CAPTURE_STATUS_NONE) cu().cuStreamEndCapture(made, &captured);
      if (captured != nullptr) cu().cuGraphDestroy(captured);
      cu().cuStreamDestroy_v2(made);
    });
    return number_of(made);
  }));
}

CUevent Scene::event(std::string_view parameter) {
  const bool later = parameter == "hEnd";
  return from_number<CUevent>(once(later ? "later event" : "event", [this] {
    CUevent made = nullptr;
    const bool shared = like(call_.base, "cuIpc*");
    tell("event",
         cu().cuEventCreate(&made, shared ? CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING : 0u));
    own(number_of(made), [made] { cu().cuEventDestroy_v2(made); });
    if (like(call_.base, "cuEvent*") && made != nullptr && context_ != nullptr) {
      cu().cuEventRecord(made, stream());
      cu().cuStreamSynchronize(stream());
    }
    return number_of(made);
  }));
}

CUmodule Scene::module(bool textures) {
  return from_number<CUmodule>(once(textures ? "texture module" : "module", [this, textures] {
    CUmodule made = nullptr;
    tell("module", cu().cuModuleLoadData(&made, textures ? kSweepTextures : kSweepCode));
    own(number_of(made), [made] { cu().cuModuleUnload(made); });
    return number_of(made);
  }));
}

CUfunction Scene::function() {
  const bool launched = like(call_.base, "*Launch*:*Graph*");
  return from_number<CUfunction>(once("function", [this, launched] {
    CUfunction made = nullptr;
    tell("function", cu().cuModuleGetFunction(&made, module(false), launched ? "empty" : "one"));
    return number_of(made);
  }));
}

CUlibrary Scene::library() {
  return from_number<CUlibrary>(once("library", [this] {
    CUlibrary made = nullptr;
    tell("library",
         cu().cuLibraryLoadData(&made, kSweepCode, nullptr, nullptr, 0, nullptr, nullptr, 0));
    own(number_of(made), [made] { cu().cuLibraryUnload(made); });
    return number_of(made);
  }));
}

CUkernel Scene::kernel() {
  return from_number<CUkernel>(once("kernel", [this] {
    CUkernel made = nullptr;
    tell("kernel", cu().cuLibraryGetKernel(&made, library(), "one"));
    return number_of(made);
  }));
}

CUlinkState Scene::link() {
  return from_number<CUlinkState>(once("link", [this] {
    CUlinkState made = nullptr;
    tell("link", cu().cuLinkCreate_v2(0, nullptr, nullptr, &made));
    own(number_of(made), [made] { cu().cuLinkDestroy(made); });
    if (call_.base == "cuLinkComplete" && made != nullptr) {
      std::string text = kSweepCode;
      tell("part", cu().cuLinkAddData_v2(made, CU_JIT_INPUT_PTX, text.data(), text.size() + 1,
                                         "part", 0, nullptr, nullptr));
    }
    return number_of(made);
  }));
}

CUarray Scene::array(std::string_view parameter) {
  const bool other = like(parameter, "src*");
  return from_number<CUarray>(once(other ? "other array" : "array", [this] {
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    describe_array("CUDA_ARRAY3D_DESCRIPTOR_v2", std::bit_cast<std::byte*>(&shape));
    CUarray made = nullptr;
    tell("array", cu().cuArray3DCreate_v2(&made, &shape));
    own(number_of(made), [made] { cu().cuArrayDestroy(made); });
    return number_of(made);
  }));
}

CUmipmappedArray Scene::levels() {
  return from_number<CUmipmappedArray>(once("levels", [this] {
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    describe_array("CUDA_ARRAY3D_DESCRIPTOR_v2", std::bit_cast<std::byte*>(&shape));
    CUmipmappedArray made = nullptr;
    tell("levels", cu().cuMipmappedArrayCreate(&made, &shape, 2));
    own(number_of(made), [made] { cu().cuMipmappedArrayDestroy(made); });
    return number_of(made);
  }));
}

CUtexref Scene::texture_reference() {
  return from_number<CUtexref>(once("texture reference", [this] {
    CUtexref made = nullptr;
    if (call_.base == "cuTexRefDestroy") {
      tell("texture-reference", cu().cuTexRefCreate(&made));
      own(number_of(made), [made] { cu().cuTexRefDestroy(made); });
    } else {
      tell("texture-reference", cu().cuModuleGetTexRef(&made, module(true), "picture"));
    }
    if (made != nullptr && like(call_.base, "cuTexRefGetAddress*")) {
      std::size_t offset = 0;
      cu().cuTexRefSetAddress_v2(&offset, made, memory("memory"), 256);
    }
    if (made != nullptr && like(call_.base, "cuTexRefGetArray")) {
      cu().cuTexRefSetArray(made, array("hArray"), CU_TRSA_OVERRIDE_FORMAT);
    }
    return number_of(made);
  }));
}

CUsurfref Scene::surface_reference() {
  return from_number<CUsurfref>(once("surface reference", [this] {
    CUsurfref made = nullptr;
    tell("surface-reference", cu().cuModuleGetSurfRef(&made, module(true), "canvas"));
    if (made != nullptr && like(call_.base, "cuSurfRefGetArray")) {
      cu().cuSurfRefSetArray(made, array("hArray"), 0);
    }
    return number_of(made);
  }));
}

std::uint64_t Scene::texture() {
  return once("texture", [this] {
    CUDA_RESOURCE_DESC resource{};
    CUDA_TEXTURE_DESC description{};
    resource.res.array.hArray = array("hArray");
    CUtexObject made = 0;
    tell("texture", cu().cuTexObjectCreate(&made, &resource, &description, nullptr));
    own(made, [made] { cu().cuTexObjectDestroy(made); });
    return std::uint64_t{made};
  });
}

std::uint64_t Scene::surface() {
  return once("surface", [this] {
    CUDA_RESOURCE_DESC resource{};
    resource.res.array.hArray = array("hArray");
    CUsurfObject made = 0;
    tell("surface", cu().cuSurfObjectCreate(&made, &resource));
    own(made, [made] { cu().cuSurfObjectDestroy(made); });
    return std::uint64_t{made};
  });
}

CUcontext Scene::context_for_call() {
  if (!like(call_.base, "cuCtxDestroy*:cuCtxDetach:cuCtxPushCurrent*")) return context_;
  return from_number<CUcontext>(once("context", [this] {
    CUcontext made = nullptr;
    CUcontext popped = nullptr;
    tell("context", cu().cuCtxCreate_v2(&made, 0, 0));
    own(number_of(made), [made] { cu().cuCtxDestroy_v2(made); });
    if (made != nullptr) cu().cuCtxPopCurrent_v2(&popped);
    return number_of(made);
  }));
}

CUdevResourceDesc Scene::green_description() {
  return from_number<CUdevResourceDesc>(once("green description", [this] {
    CUdevResourceDesc made = nullptr;
    groups_ = smallest_groups();
    tell("green-description", cu().cuDevResourceGenerateDesc(&made, groups_.data(), 1));
    return number_of(made);
  }));
}

CUgreenCtx Scene::green() {
  return from_number<CUgreenCtx>(once("green", [this] {
    CUgreenCtx made = nullptr;
    const CUdevResourceDesc description = green_description();
    if (description == nullptr) return std::uint64_t{0};
    tell("green", cu().cuGreenCtxCreate(&made, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    own(number_of(made), [made] { cu().cuGreenCtxDestroy(made); });
    return number_of(made);
  }));
}

CUmemoryPool Scene::pool() {
  return from_number<CUmemoryPool>(once("pool", [this] {
    CUmemPoolProps properties{};
    describe_memory("CUmemPoolProps_v1", std::bit_cast<std::byte*>(&properties));
    CUmemoryPool made = nullptr;
    tell("pool", cu().cuMemPoolCreate(&made, &properties));
    own(number_of(made), [made] { cu().cuMemPoolDestroy(made); });
    return number_of(made);
  }));
}

CUuserObject Scene::user_object() {
  return from_number<CUuserObject>(once("user object", [this] {
    CUuserObject made = nullptr;
    tell("user-object", cu().cuUserObjectCreate(
                            &made, buffer(), [](void*) {}, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    own(number_of(made), [made] { cu().cuUserObjectRelease(made, 1); });
    if (made != nullptr && call_.base == "cuGraphReleaseUserObject") {
      cu().cuGraphRetainUserObject(graph("graph"), made, 1, 0);
    }
    return number_of(made);
  }));
}

CUasyncCallbackHandle Scene::notification() {
  return from_number<CUasyncCallbackHandle>(once("notification", [this] {
    CUasyncCallbackHandle made = nullptr;
    tell("notification",
         cu().cuDeviceRegisterAsyncNotification(
             0, [](CUasyncNotificationInfo*, void*, CUasyncCallbackHandle) {}, nullptr, &made));
    own(number_of(made), [made] { cu().cuDeviceUnregisterAsyncNotification(0, made); });
    return number_of(made);
  }));
}

CUlogsCallbackHandle Scene::log_callback() {
  return from_number<CUlogsCallbackHandle>(once("log callback", [this] {
    CUlogsCallbackHandle made = nullptr;
    tell("log-callback",
         cu().cuLogsRegisterCallback([](void*, CUlogLevel, char*, std::size_t) {}, nullptr, &made));
    own(number_of(made), [made] { cu().cuLogsUnregisterCallback(made); });
    return number_of(made);
  }));
}

CUmemGenericAllocationHandle Scene::allocation() {
  return once("allocation", [this] {
    const CUmemAllocationProp properties = shareable();
    CUmemGenericAllocationHandle made = 0;
    tell("allocation", cu().cuMemCreate(&made, kGranule, &properties, 0));
    own(made, [made] { cu().cuMemRelease(made); });
    return std::uint64_t{made};
  });
}

CUdeviceptr Scene::reserved() {
  return once("reserved", [this] {
    CUdeviceptr made = 0;
    tell("reserved", cu().cuMemAddressReserve(&made, kGranule, 0, 0, 0));
    own(made, [made] { cu().cuMemAddressFree(made, kGranule); });
    return std::uint64_t{made};
  });
}

CUdeviceptr Scene::mapped() {
  return once("mapped", [this] {
    const CUdeviceptr at = reserved();
    const CUresult result = cu().cuMemMap(at, kGranule, 0, allocation(), 0);
    tell("mapped", result);
    if (result != CUDA_SUCCESS) return std::uint64_t{0};
    const CUmemAccessDesc access{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    tell("access", cu().cuMemSetAccess(at, kGranule, &access, 1));
    // Reserved addresses that are mapped have the same number: told apart by the highest bit.
    own(at | (std::uint64_t{1} << 63), [at] { cu().cuMemUnmap(at, kGranule); });
    return std::uint64_t{at};
  });
}

CUdeviceptr Scene::memory(const char* key) {
  return once(key, [this] {
    CUdeviceptr made = 0;
    tell("memory", cu().cuMemAlloc_v2(&made, kSweepMemory));
    own(made, [made] { cu().cuMemFree_v2(made); });
    // Words that are one, of four bytes or eight: any of the ways to wait for that finds it.
    if (made != 0) {
      cu().cuMemsetD8_v2(made, 0, kSweepMemory);
      cu().cuMemsetD8_v2(made, 1, 1);
      cu().cuCtxSynchronize();
    }
    return std::uint64_t{made};
  });
}

CUdeviceptr Scene::managed() {
  return once("managed", [this] {
    CUdeviceptr made = 0;
    tell("managed", cu().cuMemAllocManaged(&made, kSweepMemory, CU_MEM_ATTACH_GLOBAL));
    own(made, [made] { cu().cuMemFree_v2(made); });
    return std::uint64_t{made};
  });
}

CUdeviceptr Scene::pooled() {
  return once("pooled", [this] {
    CUdeviceptr made = 0;
    tell("pooled", cu().cuMemAllocFromPoolAsync(&made, kSweepMemory, pool(), stream()));
    cu().cuStreamSynchronize(stream());
    own(made, [made] { cu().cuMemFree_v2(made); });
    return std::uint64_t{made};
  });
}

void* Scene::pinned() {
  return from_number<void*>(once("pinned", [this] {
    void* made = nullptr;
    tell("pinned", cu().cuMemHostAlloc(&made, kSweepMemory, CU_MEMHOSTALLOC_DEVICEMAP));
    own(number_of(made), [made] { cu().cuMemFreeHost(made); });
    return number_of(made);
  }));
}

void* Scene::registered() {
  return from_number<void*>(once("registered", [this] {
    void* memory = buffer();
    tell("registered", cu().cuMemHostRegister_v2(memory, 4096, 0));
    own(number_of(memory), [memory] { cu().cuMemHostUnregister(memory); });
    return number_of(memory);
  }));
}

int Scene::exported() {
  return static_cast<int>(once("exported", [this] {
    int fd = -1;
    if (like(call_.base, "cuMemPool*")) {
      tell("exported", cu().cuMemPoolExportToShareableHandle(
                           &fd, pool(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    } else {
      tell("exported", cu().cuMemExportToShareableHandle(
                           &fd, allocation(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    }
    if (fd > 0) own(static_cast<std::uint64_t>(fd), [fd] { ::close(fd); });
    return static_cast<std::uint64_t>(fd);
  }));
}

CUdeviceptr Scene::address(std::string_view parameter) {
  if (context_ == nullptr) return 0;
  if (like(call_.base, "cuMemMap:cuMemAddressFree")) return reserved();
  if (like(call_.base, "cuMemUnmap:cuMemSetAccess:cuMemGetAccess")) return mapped();
  if (like(call_.base, "cuMemAddressReserve")) return 0;
  if (like(call_.base, "cuMemPoolExportPointer:cuMemFreeAsync")) return pooled();
  if (like(call_.base, "cuStreamAttachMemAsync:cuMemDiscard*") || like(parameter, "devPtr")) {
    return managed();
  }
  if (call_.base == "cuGraphAddMemFreeNode") {
    if (node_memory_ == 0) add_memory_node(graph("hGraph"), false);
    return node_memory_;
  }
  return memory(like(parameter, "src*") ? "other memory" : "memory");
}

void* Scene::host(std::string_view parameter) {
  if (like(parameter, "image:code:fatCubin") ||
      (parameter == "data" && like(call_.base, "cuLinkAddData*"))) {
    std::byte* copy = buffer();
    std::memcpy(copy, kSweepCode, std::strlen(kSweepCode) + 1);
    return copy;
  }
  if (context_ == nullptr) return nullptr;
  if (like(call_.base, "cuMemFreeHost:cuMemHostGet*") && parameter == "p") return pinned();
  if (call_.base == "cuMemHostUnregister") return registered();
  if (like(call_.base, "cuMem*ImportFromShareableHandle")) {
    return from_number<void*>(static_cast<std::uint64_t>(exported()));
  }
  if (parameter == "globalAddress") return from_number<void*>(std::uint64_t{memory("memory")});
  if (call_.base == "cuMemRetainAllocationHandle" && parameter == "addr") {
    return from_number<void*>(std::uint64_t{mapped()});
  }
  return nullptr;
}

std::string Scene::text(std::string_view parameter) {
  if (parameter == "pciBusId") {
    char told[32] = {};
    cu().cuDeviceGetPCIBusId(told, sizeof told, 0);
    return told;
  }
  if (parameter == "symbol" && like(call_.base, "cuGetProcAddress*")) return "cuMemAlloc";
  if (like(parameter, "fname:fileName") || (parameter == "path" && like(call_.base, "cuLink*"))) {
    const auto fd = static_cast<int>(once("file", [this] {
      const int made = ::memfd_create("sweep", MFD_CLOEXEC);
      const std::string_view code = kSweepCode;
      if (::write(made, code.data(), code.size()) < 0) return std::uint64_t{0};
      own(static_cast<std::uint64_t>(made), [made] { ::close(made); });
      return static_cast<std::uint64_t>(made);
    }));
    return "/proc/self/fd/" + std::to_string(fd);
  }
  if (like(parameter, "path:pathToFile:outputFile:configFile")) return "/dev/null";
  if (like(call_.base, "*GetGlobal*:*GetManaged")) return "counter";
  if (like(call_.base, "*TexRef*")) return "picture";
  if (like(call_.base, "*SurfRef*")) return "canvas";
  return "one";
}

void Scene::settle(const std::vector<Argument>& arguments) {
  const Unrecorded quiet;
  const bool destroys =
      like(call_.base, "*Destroy*:*Unload*:*Free*:*Release*:*Detach*:*Unregister*:*Unmap*");
  const bool makes =
      like(call_.base, "*Create*:*Alloc*:*Load*:*Clone*:*Instantiate*:*EndCapture*:*Retain*");
  if (like(call_.base, "cuMemHostRegister*")) cu().cuMemHostUnregister(arguments[0].as<void*>());
  const bool moves = call_.base == "cuGraphRetainUserObject" &&
                     arguments.back().as<unsigned>() == CU_GRAPH_USER_OBJECT_MOVE;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Parameter& parameter = call_.parameters[i];
    const auto value = arguments[i].as<std::uint64_t>();
    if ((destroys && parameter.type != "CUdevice") || (moves && parameter.type == "CUuserObject")) {
      const std::uint64_t marked = value | (std::uint64_t{1} << 63);
      const bool unmapped = call_.base == "cuMemUnmap";
      std::erase_if(owned_,
                    [&](const auto& each) { return each.first == (unmapped ? marked : value); });
    }
    const bool told = parameter.kind == Kind::kPointer && !parameter.is_const && value != 0 &&
                      parameter.stars == (parameter.type == "void" ? 2 : 1);
    if (makes && told) {
      std::uint64_t object = 0;
      std::memcpy(&object, from_number<void*>(value), sizeof object);
      if (object != 0) made(parameter, object);
    }
  }
}

void Scene::end_captures(const std::vector<Argument>& arguments) {
  if (!like(call_.base, "cuStream*Capture*")) return;
  const Unrecorded quiet;
  const bool own_stream = std::string_view(call_.name).ends_with("_ptsz");
  const auto end = [this](CUstream stream) {
    CUstreamCaptureStatus status{};
    CUgraph captured = nullptr;
    cu().cuStreamIsCapturing(stream, &status);
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) cu().cuStreamEndCapture(stream, &captured);
    if (captured != nullptr && call_.base != "cuStreamBeginCaptureToGraph") {
      cu().cuGraphDestroy(captured);
    }
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (call_.parameters[i].type != "CUstream") continue;
    const auto value = arguments[i].as<std::uint64_t>();
    end(own_stream && value == 0 ? CU_STREAM_PER_THREAD : from_number<CUstream>(value));
  }
  end(stream());
}

void Scene::made(const Parameter& parameter, std::uint64_t object) {
  const std::string_view type = parameter.type;
  if (type == "CUstream") cu().cuStreamDestroy_v2(from_number<CUstream>(object));
  if (type == "CUevent") cu().cuEventDestroy_v2(from_number<CUevent>(object));
  if (type == "CUmodule") cu().cuModuleUnload(from_number<CUmodule>(object));
  if (type == "CUlibrary") cu().cuLibraryUnload(from_number<CUlibrary>(object));
  if (type == "CUarray") cu().cuArrayDestroy(from_number<CUarray>(object));
  if (type == "CUmipmappedArray")
    cu().cuMipmappedArrayDestroy(from_number<CUmipmappedArray>(object));
  if (type == "CUgraph") cu().cuGraphDestroy(from_number<CUgraph>(object));
  if (type == "CUgraphExec") cu().cuGraphExecDestroy(from_number<CUgraphExec>(object));
  if (type == "CUmemoryPool") cu().cuMemPoolDestroy(from_number<CUmemoryPool>(object));
  if (type == "CUlinkState") cu().cuLinkDestroy(from_number<CUlinkState>(object));
  if (type == "CUgreenCtx") cu().cuGreenCtxDestroy(from_number<CUgreenCtx>(object));
  if (type == "CUtexref") cu().cuTexRefDestroy(from_number<CUtexref>(object));
  if (type == "CUtexObject") cu().cuTexObjectDestroy(object);
  if (type == "CUsurfObject") cu().cuSurfObjectDestroy(object);
  if (type == "CUmemGenericAllocationHandle") cu().cuMemRelease(object);
  if (type == "CUuserObject") cu().cuUserObjectRelease(from_number<CUuserObject>(object), 1);
  if (type == "CUdeviceptr" && like(call_.base, "*Alloc*")) cu().cuMemFree_v2(object);
  if (type == "void" && like(call_.base, "*Alloc*")) cu().cuMemFreeHost(from_number<void*>(object));
  if (type == "CUcontext" && like(call_.base, "cuCtxCreate*")) {
    cu().cuCtxDestroy_v2(from_number<CUcontext>(object));
  }
  if (type == "CUcontext" && like(call_.base, "*Retain*")) cu().cuDevicePrimaryCtxRelease_v2(0);
}

}  // namespace flyt::conformance
