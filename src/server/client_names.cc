#include "server/client_names.h"

#include "server/session.h"

namespace flyt::server {

ClientNames::ClientNames(Session& session) {
  for (const wire::HandleKind kind :
       {wire::HandleKind::kContext, wire::HandleKind::kFunction, wire::HandleKind::kKernel,
        wire::HandleKind::kEvent, wire::HandleKind::kArray}) {
    auto& names = names_[kind];
    for (const Handles::Entry& entry : session.handles().all(kind)) {
      names.emplace(entry.native, entry.handle);
    }
  }
}

std::uint64_t ClientNames::of(wire::HandleKind kind, const void* native) const {
  const auto& names = names_.at(kind);
  const auto found = names.find(native);
  return native == nullptr || found == names.end() ? 0 : found->second;
}

}  // namespace flyt::server
