// Sends code and other large data to the server, ahead of the command that uses it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "client/call.h"
#include "client/code/jit_options.h"
#include "cuda/types.h"
#include "wire/code.h"

namespace flyt::client {

// Data on its way: the command that uses it names `handle`.
struct Upload {
  std::uint64_t handle = 0;
  Bytes data;                   // What it is; the caller keeps it until the command was answered.
  std::vector<std::byte> kept;  // Its bytes where nobody else keeps them.
  bool named = false;           // Only its hash was sent.
  unsigned times = 0;           // That the session had gone on elsewhere before.
};

// Posts `data`: in pieces, or its hash where the server may have it. CUDA_ERROR_DEVICE_UNAVAILABLE
// when the server is lost.
CUresult upload(Bytes data, Upload& out);

// The server does not have what was named, and has said so after `waited`: posts it in pieces.
CUresult send_named(Upload& upload, CUresult answer, Duration waited);

// Whether it was sent to a process that is gone, and sending it to the one there is.
inline constexpr int kUploadTriesMax = 4;
bool sent_elsewhere(const Upload& upload);
CUresult send_again(Upload& upload);

inline bool wants_code(CUresult answer) {
  const auto code = static_cast<std::uint32_t>(answer);
  return code == wire::kResultSendCode || code == wire::kResultNoStore;
}

// As Session::ask_and_note(), for a command that uses an upload, which is sent now if it has to be.
template <class Command, class Note>
CUresult ask_with(Upload& upload, const Command& command, typename Command::Reply& reply,
                  rpc::Reply& answer, Note&& note) {
  const Instant start = system_clock().now();
  CUresult answered = session().ask_and_note(command, reply, answer, note);
  for (int tries = 0; tries < kUploadTriesMax; ++tries) {
    if (answered == CUDA_SUCCESS) return answered;
    CUresult sent = CUDA_SUCCESS;
    if (sent_elsewhere(upload)) {
      // A session that went on in another process meanwhile has sent it to nobody.
      sent = send_again(upload);
    } else if (wants_code(answered)) {
      sent = send_named(upload, answered, system_clock().now() - start);
    } else {
      return answered;
    }
    if (sent != CUDA_SUCCESS) return sent;
    answered = session().ask_and_note(command, reply, answer, note);
  }
  return wants_code(answered) ? CUDA_ERROR_UNKNOWN : answered;
}

// Finds out what image a module call points at and sends of it what the device can use.
// CUDA_ERROR_INVALID_IMAGE, or CUDA_ERROR_NO_BINARY_FOR_GPU where a fat binary has nothing for it.
CUresult upload_image(const void* image, CUdevice device, Upload& out);

// The software GPU: it runs PTX alone, and finds out when code is loaded what it cannot run. Other
// drivers may keep a log's address until they compile, so they get none that nobody asked for.
bool interprets_code();

// Code that was loaded under a handle, for a session that goes on elsewhere.
void keep_code(std::uint64_t handle, const Upload& upload, const JitOptions& jit);

// The device whose code is wanted: the current context's, or the first where there is none.
CUdevice code_device();

// A whole file, with a zero byte behind it, as PTX needs. CUDA_ERROR_FILE_NOT_FOUND.
CUresult read_code_file(const char* path, std::vector<std::byte>& out);

}  // namespace flyt::client
