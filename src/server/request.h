// Request: one command being executed, and the way to answer it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "cuda/types.h"
#include "driver/table.h"
#include "rpc/endpoint.h"
#include "server/handles.h"
#include "wire/fields.h"

namespace flyt::server {

class Session;

// Keeps the received bytes alive, so views that decode() made stay valid as long as the Request.
// Movable; belongs to one thread at a time, and is answered once. Destroyed unanswered, it answers
// CUDA_ERROR_UNKNOWN: a client never waits in vain.
class Request {
 public:
  Request(Session& session, const rpc::Command& command);
  Request(Request&& other) noexcept;
  Request& operator=(Request&&) = delete;
  ~Request();

  Session& session() const { return *session_; }
  const driver::Table& driver() const;
  Bytes payload() const { return payload_; }
  std::uint16_t op() const { return header_.op; }
  std::uint64_t sequence() const { return header_.sequence; }
  bool waits() const { return (header_.flags & wire::kWantsReply) != 0; }
  std::uint32_t context() const { return header_.context; }  // Handle index; 0: none.
  // The context to which belongs what the command makes: a green context's is the primary one.
  std::uint32_t home() const;
  std::uint32_t thread() const { return header_.thread; }  // Client thread number.
  // The received bytes, for a handler whose DMA reads them after the Request is gone.
  const rpc::ChunkRef& chunk() const { return chunk_; }
  // The block of a lane that the command names, fetched before it is executed; null: there is none.
  const rpc::ChunkRef& block() const { return block_; }
  void set_block(rpc::ChunkRef block) { block_ = std::move(block); }
  // Of a posted command that is many operations: how many of them have been executed before, when
  // the rest was put back (Session::gives_way()).
  std::uint64_t begun() const { return begun_; }
  void set_begun(std::uint64_t operations) { begun_ = operations; }
  // For requests that wait long and are decoded: the received bytes are not needed any more.
  void forget_payload() {
    payload_ = {};
    chunk_.reset();
  }

  // Reads the payload. False: the session has been ended, the handler just returns.
  template <class Command>
  bool decode(Command& command) {
    if (wire::decode(payload_, command)) return true;
    end_malformed(Command::kName);
    return false;
  }

  // Client's handle -> driver's, in place; false if there is no such object. CUstream 0, 1 and 2
  // are the legacy stream and this client thread's default stream in context(). A CUfunction may
  // be a kernel's handle, as launches allow.
  bool resolve(CUcontext& handle) const;
  bool resolve(CUmodule& handle) const;
  bool resolve(CUlibrary& handle) const;
  bool resolve(CUfunction& handle) const;
  bool resolve(CUkernel& handle) const;
  bool resolve(CUstream& handle) const;
  bool resolve(CUevent& handle) const;
  bool resolve(CUtexref& handle) const;
  bool resolve(CUsurfref& handle) const;

  // What keeps the driver's stream of a client's handle; null for the legacy one, which stays.
  std::shared_ptr<Attachment> owner_of(CUstream handle) const;

  // resolve() and remove from the table.
  bool take(CUstream& handle);
  bool take(CUevent& handle);
  // Registers the driver's object under the client's handle. False: the client chose a bad or a
  // used one and the session has been ended.
  bool adopt(CUstream client, CUstream native);
  bool adopt(CUevent client, CUevent native);
  bool adopt(wire::HandleKind kind, const void* client, void* native,
             std::shared_ptr<Attachment> attachment = {});

  // Answers a command without reply fields, or records the error of a posted one.
  void reply(CUresult result) { send(result, {}); }
  // Answers with fields, encoded at once: views need to live only during this call.
  template <class Reply>
  void reply(CUresult result, const Reply& fields) {
    const std::size_t size = wire::encoded_size(fields);
    std::array<std::byte, 512> small;
    std::vector<std::byte> large(size > small.size() ? size : 0);
    Writer writer(large.empty() ? MutableBytes(small) : MutableBytes(large));
    wire::encode(writer, fields);
    send(result, bytes_at(large.empty() ? small.data() : large.data(), writer.used()));
  }

 private:
  template <class Native>
  bool resolve_as(wire::HandleKind kind, Native& handle) const;
  template <class Native>
  bool take_as(wire::HandleKind kind, Native& handle);
  void send(CUresult result, Bytes fields);
  void end_malformed(std::string_view command);

  Session* session_;
  wire::CommandHeader header_;
  Bytes payload_;
  rpc::ChunkRef chunk_;
  rpc::ChunkRef block_;
  std::uint64_t begun_ = 0;
  bool answered_ = false;
};

}  // namespace flyt::server
