#include "client/recovery/recovery_replay.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "client/graphs/graphs.h"
#include "client/memory_state.h"
#include "client/recovery/recovery.h"
#include "commands/array.h"
#include "commands/context.h"
#include "commands/copy.h"
#include "commands/event.h"
#include "commands/function.h"
#include "commands/graph.h"
#include "commands/launch.h"
#include "commands/library.h"
#include "commands/link.h"
#include "commands/memop.h"
#include "commands/memset.h"
#include "commands/module.h"
#include "commands/ops.h"
#include "commands/peer.h"
#include "commands/pinned.h"
#include "commands/pool.h"
#include "commands/recovery.h"
#include "commands/stream.h"
#include "commands/vmm.h"
#include "cuda/sticky.h"

namespace flyt::client {
namespace {

constexpr std::size_t kPieceBytes = 128 * kKiB;

// What becomes of a command that was sent and lost, in a session that does such things again.
enum class Again : std::uint8_t {
  kNeeded,     // It gave the GPU work, or ends what that was given to.
  kNotNeeded,  // What it left was made again, or it left nothing.
  kEnds,       // Work before it may need what it ended, which is gone.
  kNever,      // What it needs is gone.
};

template <class... Commands>
bool is_one_of(std::uint16_t op) {
  return ((op == Commands::kOp) || ...);
}

bool changes_graphs(std::uint16_t op) {
  using namespace commands;
  return is_one_of<BeginCapture, EndCapture, CaptureDependencies, CaptureCopy, CaptureHostCall,
                   CaptureAllocation, CreateGraph, CloneGraph, FindInClone, ListGraph, ChangeEdges,
                   AddGraphNode, GetGraphNode, SetGraphNode, DestroyGraphNode, SetNodeAttribute,
                   CopyNodeAttributes, CreateConditional, InstantiateGraph, UpdateGraphExec,
                   SetExecNode, EnableExecNode>(op);
}

Again again_of(std::uint16_t op) {
  using namespace commands;
  if (is_one_of<EventRecord, StreamWaitEvent, ContextRecordEvent, ContextWaitEvent, LaunchKernel,
                TryLaunchKernel, StreamMemOp, FillMemory, CopyToDevice, CopyToDeviceAndWait,
                CopyRowsToDevice, CopyOnDevice, CopyBoxOnDevice, CopyToArray, CopyBoxWithArray,
                LaunchGraph, TryLaunchGraph, EndThread>(op)) {
    return Again::kNeeded;
  }
  const bool ends = is_one_of<UnloadModule, UnloadLibrary, UnmapHost, ReleasePrimary, ResetPrimary,
                              DestroyContext, VmmUnmap, VmmRelease>(op) ||
                    ends_something(command_name(op));
  // Blocks of lanes and the program's functions are not in the commands that name them; what graphs
  // came to be since work was found done is in no save.
  const bool elsewhere = is_one_of<CopyBlockToDevice, commands::HostCall>(op);
  if (elsewhere || changes_graphs(op)) return Again::kNever;
  return ends ? Again::kEnds : Again::kNotNeeded;
}

template <class Handle>
Handle as(std::uint64_t value) {
  return static_cast<Handle>(pointer_at(value));
}

template <class Reply>
bool same_attributes(const FunctionFacts& facts, const Reply& reply,
                     std::vector<std::pair<std::int32_t, std::int32_t>>& to_set) {
  for (std::size_t i = 0; i < facts.attributes.size() && i < reply.attributes.size(); ++i) {
    const bool known = (facts.known.load() & 1U << i) != 0;
    const bool now = i < reply.known.size() && reply.known[i] != 0;
    if (known != now) return false;
    const std::int32_t value = facts.attributes[i].load();
    if (known && value != reply.attributes[i]) {
      to_set.emplace_back(static_cast<std::int32_t>(i), value);
    }
  }
  return true;
}

}  // namespace

Error Replay::refused(std::string_view command, std::uint32_t result) {
  return Error{ErrorCode::kUnsupported,
               std::string(command) + " failed with " + std::to_string(result)};
}

ContextState* Replay::alive(std::uint64_t context) const {
  ContextState* state = session_.contexts().find(as<CUcontext>(context));
  return state == nullptr || state->live.load() == 0 ? nullptr : state;
}

Result<Replay::Marks> Replay::marks() {
  commands::RecoveredMarks::Reply reply;
  if (Status told = ask(nullptr, commands::RecoveredMarks{}, reply); !told) return told.error();
  if (reply.spoilt != 0) {
    const auto op = static_cast<std::uint16_t>(reply.spoilt);
    return Error{ErrorCode::kUnsupported,
                 "what " + std::string(commands::command_name(op)) + " left cannot be made again"};
  }
  return Marks{reply.begun, reply.work, reply.done};
}

Result<CUresult> Replay::fault() {
  if (to_.welcome().highest_op < commands::RecoveredFault::kOp) return CUDA_SUCCESS;
  commands::RecoveredFault::Reply reply;
  if (Status told = ask(nullptr, commands::RecoveredFault{}, reply); !told) return told.error();
  // What no driver says about work would be taken for something else.
  const auto error = static_cast<CUresult>(reply.error);
  return reply.error == 0 || cuda::is_sticky(error) ? error : CUDA_ERROR_LAUNCH_FAILED;
}

Result<std::uint64_t> Replay::pushes() {
  if (to_.welcome().highest_op < commands::RecoveredPushes::kOp) return std::uint64_t{0};
  commands::RecoveredPushes::Reply reply;
  if (Status told = ask(nullptr, commands::RecoveredPushes{}, reply); !told) return told.error();
  return reply.pushes;
}

Status Replay::make() {
  for (const auto step :
       {&Replay::contexts, &Replay::peers, &Replay::pools, &Replay::allocations, &Replay::memory,
        &Replay::shared_areas, &Replay::mirrors, &Replay::arrays, &Replay::textures,
        &Replay::streams, &Replay::events, &Replay::code, &Replay::links}) {
    if (Status done = (this->*step)(); !done) return done;
  }
  if (Status heard = ask(nullptr, commands::HearPosts{}); !heard) return heard;
  if (answer_.posted_error() != 0) return refused("a posted command", answer_.posted_error());
  return ended_execs();
}

// The process before may not have heard of it, and then they were made again.
Status Replay::ended_execs() {
  for (const std::uint64_t exec : session_.graphs().ended_execs()) {
    if (Status ended = post(nullptr, commands::DestroyGraphExec{.exec = exec}); !ended) {
      return ended;
    }
  }
  return {};
}

Status Replay::end() { return ask(nullptr, commands::EndRestoring{}); }

bool Replay::is_all_work(const std::vector<rpc::Unfinished::Command>& commands,
                         std::span<const bool> not_missed) {
  return std::all_of(commands.begin(), commands.end(), [&](const auto& command) {
    const wire::CommandHeader& header = command.header;
    const bool missed = (header.flags & wire::kWantsReply) == 0 &&
                        !(header.op < not_missed.size() && not_missed[header.op]);
    return !missed || again_of(header.op) == Again::kNeeded;
  });
}

bool Replay::is_for_fences(const rpc::Unfinished::Command& command) {
  std::uint64_t at = 0;
  std::uint64_t bytes = sizeof(std::uint64_t);
  if (command.header.op == commands::StreamMemOp::kOp) {
    commands::StreamMemOp word;
    if (!wire::decode(command.payload, word) || word.operation != CU_STREAM_MEM_OP_WRITE_VALUE_64) {
      return false;
    }
    at = word.address;
  } else if (command.header.op == commands::CopyOnDevice::kOp) {
    commands::CopyOnDevice copy;
    if (!wire::decode(command.payload, copy)) return false;
    at = copy.to;
    bytes = copy.bytes;
  }
  const auto areas = session_.memory().fences().shared_areas();
  return std::any_of(areas.begin(), areas.end(), [&](const SharedSlots::Shared& area) {
    return area.base <= at && at - area.base < area.bytes && bytes <= area.bytes - (at - area.base);
  });
}

std::optional<Replay::Commands> Replay::unchanging(const Commands& commands, const Marks& marks) {
  using namespace commands;
  Commands again;
  // Something that is in no save counts as work behind the last command of that kind.
  bool known = false;
  for (const rpc::Unfinished::Command& command : commands) {
    const std::uint16_t op = command.header.op;
    if (command.header.sequence > marks.begun) break;
    const bool orders =
        is_one_of<EventRecord, StreamWaitEvent, ContextRecordEvent, ContextWaitEvent>(op);
    const bool reads = is_one_of<CopyToHost, PostToHost, CopyArrayToHost, PostArrayToHost>(op);
    const bool fences = is_one_of<StreamMemOp, CopyOnDevice>(op) && is_for_fences(command);
    const bool works = orders || reads || fences;
    if (command.header.sequence == marks.work) known = works;
    if (orders || (fences && op == StreamMemOp::kOp)) again.push_back(command);
    if (works || op == MarkStream::kOp) continue;
    // Nobody has heard yet whether other posts have failed.
    const bool answered = (command.header.flags & wire::kWantsReply) != 0;
    if (!answered || again_of(op) != Again::kNotNeeded) return std::nullopt;
  }
  if (!known) return std::nullopt;
  return again;
}

Result<bool> Replay::redo(const std::vector<rpc::Unfinished::Command>& commands,
                          const std::vector<rpc::Unanswered>& asked_again) {
  std::vector<const rpc::Unfinished::Command*> chosen;
  for (const rpc::Unfinished::Command& command : commands) {
    const wire::CommandHeader& header = command.header;
    switch (again_of(header.op)) {
      case Again::kNever:
        return false;
      case Again::kEnds:
        if (!chosen.empty()) return false;
        break;
      case Again::kNotNeeded:
        break;
      case Again::kNeeded: {
        const bool asked = std::any_of(
            asked_again.begin(), asked_again.end(),
            [&](const rpc::Unanswered& call) { return call.sequence == header.sequence; });
        if (!asked) chosen.push_back(&command);
        break;
      }
    }
  }
  for (const rpc::Unfinished::Command* command : chosen) {
    if (Status sent = send_raw(*command); !sent) return std::move(sent).error();
  }
  return true;
}

Status Replay::send_raw(const rpc::Unfinished::Command& command) {
  const wire::CommandHeader& header = command.header;
  const rpc::AsThread thread(header.thread);
  const Bytes payload = command.payload;
  const bool waits = (header.flags & wire::kWantsReply) != 0;
  if (payload.size() > wire::kPostPayloadBytesMax) {
    const std::size_t fields =
        payload.size() - std::min<std::size_t>(payload.size(), wire::kBulkBytesMax);
    const Bytes data = payload.subspan(fields);
    if (waits) {
      return to_.call_bulk(header.op, header.context, payload.first(fields),
                           std::span<const Bytes>(&data, 1), answer_);
    }
    const auto sent = to_.post_bulk(header.op, header.context, payload.first(fields), data);
    return sent ? Status() : Status(sent.error());
  }
  rpc::Post post = to_.begin(header.op, payload.size(), header.context,
                             waits ? rpc::Answer::kReply : rpc::Answer::kNone);
  if (!post) return to_.error();
  post.writer().write_bytes(payload);
  if (waits) return to_.call(std::move(post), answer_);
  post.commit();
  return {};
}

Status Replay::contexts() {
  Status status;
  session_.contexts().table().for_each([&](std::uint64_t, ContextState& state) {
    if (status && state.live.load() != 0) status = context(state);
  });
  return status;
}

Status Replay::context(ContextState& state) {
  const auto handle = as<CUcontext>(state.handle);
  const std::uint32_t flags = state.flags.load();
  std::array<std::uint64_t, CU_LIMIT_MAX> limits{};
  const auto take = [&](const auto& reply) {
    for (std::size_t i = 0; i < limits.size() && i < reply.limits.size(); ++i) {
      limits[i] = reply.limits[i];
    }
  };
  if (state.primary) {
    commands::RetainPrimary::Reply reply;
    const commands::RetainPrimary command{
        .context = handle, .device = state.device, .flags = flags};
    if (Status made = ask(nullptr, command, reply); !made) return made;
    take(reply);
  } else {
    commands::CreateContext::Reply reply;
    const commands::CreateContext command{.context = handle,
                                          .device = state.device,
                                          .flags = flags,
                                          .sm_count = state.affinity.load()};
    if (Status made = ask(nullptr, command, reply); !made) return made;
    take(reply);
  }
  for (std::size_t i = 0; i < limits.size(); ++i) {
    const std::uint64_t limit = state.limits[i].load();
    if (limit == ContextState::kUnknownLimit || limit == limits[i]) continue;
    commands::SetContextLimit::Reply reply;
    const commands::SetContextLimit command{.limit = static_cast<std::int32_t>(i), .value = limit};
    if (Status set = ask(&state, command, reply); !set) return set;
  }
  if (const int config = state.cache_config.load(); config != 0) {
    return post(&state, commands::SetContextCache{.config = config});
  }
  return {};
}

Status Replay::peers() {
  for (const auto& [accessor, owner] : session_.memory().peers.all()) {
    const ContextState* const from = alive(accessor);
    if (from == nullptr || alive(owner) == nullptr) continue;
    const commands::CtxEnablePeerAccess command{.peerContext = as<CUcontext>(owner), .Flags = 0};
    if (Status enabled = ask(from, command); !enabled) return enabled;
  }
  return {};
}

Status Replay::memory() {
  for (const Memory& memory : session_.memory().map().within(0, ~std::uint64_t{0})) {
    Status status;
    switch (memory.kind) {
      case MemoryKind::kDevice:
        status = device_memory(memory);
        break;
      case MemoryKind::kPinned:
      case MemoryKind::kManaged:
        if (memory.mirrored && session_.memory().pinned().shared()) {
          status = share_host(memory.base, memory.bytes, memory.context, map_flags(memory));
        }
        break;
      case MemoryKind::kRegistered:
      case MemoryKind::kAlias:
        // If kernels reach it, mirrors() makes it again.
        break;
      case MemoryKind::kGlobal:
        // It is where it was when its code is loaded again, or the server says which one is not.
        break;
      case MemoryKind::kPool:
        status = pool_memory(memory);
        break;
      case MemoryKind::kMapped:
        status = mapping(memory);
        break;
      case MemoryKind::kGraph:
        // Its graph is gone, and the memory with it, else the server would have said so.
        break;
      case MemoryKind::kOpened:
      case MemoryKind::kManagedVariable:
        status = Error{ErrorCode::kUnsupported, "memory of a kind that cannot be restored"};
        break;
    }
    if (!status) return status;
  }
  for (const std::uint64_t pool : dying_pools_) {
    if (Status ended = post(nullptr, commands::PoolDestroy{.pool = pool}); !ended) return ended;
  }
  for (const auto& [allocation, block_id] : dying_allocations_) {
    const commands::VmmRelease command{.allocation = allocation};
    if (Status ended = ask(nullptr, command); !ended) return ended;
  }
  return {};
}

Status Replay::pools() {
  Status status;
  session_.memory().pools.for_each([&](std::uint64_t, const PoolState& state) {
    if (!status || state.imported) return;
    if (!state.is_default) {
      status = post(nullptr,
                    commands::PoolCreate{
                        .pool = state.name, .device = state.device, .bytes_max = state.bytes_max});
    }
    for (std::size_t i = 0; i < state.attributes.size() && status; ++i) {
      const std::uint64_t value = state.attributes[i].load();
      if (value == PoolState::kDefaults[i]) continue;
      status = post(nullptr, commands::PoolSet{.pool = state.name,
                                               .attribute = static_cast<std::uint32_t>(i),
                                               .value = value});
    }
    for (CUdevice accessor = 0; accessor < kAccessorsMax && status; ++accessor) {
      if ((state.accessors.load() >> accessor & 1) == 0) continue;
      status = ask(nullptr,
                   commands::PoolAccess{.owner = state.device, .accessor = accessor, .allowed = 1});
    }
  });
  return status;
}

Result<bool> Replay::create(std::uint64_t allocation, std::uint64_t bytes, CUdevice device,
                            std::uint64_t& block_id) {
  commands::VmmCreate::Reply reply;
  const commands::VmmCreate command{.allocation = allocation, .bytes = bytes, .device = device};
  const Status made = ask(nullptr, command, reply);
  if (!made && !to_.lost() && answer_.result() == CUDA_ERROR_NOT_FOUND) return false;
  if (!made) return made.error();
  block_id = reply.block_id;
  return true;
}

Status Replay::allocations() {
  Status status;
  session_.memory().allocations.for_each([&](std::uint64_t handle, AllocationState& state) {
    if (!status) return;
    const auto made = create(handle, state.bytes, state.properties.location.id, state.block_id);
    if (!made) {
      status = made.error();
    } else if (!*made && state.references.load() != 0) {
      status = refused(commands::VmmCreate::kName, CUDA_ERROR_NOT_FOUND);
    } else if (!*made) {
      state.gone = true;
    }
  });
  return status;
}

Status Replay::mapping(const Memory& memory) {
  std::uint64_t block_id = 0;
  bool gone = false;
  if (const auto* state = session_.memory().allocations.find(memory.allocation)) {
    block_id = state->block_id;
    gone = state->gone.load();
  } else if (const auto known = dying_allocations_.find(memory.allocation);
             known != dying_allocations_.end()) {
    block_id = known->second;
  } else {
    const auto made = create(memory.allocation, memory.bytes, memory.device, block_id);
    if (!made) return made.error();
    gone = !*made;
    if (!gone) dying_allocations_.emplace(memory.allocation, block_id);
  }
  if (gone) return unmapped(memory);
  const commands::VmmMap map{
      .address = memory.base, .bytes = memory.bytes, .allocation = memory.allocation};
  if (Status mapped = ask(nullptr, map); !mapped) return mapped;
  for (CUdevice device = 0; device < session_.devices().count(); ++device) {
    const std::uint32_t access = memory.access_of(device);
    if (access == CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
    const commands::VmmSetAccess open{
        .address = memory.base, .bytes = memory.bytes, .device = device, .access = access};
    if (Status opened = ask(nullptr, open); !opened) return opened;
  }
  return moved(memory, memory.mapping_base, memory.mapping_bytes, block_id);
}

Status Replay::unmapped(const Memory& memory) {
  if (memory.unmapping == Unmapping::kNo) {
    return refused(commands::VmmCreate::kName, CUDA_ERROR_NOT_FOUND);
  }
  session_.memory().map().update(memory.base,
                                 [](Memory& known) { known.unmapping = Unmapping::kDone; });
  return {};
}

Status Replay::pool_memory(const Memory& memory) {
  const PoolState* const state = session_.memory().pools.find(memory.pool);
  if (state == nullptr && dying_pools_.insert(memory.pool).second) {
    const commands::PoolCreate command{.pool = memory.pool, .device = memory.device};
    if (Status made = post(nullptr, command); !made) return made;
  }
  commands::RestorePoolMemory::Reply reply;
  const commands::RestorePoolMemory command{.pool = state == nullptr ? memory.pool : state->name,
                                            .address = memory.base,
                                            .bytes = memory.bytes};
  if (Status restored = ask(nullptr, command, reply); !restored) return restored;
  return moved(memory, reply.block_address, reply.block_bytes, reply.block_id);
}

Status Replay::moved(const Memory& memory, std::uint64_t block_address, std::uint64_t block_bytes,
                     std::uint64_t block_id) {
  if (block_address != memory.mapping_base || block_bytes != memory.mapping_bytes) {
    return Error{ErrorCode::kUnsupported, "memory came back in another place"};
  }
  session_.memory().map().update(memory.base, [&](Memory& known) { known.block_id = block_id; });
  return {};
}

Status Replay::device_memory(const Memory& memory) {
  const ContextState* const context = alive(memory.context);
  // It went with its context, and nobody has noticed yet.
  if (context == nullptr) return {};
  commands::RestoreMemory::Reply reply;
  const commands::RestoreMemory command{.address = memory.base, .bytes = memory.bytes};
  if (Status restored = ask(context, command, reply); !restored) return restored;
  return moved(memory, reply.block_address, reply.block_bytes, reply.block_id);
}

Status Replay::share_host(std::uint64_t base, std::uint64_t bytes, std::uint64_t context,
                          std::uint32_t flags) {
  const ContextState* const in = alive(context);
  if (in == nullptr) return {};
  const std::uint64_t offset = session_.memory().pinned().offset_of(base);
  return ask(
      in, commands::ShareHost{.address = base, .bytes = bytes, .offset = offset, .flags = flags});
}

Status Replay::shared_areas() {
  for (const SharedSlots::Shared& area : session_.memory().shared_areas()) {
    if (Status shared = share_host(area.base, area.bytes, area.context, 0); !shared) return shared;
  }
  return {};
}

Status Replay::mirrors() {
  return session_.memory().mirror().restore(
      {.map = [this](const ContextState& context,
                     const commands::MapHost& command) { return ask(&context, command); },
       .write =
           [this](const ContextState& context, Bytes changes) {
             return post(&context, commands::WriteHost{.changes = changes});
           }});
}

Status Replay::streams() {
  Status status;
  session_.memory().streams.for_each([&](std::uint64_t handle, const StreamState& state) {
    if (!status || state.context->live.load() == 0) return;
    const auto stream = as<CUstream>(handle);
    status = post(state.context,
                  commands::StreamCreate{
                      .stream = stream, .flags = state.flags, .priority = state.priority.load()});
    const auto attribute = [&](CUstreamAttrID id, const CUstreamAttrValue& value) {
      if (!status) return;
      status = post(state.context,
                    commands::StreamSetAttribute{.stream = stream,
                                                 .attribute = static_cast<std::uint32_t>(id),
                                                 .value = bytes_at(&value, sizeof value)});
    };
    CUstreamAttrValue value{};
    if (const int domain = state.mem_sync_domain.load(); domain != 0) {
      value.memSyncDomain = static_cast<CUlaunchMemSyncDomain>(domain);
      attribute(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, value);
    }
    if (const std::uint16_t map = state.mem_sync_domain_map.load(); map != 0x0100) {
      value = {};
      value.memSyncDomainMap.default_ = static_cast<unsigned char>(map & 0xff);
      value.memSyncDomainMap.remote = static_cast<unsigned char>(map >> 8);
      attribute(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, value);
    }
    value = {};
    const CUaccessPolicyWindow& window = value.accessPolicyWindow = state.access_window.get();
    // The program may have freed what it lies in; the server would refuse that.
    if (window.num_bytes != 0 &&
        session_.memory().map().place(address_of(window.base_ptr), window.num_bytes).place ==
            MemoryMap::Place::kDevice) {
      attribute(CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, value);
    }
  });
  return status;
}

Status Replay::events() {
  Status status;
  session_.memory().events.for_each([&](std::uint64_t handle, const EventState& state) {
    if (!status || state.context->live.load() == 0) return;
    status = post(state.context,
                  commands::EventCreate{.event = as<CUevent>(handle), .flags = state.flags});
  });
  return status;
}

Status Replay::code() {
  CodeState& code = session_.code();
  Status status;
  code.libraries.for_each([&](std::uint64_t handle, const LibraryState&) {
    if (status) status = library(handle);
  });
  code.modules.for_each([&](std::uint64_t handle, const ModuleState& state) {
    if (status && state.context->live.load() != 0) status = module(handle, state);
  });
  code.kernels.for_each([&](std::uint64_t handle, KernelState& state) {
    if (status) status = kernel(handle, state);
  });
  code.functions.for_each([&](std::uint64_t handle, FunctionState& state) {
    if (status && state.context->live.load() != 0) status = function(handle, state);
  });
  return status;
}

Status Replay::upload(Bytes image, std::uint64_t& handle) {
  handle = session_.code().next_upload();
  for (std::size_t offset = 0; offset < image.size();) {
    const Bytes piece = image.subspan(offset, std::min(kPieceBytes, image.size() - offset));
    const commands::Upload command{
        .upload = handle, .total = image.size(), .offset = offset, .data = piece};
    if (Status sent = post(nullptr, command); !sent) return sent;
    offset += piece.size();
  }
  return {};
}

Status Replay::library(std::uint64_t handle) {
  const auto kept = session_.recovery()->code_of(handle);
  if (kept == nullptr) return Error{ErrorCode::kUnsupported, "a library's code is not there"};
  commands::LoadLibrary command{.library = as<CUlibrary>(handle),
                                .options = wire::List<std::int32_t>(kept->options),
                                .values = wire::List<std::uint64_t>(kept->values)};
  if (Status sent = upload(kept->image, command.upload); !sent) return sent;
  return ask(nullptr, command);
}

Status Replay::module(std::uint64_t handle, const ModuleState& module) {
  if (module.library != 0) {
    return ask(module.context, commands::GetLibraryModule{.library = as<CUlibrary>(module.library),
                                                          .module = as<CUmodule>(handle)});
  }
  const auto kept = session_.recovery()->code_of(handle);
  if (kept == nullptr) return Error{ErrorCode::kUnsupported, "a module's code is not there"};
  commands::LoadModule command{.module = as<CUmodule>(handle),
                               .options = wire::List<std::int32_t>(kept->options),
                               .values = wire::List<std::uint64_t>(kept->values)};
  if (Status sent = upload(kept->image, command.upload); !sent) return sent;
  return ask(module.context, command);
}

Status Replay::kernel(std::uint64_t handle, KernelState& kernel) {
  const int devices = session_.devices().count();
  for (CUdevice device = 0; device < devices; ++device) {
    FunctionFacts& facts = kernel.facts[static_cast<std::size_t>(device)];
    std::vector<std::pair<std::int32_t, std::int32_t>> to_set;
    if (device == 0) {
      commands::GetKernel::Reply reply;
      const commands::GetKernel command{.library = as<CUlibrary>(kernel.library),
                                        .name = kernel.code->name,
                                        .kernel = as<CUkernel>(handle),
                                        .device = device};
      if (Status found = ask(nullptr, command, reply); !found) return found;
      if (facts.described.load() && !same_attributes(facts, reply, to_set)) {
        return Error{ErrorCode::kUnsupported, "a kernel came back as another one"};
      }
    } else if (facts.described.load()) {
      commands::DescribeKernel::Reply reply;
      const commands::DescribeKernel command{.kernel = as<CUkernel>(handle), .device = device};
      if (Status told = ask(nullptr, command, reply); !told) return told;
      if (!same_attributes(facts, reply, to_set)) {
        return Error{ErrorCode::kUnsupported, "a kernel came back as another one"};
      }
    }
    for (const auto& [attribute, value] : to_set) {
      const commands::SetKernelAttribute command{
          .kernel = as<CUkernel>(handle), .attribute = attribute, .value = value, .device = device};
      if (Status set = ask(nullptr, command); !set) return set;
    }
  }
  return {};
}

Status Replay::function(std::uint64_t handle, FunctionState& function) {
  std::vector<std::pair<std::int32_t, std::int32_t>> to_set;
  bool same = true;
  if (function.kernel != 0) {
    commands::GetKernelFunction::Reply reply;
    const commands::GetKernelFunction command{.kernel = as<CUkernel>(function.kernel),
                                              .function = as<CUfunction>(handle)};
    if (Status found = ask(function.context, command, reply); !found) return found;
    same = same_attributes(function.facts, reply, to_set);
  } else {
    commands::GetFunction::Reply reply;
    const commands::GetFunction command{.module = as<CUmodule>(function.module),
                                        .name = function.code->name,
                                        .function = as<CUfunction>(handle)};
    if (Status found = ask(function.context, command, reply); !found) return found;
    same = same_attributes(function.facts, reply, to_set);
  }
  if (!same) return Error{ErrorCode::kUnsupported, "a function came back as another one"};
  for (const auto& [attribute, value] : to_set) {
    const commands::SetFunctionAttribute command{
        .function = as<CUfunction>(handle), .attribute = attribute, .value = value};
    if (Status set = ask(function.context, command); !set) return set;
  }
  return {};
}

Status Replay::links() {
  Status status;
  session_.code().links.for_each([&](std::uint64_t handle, const LinkState& state) {
    if (status && !state.fetched) status = link(handle, state);
  });
  return status;
}

Status Replay::link(std::uint64_t handle, const LinkState& link) {
  if (link.context->live.load() == 0) {
    return Error{ErrorCode::kUnsupported, "a linker's context is gone"};
  }
  const auto state = as<CUlinkState>(handle);
  const commands::CreateLink create{.link = state,
                                    .options = wire::List<std::int32_t>(link.options->options()),
                                    .values = wire::List<std::uint64_t>(link.options->values())};
  if (Status made = ask(link.context, create); !made) return made;
  for (const LinkInput& input : link.inputs) {
    commands::AddLinkData add{.link = state,
                              .type = static_cast<std::int32_t>(input.type),
                              .name = input.name,
                              .options = wire::List<std::int32_t>(input.options),
                              .values = wire::List<std::uint64_t>(input.values)};
    if (Status sent = upload(input.data, add.upload); !sent) return sent;
    if (Status added = ask(link.context, add); !added) return added;
  }
  return link.complete ? ask(link.context, commands::CompleteLink{.link = state}) : Status();
}

}  // namespace flyt::client
