// Calls: what a client does with a stub, whatever the service.
#pragma once

#include <grpcpp/client_context.h>

#include <chrono>

#include "base/result.h"
#include "control/grpc/status.h"

namespace flyt::control {

// One question and its answer.
template <class Reply, class Stub, class Method, class Request>
grpc::Status call(Stub& stub, Method method, const Request& request,
                  std::chrono::milliseconds patience, Reply& reply) {
  grpc::ClientContext context;
  context.set_deadline(time_in(patience));
  return (stub.*method)(&context, request, &reply);
}

// Gives each message of a stream to `take`, until that is false or the stream ends. OK if `take`
// ended it.
template <class Message, class Reader, class Take>
grpc::Status read_stream(Reader& reader, grpc::ClientContext& context, Take take) {
  Message message;
  while (reader.Read(&message)) {
    if (take(message)) continue;
    context.TryCancel();
    static_cast<void>(reader.Finish());
    return grpc::Status::OK;
  }
  return reader.Finish();
}

}  // namespace flyt::control
