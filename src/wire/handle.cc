#include "wire/handle.h"

namespace flyt::wire {

static_assert(Handle::make(HandleKind::kStream, 1, 1).value == 0x6080'0400'0010);
static_assert(Handle::make(HandleKind::kLogCallback, kHandleGenerationMax, kHandleIndexMax).value <
              std::uint64_t{1} << 47);

std::string_view to_string(HandleKind kind) {
  switch (kind) {
    case HandleKind::kContext:
      return "context";
    case HandleKind::kStream:
      return "stream";
    case HandleKind::kEvent:
      return "event";
    case HandleKind::kModule:
      return "module";
    case HandleKind::kFunction:
      return "function";
    case HandleKind::kLibrary:
      return "library";
    case HandleKind::kKernel:
      return "kernel";
    case HandleKind::kLink:
      return "link";
    case HandleKind::kMemAllocation:
      return "memory allocation";
    case HandleKind::kPool:
      return "pool";
    case HandleKind::kGraph:
      return "graph";
    case HandleKind::kGraphNode:
      return "graph node";
    case HandleKind::kGraphExec:
      return "executable graph";
    case HandleKind::kArray:
      return "array";
    case HandleKind::kMipmappedArray:
      return "mipmapped array";
    case HandleKind::kTexture:
      return "texture";
    case HandleKind::kSurface:
      return "surface";
    case HandleKind::kTextureReference:
      return "texture reference";
    case HandleKind::kSurfaceReference:
      return "surface reference";
    case HandleKind::kUserObject:
      return "user object";
    case HandleKind::kGreenContext:
      return "green context";
    case HandleKind::kExternalMemory:
      return "external memory";
    case HandleKind::kExternalSemaphore:
      return "external semaphore";
    case HandleKind::kGraphicsResource:
      return "graphics resource";
    case HandleKind::kResourceDescription:
      return "resource description";
    case HandleKind::kHostCall:
      return "host call";
    case HandleKind::kUpload:
      return "upload";
    case HandleKind::kLogCallback:
      return "log callback";
  }
  return "unknown";
}

}  // namespace flyt::wire
