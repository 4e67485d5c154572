// Session: everything a client process knows about its GPU server.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/annotations.h"
#include "base/log.h"
#include "base/result.h"
#include "client/context.h"
#include "client/handle_table.h"
#include "cuda/types.h"
#include "rpc/channel.h"

namespace flyt::client {

struct MemoryState;   // Memory, streams, events, pools: client/memory_state.h.
struct CodeState;     // Modules, libraries, functions, kernels, links: client/code_state.h.
struct DeviceCache;   // What never changes about the devices: client/device_cache.h.
struct PrivateTables; // What cuGetExportTable hands out: client/private_tables.h.

struct SessionOptions {
  std::string url;               // As FLYT_SERVER.
  Duration connect_timeout{};    // Covers connecting and the hello.
  LogLevel log_level = LogLevel::kWarn;
};

// Owns the channel and all client state. Safe from any thread. Lives until the process ends: a
// program's threads may be inside calls when it exits, so the process's one is never destroyed.
class Session {
 public:
  // Connects, greets, and fetches what never changes about the devices in one batch.
  static Result<std::unique_ptr<Session>> open(const SessionOptions& options);
  // The same over a channel that is already connected (simulator).
  static Result<std::unique_ptr<Session>> open(std::unique_ptr<rpc::Channel> channel,
                                               const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  rpc::Channel& channel() { return *channel_; }
  const Log& log() const { return log_; }

  // CUDA_ERROR_DEVICE_UNAVAILABLE once the server is lost (for ever), CUDA_SUCCESS before. Logs the
  // reason once. One relaxed load while the server is there.
  CUresult health() {
    return channel_->lost() ? report_loss() : CUDA_SUCCESS;
  }

  const DeviceCache& devices() const { return *devices_; }
  HandleTable<ContextState>& contexts() { return contexts_; }
  MemoryState& memory() { return *memory_; }
  CodeState& code() { return *code_; }
  PrivateTables& private_tables() { return *private_tables_; }

  // The calling thread's current context; null and the result to return if there is none or it
  // has been destroyed. A sticky error does not count here (Call does that).
  ContextState* current_context(CUresult& result);

  // What a posted command did wrong, kept until the next waiting call reports it. The first one
  // wins until it is taken.
  void note_posted_error(CUresult error);
  // CUDA_SUCCESS if there is none; else the error, which is then forgotten.
  CUresult take_posted_error();

  // After a waiting call: remembers a device error (illegal address and the like) as sticky for
  // the context and returns what the program gets.
  CUresult settle(ContextState* context, CUresult result);

 private:
  Session(std::unique_ptr<rpc::Channel> channel, const SessionOptions& options);
  Status fetch_devices();
  CUresult report_loss();

  Log log_;
  std::unique_ptr<rpc::Channel> channel_;
  std::unique_ptr<DeviceCache> devices_;
  HandleTable<ContextState> contexts_{wire::HandleKind::kContext};
  std::unique_ptr<CodeState> code_;
  std::unique_ptr<MemoryState> memory_;
  std::unique_ptr<PrivateTables> private_tables_;
  std::atomic<int> posted_error_{0};
  std::atomic<bool> loss_reported_{false};
};

// True for errors after which a context is unusable: the kernel or the device failed.
bool is_sticky(CUresult result);

}  // namespace flyt::client
