// Replay: makes again, over a new connection, what a session has beside its device memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "client/code/code_state.h"
#include "client/context.h"
#include "client/exchange.h"
#include "client/memory/images.h"
#include "client/memory/memory_map.h"
#include "client/session.h"
#include "rpc/channel.h"
#include "rpc/unfinished.h"

namespace flyt::client {

// Of one try, and of the thread that makes it.
class Replay {
 public:
  Replay(Session& session, rpc::Channel& to) : session_(session), to_(to) {}

  // How far the process before had come. kUnsupported if what it left cannot be made again.
  struct Marks {
    std::uint64_t begun = 0;  // The last command.
    std::uint64_t work = 0;   // The last one that gave the GPU work.
    std::uint64_t done = 0;   // The one up to which such work is known to be done.
  };
  Result<Marks> marks();
  // That of a fault which its work may have caused; CUDA_SUCCESS: it ended of something else.
  Result<CUresult> fault();
  // How many times the process before has sent what the GPU wrote to host memory.
  Result<std::uint64_t> pushes();
  // An error says what could not be made again as it was.
  Status make();
  // Whether all that nobody waits for, and that is missed (by op), can be done again.
  static bool is_all_work(const std::vector<rpc::Unfinished::Command>& commands,
                          std::span<const bool> not_missed);
  using Commands = std::vector<rpc::Unfinished::Command>;
  // Of what was sent behind the work that is done, where nothing of it that was begun changes what
  // anybody can read later, what is to be sent again all the same: events, and words by which the
  // client knows how far a stream is. A call is made again by who waits for it, and so is a copy to
  // a small result (Fences::result()): the place of that may be another copy's by now. None:
  // something may have been changed, or half of it.
  std::optional<Commands> unchanging(const Commands& commands, const Marks& marks);
  // Does again what was sent behind a number and lost, in its order; the calls of `asked_again` are
  // left to those who wait for them. False, and nothing is done: some of it cannot be done again.
  Result<bool> redo(const std::vector<rpc::Unfinished::Command>& commands,
                    const std::vector<rpc::Unanswered>& asked_again);
  // All is there; what is sent behind that is work as any other.
  Status end();

 private:
  // Whether it writes where the client keeps such words and results.
  bool is_for_fences(const rpc::Unfinished::Command& command);
  Status contexts();
  Status context(ContextState& context);
  Status peers();
  Status memory();
  Status pools();
  Status allocations();
  // False: the process before had released it.
  Result<bool> create(std::uint64_t allocation, std::uint64_t bytes, CUdevice device,
                      std::uint64_t& block_id);
  Status mapping(const Memory& memory);
  // The process before had ended that mapping, of which nothing is left.
  Status unmapped(const Memory& memory);
  Status pool_memory(const Memory& memory);
  // It is in the block in which it was, which has a new name.
  Status moved(const Memory& memory, std::uint64_t block_address, std::uint64_t block_bytes,
               std::uint64_t block_id);
  Status device_memory(const Memory& memory);
  Status shared_areas();
  Status mirrors();
  Status share_host(std::uint64_t base, std::uint64_t bytes, std::uint64_t context,
                    std::uint32_t flags);
  Status streams();
  Status events();
  Status code();
  Status ended_execs();
  Status library(std::uint64_t handle);
  Status module(std::uint64_t handle, const ModuleState& module);
  Status kernel(std::uint64_t handle, KernelState& kernel);
  Status function(std::uint64_t handle, FunctionState& function);
  // Arrays, textures and surfaces: recovery_images.cc.
  Status arrays();
  Status array(std::uint64_t handle, const ArrayState& array);
  Status mipmapped_array(std::uint64_t handle, const MipmappedArrayState& whole);
  Status textures();
  Status links();
  Status link(std::uint64_t handle, const LinkState& link);
  Status upload(Bytes image, std::uint64_t& handle);
  Status send_raw(const rpc::Unfinished::Command& command);

  template <class Command>
  Status post(const ContextState* context, const Command& command) {
    const std::uint32_t index = context == nullptr ? 0 : context->index;
    if (send(to_, index, command)) return {};
    return to_.error();
  }
  // Any result but CUDA_SUCCESS is an error.
  template <class Command>
  Status ask(const ContextState* context, const Command& command, typename Command::Reply& reply) {
    const std::uint32_t index = context == nullptr ? 0 : context->index;
    if (!exchange(to_, index, command, reply, answer_)) return to_.error();
    if (answer_.result() == CUDA_SUCCESS) return {};
    return refused(Command::kName, answer_.result());
  }
  template <class Command>
  Status ask(const ContextState* context, const Command& command) {
    typename Command::Reply reply;
    return ask(context, command, reply);
  }
  static Error refused(std::string_view command, std::uint32_t result);
  // Null unless it is alive.
  ContextState* alive(std::uint64_t context) const;

  Session& session_;
  rpc::Channel& to_;
  std::set<std::uint64_t> dying_pools_;  // Destroyed by the program, with memory that is not freed.
  // Released by it, and mapped: their blocks' new names.
  std::map<std::uint64_t, std::uint64_t> dying_allocations_;
  rpc::Reply answer_;  // What the views of replies look at.
};

}  // namespace flyt::client
