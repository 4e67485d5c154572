// What every call of NVML does first (is there a monitor, is it a handle of ours?) and last (ask
// the server). Generated stubs and hooks are written with it, as those of CUDA with client/call.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "client/nvml/current.h"
#include "client/nvml/monitor.h"
#include "nvml/handle.h"

namespace flyt::client::nvml {

enum class Needs : std::uint8_t {
  kNothing,  // Works before nvmlInit.
  kInit,     // nvmlInit was called and the server is there.
};

// NVML_SUCCESS, or what the call must return at once.
nvmlReturn_t enter(Needs needs);

// NVML_ERROR_INVALID_ARGUMENT unless it is a handle of ours.
nvmlReturn_t check(nvmlDevice_t device);

// Asks the server. Never NVML_SUCCESS without an answer.
template <class Command>
nvmlReturn_t call(const Command& command, typename Command::Reply& reply, rpc::Reply& answer) {
  const std::shared_ptr<Monitor> monitor = current_monitor();
  return monitor == nullptr ? NVML_ERROR_UNINITIALIZED : monitor->ask(command, reply, answer);
}
template <class Command>
nvmlReturn_t call(const Command& command, typename Command::Reply& reply) {
  rpc::Reply answer;
  return call(command, reply, answer);
}

// What a refused call does: NVML_ERROR_NOT_SUPPORTED, named in the log once a name.
nvmlReturn_t refused(const char* name, const char* reason);

// Text with its zero byte, for a program's buffer of `length` bytes.
nvmlReturn_t deliver(std::string_view text, char* out, unsigned int length);

// The version number that a struct's first member must have.
template <class Struct>
constexpr unsigned int version_of(unsigned int number) {
  return static_cast<unsigned int>(sizeof(Struct)) | number << 24;
}

}  // namespace flyt::client::nvml
