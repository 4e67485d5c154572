#include "server/request.h"

#include <string>
#include <utility>

#include "server/context_subjects.h"
#include "server/faults/session_faults.h"
#include "server/lease/moves.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server {

Request::Request(Session& session, const rpc::Command& command)
    : session_(&session),
      header_(command.header),
      payload_(command.payload),
      chunk_(command.chunk) {}

Request::Request(Request&& other) noexcept
    : session_(other.session_),
      header_(other.header_),
      payload_(other.payload_),
      chunk_(std::move(other.chunk_)),
      block_(std::move(other.block_)),
      begun_(other.begun_),
      answered_(std::exchange(other.answered_, true)) {}

Request::~Request() {
  if (!answered_) send(CUDA_ERROR_UNKNOWN, {});
}

const driver::Table& Request::driver() const { return session_->driver(); }

std::uint32_t Request::home() const { return session_->contexts().home_of(header_.context); }

template <class Native>
bool Request::resolve_as(wire::HandleKind kind, Native& handle) const {
  handle = static_cast<Native>(session_->handles().find(kind, address_of(handle)));
  return handle != nullptr;
}

template <class Native>
bool Request::take_as(wire::HandleKind kind, Native& handle) {
  handle = static_cast<Native>(session_->handles().drop(kind, address_of(handle)).native);
  return handle != nullptr;
}

bool Request::resolve(CUcontext& handle) const {
  return resolve_as(wire::HandleKind::kContext, handle);
}
bool Request::resolve(CUmodule& handle) const {
  return resolve_as(wire::HandleKind::kModule, handle);
}
bool Request::resolve(CUlibrary& handle) const {
  return resolve_as(wire::HandleKind::kLibrary, handle);
}
bool Request::resolve(CUfunction& handle) const {
  const bool kernel = wire::Handle{address_of(handle)}.kind() == wire::HandleKind::kKernel;
  return resolve_as(kernel ? wire::HandleKind::kKernel : wire::HandleKind::kFunction, handle);
}
bool Request::resolve(CUkernel& handle) const {
  return resolve_as(wire::HandleKind::kKernel, handle);
}
bool Request::resolve(CUevent& handle) const {
  return resolve_as(wire::HandleKind::kEvent, handle);
}
bool Request::resolve(CUtexref& handle) const {
  return resolve_as(wire::HandleKind::kTextureReference, handle);
}
bool Request::resolve(CUsurfref& handle) const {
  return resolve_as(wire::HandleKind::kSurfaceReference, handle);
}
bool Request::resolve(CUstream& handle) const {
  switch (address_of(handle)) {
    case wire::kStreamNull:
    case wire::kStreamLegacy:
      session_->moves().note_default_stream();
      handle = CU_STREAM_LEGACY;
      return true;
    case wire::kStreamPerThread:
      handle = session_->thread_stream(context(), thread());
      return handle != nullptr;
    default:
      return resolve_as(wire::HandleKind::kStream, handle);
  }
}

std::shared_ptr<Attachment> Request::owner_of(CUstream handle) const {
  if (address_of(handle) == wire::kStreamPerThread) {
    return session_->contexts().thread_stream_owner(context(), thread());
  }
  return session_->handles().entry(wire::HandleKind::kStream, address_of(handle)).attachment;
}

bool Request::take(CUstream& handle) { return take_as(wire::HandleKind::kStream, handle); }
bool Request::take(CUevent& handle) { return take_as(wire::HandleKind::kEvent, handle); }

bool Request::adopt(CUstream client, CUstream native) {
  return adopt(wire::HandleKind::kStream, client, native);
}
bool Request::adopt(CUevent client, CUevent native) {
  return adopt(wire::HandleKind::kEvent, client, native);
}
bool Request::adopt(wire::HandleKind kind, const void* client, void* native,
                    std::shared_ptr<Attachment> attachment) {
  if (session_->handles().put(kind, address_of(client), native, std::move(attachment))) {
    return true;
  }
  answered_ = true;
  session_->end("bad handle for a new " + std::string(wire::to_string(kind)));
  return false;
}

void Request::send(CUresult result, Bytes fields) {
  answered_ = true;
  if (session_->faults() != nullptr) {
    session_->faults()->before_answer(result, *this);
  } else if (result != CUDA_SUCCESS) {
    session_->own_faults().see(result);
  }
  if (waits()) {
    session_->flush_before_reply();
    // Only success tells that work is done.
    if (result == CUDA_SUCCESS) session_->memory().host_mirror.before_reply(header_.op);
    session_->endpoint().reply(header_.sequence, static_cast<std::uint32_t>(result), fields);
  } else if (result != CUDA_SUCCESS) {
    session_->endpoint().post_failed(header_.sequence, static_cast<std::uint32_t>(result));
  }
}

void Request::end_malformed(std::string_view command) {
  answered_ = true;
  session_->end("malformed " + std::string(command));
}

}  // namespace flyt::server
