// Texture and surface references: named by modules, superseded by objects.
#include "server/hooks_texture_reference.h"

#include <string>
#include <utility>

#include "server/code/code_subjects.h"
#include "server/memory/images.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

// A reference goes with its module, and keeps what is bound to it.
struct Reference : CodeOrigin {
  Mutex bound_mutex;
  std::shared_ptr<Attachment> bound GUARDED_BY(bound_mutex);
};

// A reference of the client's.
template <class Native>
struct Found {
  Native native = nullptr;
  std::shared_ptr<Reference> reference;
  explicit operator bool() const { return reference != nullptr; }

  void bind(std::shared_ptr<Attachment> what) const {
    const Lock lock(reference->bound_mutex);
    reference->bound.swap(what);
  }
};

template <class Native>
Found<Native> find(Session& session, wire::HandleKind kind, Native handle) {
  Handles::Entry entry = session.handles().entry(kind, address_of(handle));
  return {static_cast<Native>(entry.native),
          std::static_pointer_cast<Reference>(std::move(entry.attachment))};
}

Found<CUtexref> find(Session& session, CUtexref handle) {
  return find(session, wire::HandleKind::kTextureReference, handle);
}

CUresult put(Session& session, wire::HandleKind kind, std::uint64_t handle, void* native,
             std::shared_ptr<Reference> reference) {
  if (session.handles().put(kind, handle, native, std::move(reference))) return CUDA_SUCCESS;
  session.end("bad handle for a new reference");
  return CUDA_ERROR_INVALID_HANDLE;
}

// Asks the driver for a reference of a module, which the client names from now on.
template <class Native, class Get>
CUresult get(Request& request, CUmodule module, std::string_view name, wire::HandleKind kind,
             Native handle, Get get_from_driver) {
  Session& session = request.session();
  const Handles::Entry entry =
      session.handles().entry(wire::HandleKind::kModule, address_of(module));
  if (!entry) return CUDA_ERROR_INVALID_HANDLE;
  Native native = nullptr;
  const CUresult result =
      get_from_driver(&native, static_cast<CUmodule>(entry.native), std::string(name).c_str());
  if (result != CUDA_SUCCESS) return result;
  auto reference = std::make_shared<Reference>();
  const auto& origin = static_cast<const CodeOrigin&>(*entry.attachment);
  reference->context = origin.context;
  reference->module = address_of(module);
  reference->library = origin.library;
  return put(session, kind, address_of(handle), native, std::move(reference));
}

}  // namespace

CUresult get_texture_reference(Request& request, const commands::GetTextureReference& command) {
  return get(request, command.module, command.name, wire::HandleKind::kTextureReference,
             command.reference, request.driver().cuModuleGetTexRef);
}

CUresult get_surface_reference(Request& request, const commands::GetSurfaceReference& command) {
  return get(request, command.module, command.name, wire::HandleKind::kSurfaceReference,
             command.reference, request.driver().cuModuleGetSurfRef);
}

CUresult create_texture_reference(Request& request,
                                  const commands::CreateTextureReference& command) {
  CUtexref native = nullptr;
  const CUresult result = request.driver().cuTexRefCreate(&native);
  if (result != CUDA_SUCCESS) return result;
  auto reference = std::make_shared<Reference>();
  reference->context = request.home();
  return put(request.session(), wire::HandleKind::kTextureReference, address_of(command.reference),
             native, std::move(reference));
}

CUresult destroy_texture_reference(Request& request,
                                   const commands::DestroyTextureReference& command) {
  Session& session = request.session();
  const Found<CUtexref> found = find(session, command.reference);
  if (!found || found.reference->module != 0) return CUDA_ERROR_INVALID_HANDLE;
  session.handles().drop(wire::HandleKind::kTextureReference, address_of(command.reference));
  return request.driver().cuTexRefDestroy(found.native);
}

CUresult bind_texture_array(Request& request, const commands::BindTextureArray& command) {
  Session& session = request.session();
  const Found<CUtexref> found = find(session, command.reference);
  Handles::Entry array =
      session.handles().entry(wire::HandleKind::kArray, address_of(command.array));
  if (!found || !array) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = request.driver().cuTexRefSetArray(
      found.native, static_cast<CUarray>(array.native), command.flags);
  if (result == CUDA_SUCCESS) found.bind(std::move(array.attachment));
  return result;
}

CUresult bind_texture_mipmapped(Request& request, const commands::BindTextureMipmapped& command) {
  Session& session = request.session();
  const Found<CUtexref> found = find(session, command.reference);
  Handles::Entry array =
      session.handles().entry(wire::HandleKind::kMipmappedArray, address_of(command.array));
  if (!found || !array) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = request.driver().cuTexRefSetMipmappedArray(
      found.native, static_cast<CUmipmappedArray>(array.native), command.flags);
  if (result == CUDA_SUCCESS) found.bind(std::move(array.attachment));
  return result;
}

CUresult bind_texture_memory(Request& request, const commands::BindTextureMemory& command,
                             commands::BindTextureMemory::Reply& reply) {
  Session& session = request.session();
  const Found<CUtexref> found = find(session, command.reference);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  // What is there is a kernel's affair, which reads where it wants to anyway.
  std::size_t offset = 0;
  const CUresult result = request.driver().cuTexRefSetAddress_v2(
      command.wants_offset ? &offset : nullptr, found.native, command.address, command.bytes);
  if (result == CUDA_SUCCESS) found.bind(nullptr);
  reply.offset = offset;
  return result;
}

CUresult bind_texture_rows(Request& request, const commands::BindTextureRows& command) {
  Session& session = request.session();
  const Found<CUtexref> found = find(session, command.reference);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  const CUDA_ARRAY_DESCRIPTOR& descriptor = command.descriptor;
  if (!cuda::texel_of(descriptor.Format, descriptor.NumChannels)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = request.driver().cuTexRefSetAddress2D_v3(found.native, &descriptor,
                                                                   command.address, command.pitch);
  if (result == CUDA_SUCCESS) found.bind(nullptr);
  return result;
}

CUresult bind_surface_array(Request& request, const commands::BindSurfaceArray& command) {
  Session& session = request.session();
  const auto found = find(session, wire::HandleKind::kSurfaceReference, command.reference);
  Handles::Entry array =
      session.handles().entry(wire::HandleKind::kArray, address_of(command.array));
  if (!found || !array) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = request.driver().cuSurfRefSetArray(
      found.native, static_cast<CUarray>(array.native), command.flags);
  if (result == CUDA_SUCCESS) found.bind(std::move(array.attachment));
  return result;
}

}  // namespace flyt::server::hooks
