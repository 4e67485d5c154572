// What generated client code needs, for a client that calls the server's handlers directly: every
// command is encoded, handed over and answered in this process.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "cuda/types.h"
#include "server/handlers.h"
#include "wire/fields.h"

namespace flyt::rpc {

// Keeps the bytes that a reply looks into.
struct Reply {
  std::vector<std::byte> fields;
};

}  // namespace flyt::rpc

namespace flyt::client {

enum class Needs { kNothing, kInit, kContext };

CUresult enter(Needs needs);
CUresult check(Thing thing);
CUresult make(Thing& thing);
void forget(Thing thing);
CUresult refused(const char* name, const char* reason);

// Runs the handler of `op`; its result and the bytes of its reply.
CUresult exchange(std::uint16_t op, Bytes payload, std::vector<std::byte>& fields);

template <class Command>
CUresult send(const Command& command, std::vector<std::byte>& fields) {
  std::vector<std::byte> payload(encoded_size(command));
  Writer writer(payload);
  encode(writer, command);
  return exchange(Command::kOp, payload, fields);
}

template <class Command>
CUresult post(const Command& command) {
  std::vector<std::byte> fields;
  return send(command, fields);
}

template <class T>
CUresult deliver(const wire::List<T>& values, std::span<T> out) {
  values.copy_to(out);
  return values.size() == out.size() ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

template <class Command>
CUresult call(const Command& command, typename Command::Reply& reply, rpc::Reply& answer) {
  const CUresult result = send(command, answer.fields);
  if (result != CUDA_SUCCESS) return result;
  return decode(answer.fields, reply) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

template <class Command>
CUresult call(const Command& command, typename Command::Reply& reply) {
  rpc::Reply answer;
  return call(command, reply, answer);
}

template <class Command>
CUresult cached(const Command& command, typename Command::Reply& reply) {
  return call(command, reply);
}

}  // namespace flyt::client
