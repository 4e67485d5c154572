// Request: one received command and the way to answer it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "cuda/types.h"
#include "rpc/endpoint.h"

namespace flyt::server {

class Session;

// Keeps the payload alive, so views that decode() made stay valid as long as the Request. Movable;
// may be finished from any thread, once. A Request that dies unfinished answers
// CUDA_ERROR_UNKNOWN: a client never waits in vain.
class Request {
 public:
  Request(Session& session, rpc::Command command);
  Request(Request&& other) noexcept;
  Request& operator=(Request&&) = delete;
  ~Request();

  Session& session() const { return *session_; }
  Bytes payload() const { return command_.payload; }
  std::uint16_t op() const { return command_.header.op; }
  std::uint64_t sequence() const { return command_.header.sequence; }
  std::uint32_t context() const { return command_.header.context; }  // Handle index; 0: none.
  std::uint32_t thread() const { return command_.header.thread; }    // Client thread number.
  // The received bytes, for a handler whose DMA reads them after it returned.
  const rpc::Buffer& buffer() const { return command_.buffer; }

  // The driver's object for a client handle; false if there is none of that kind. A CUstream of
  // 1 or 2 is the legacy stream or this client thread's default stream in request.context().
  // A CUfunction accepts kernels too, as launches do.
  template <class Native>
  bool find(std::uint64_t handle, Native& out) const;

  // Answers a command without reply fields, or records the error of a posted one.
  void finish(CUresult result);
  // Answers with fields; views in `reply` are copied before this returns.
  template <class Reply>
  void finish(CUresult result, Reply& reply) {
    reply.result = result;
    send(reply);
  }

 private:
  template <class Reply>
  void send(const Reply& reply);

  Session* session_;
  rpc::Command command_;
  bool finished_ = false;
};

}  // namespace flyt::server
