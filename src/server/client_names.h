// ClientNames: what the client calls objects of the driver's.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "base/bytes.h"
#include "wire/handle.h"

namespace flyt::server {

class Session;

// As of the moment in which it is made, of the kinds that nodes of graphs name. Asking for one is
// quick, making it is not: it lists all of them.
class ClientNames {
 public:
  explicit ClientNames(Session& session);

  // 0 where it has none.
  std::uint64_t of(wire::HandleKind kind, const void* native) const;
  template <class Handle>
  void rename(wire::HandleKind kind, Handle& handle) const {
    handle = static_cast<Handle>(pointer_at(of(kind, handle)));
  }

 private:
  std::map<wire::HandleKind, std::unordered_map<const void*, std::uint64_t>> names_;
};

}  // namespace flyt::server
