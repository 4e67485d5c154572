// Marks: how far a session has come, where it can be read when its process was killed.
#include "server/recovery/marks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "commands/array.h"
#include "commands/context.h"
#include "commands/copy.h"
#include "commands/device.h"
#include "commands/event.h"
#include "commands/function.h"
#include "commands/graph.h"
#include "commands/init.h"
#include "commands/launch.h"
#include "commands/library.h"
#include "commands/link.h"
#include "commands/memop.h"
#include "commands/memory.h"
#include "commands/memset.h"
#include "commands/module.h"
#include "commands/occupancy.h"
#include "commands/ops.h"
#include "commands/peer.h"
#include "commands/pinned.h"
#include "commands/pool.h"
#include "commands/recovery.h"
#include "commands/stream.h"
#include "commands/tensormap.h"
#include "commands/texture.h"
#include "commands/vmm.h"

namespace flyt::server {
namespace {

using Roles = std::array<Role, commands::kOpMax + 1>;

template <class... Commands>
constexpr void set(Roles& roles, Role role) {
  ((roles[Commands::kOp] = role), ...);
}

// What clients make again that know recovered_pushes.
constexpr void set_newer(Roles& roles) {
  using namespace commands;
  set<RecoveredPushes, CreateLink, AddLinkData, CompleteLink, ReadLink, DestroyLink,
      CtxEnablePeerAccess, CtxDisablePeerAccess, PoolAccess, MapHost, WriteHost, CreateArray,
      CreateMipmappedArray, GetArrayLevel, DestroyArray, DestroyMipmappedArray, CreateTexture,
      DestroyTexture, CreateSurface, DestroySurface, AimImage>(roles, Role::kPlain);
  set<CopyToArray, CopyBoxWithArray>(roles, Role::kWork);
  set<CopyArrayToHost, PostArrayToHost>(roles, Role::kOrder);
}

// Whatever is not named spoils.
constexpr Roles make_roles(bool newer) {
  using namespace commands;
  Roles roles{};
  set<RetainPrimary, ReleasePrimary, ResetPrimary, SetPrimaryFlags, CreateContext, DestroyContext,
      SetContextFlags, SetContextLimit, SetContextCache, SynchronizeContext, ContextAffinity,
      CtxResetPersistingL2Cache>(roles, Role::kPlain);
  set<DescribeServer, ChipLayout, DescribeDevice, Texture1dLinearWidth, DeviceCanAccessPeer,
      DeviceGetP2PAttribute, DeviceGetP2PAtomicCapabilities, HearPosts>(roles, Role::kPlain);
  // What graphs are is in the next save, and what cannot be saved holds the session back as long as
  // it is there: server/graphs/graph_records.h.
  set<BeginCapture, EndCapture, CaptureInfo, CaptureDependencies, CaptureCopy, CaptureHostCall,
      CaptureAllocation, CreateGraph, DestroyGraph, CloneGraph, FindInClone, ListGraph, ChangeEdges,
      AddGraphNode, GraphNodeType, GetGraphNode, SetGraphNode, DestroyGraphNode, GetNodeAttribute,
      SetNodeAttribute, CopyNodeAttributes, DrawGraph, CreateConditional>(roles, Role::kPlain);
  set<InstantiateGraph, DestroyGraphExec, UploadGraph, GraphExecFlags, UpdateGraphExec, SetExecNode,
      EnableExecNode, ExecNodeEnabled>(roles, Role::kPlain);
  set<GetGraphMemory, TrimGraphMemory, ResetGraphMemory, FreeGraphMemory>(roles, Role::kPlain);
  set<EventCreate, EventDestroy, EventQuery, WatchEvent, EventSynchronize, EventElapsedTime,
      StreamCreate, StreamDestroy, StreamQuery, WatchStream, StreamSynchronize, StreamSetAttribute,
      HostCallDone, EndThread, MarkStream, PrepareCopies>(roles, Role::kPlain);
  set<SetFunctionAttribute, SetFunctionCache, LoadLibrary, UnloadLibrary, GetKernel, DescribeKernel,
      LibraryKernelNames, GetLibraryModule, GetKernelFunction, SetKernelAttribute, SetKernelCache,
      Upload, DropUpload, DescribeUpload, LoadModule, UnloadModule, GetFunction,
      ModuleFunctionNames>(roles, Role::kPlain);
  set<OccupancyBlocks, OccupancyBlockSize, OccupancyShared, OccupancyClusters, EncodeTensorMapTiled,
      EncodeTensorMapIm2col, EncodeTensorMapIm2colWide, ReplaceTensorMapAddress>(roles,
                                                                                 Role::kPlain);
  set<MemAlloc, MemFree, MemInfo, ShareHost, UnmapHost>(roles, Role::kPlain);
  set<PoolCreate, PoolDestroy, PoolAllocate, PoolFree, PoolTrim, PoolGet, PoolSet>(roles,
                                                                                   Role::kPlain);
  // What they tell is in the next snapshot: server/recovery/variables.h.
  set<GetGlobal, GetLibraryGlobal>(roles, Role::kPlain);
  set<VmmCreate, VmmRelease, VmmMap, VmmUnmap, VmmSetAccess>(roles, Role::kPlain);
  set<RecoveredMarks, RecoveredFault, RestoreMemory, RestorePoolMemory, EndRestoring>(roles,
                                                                                      Role::kPlain);
  set<LaunchGraph, TryLaunchGraph>(roles, Role::kWork);
  set<LaunchKernel, TryLaunchKernel, StreamMemOp, FillMemory, CopyToDevice, CopyToDeviceAndWait,
      CopyRowsToDevice, CopyBlockToDevice, CopyOnDevice, CopyBoxOnDevice>(roles, Role::kWork);
  set<EventRecord, StreamWaitEvent, ContextRecordEvent, ContextWaitEvent, HostCall, CopyToHost,
      PostToHost>(roles, Role::kOrder);
  if (newer) set_newer(roles);
  return roles;
}

constexpr Roles kRoles = make_roles(true);
constexpr Roles kRolesOfBefore = make_roles(false);

}  // namespace

Role role_of(std::uint16_t op, std::uint16_t client_knows) {
  if (op >= kRoles.size()) return Role::kSpoils;
  return client_knows >= commands::RecoveredPushes::kOp ? kRoles[op] : kRolesOfBefore[op];
}

Marks::~Marks() {
  if (page_ != nullptr) ::munmap(page_, kBytes);
}

Status Marks::make(std::uint16_t client_knows) {
  client_knows_ = client_knows;
  Fd file(::memfd_create("flyt-marks", MFD_CLOEXEC));
  if (!file.valid() || ::ftruncate(file.get(), kBytes + Snapshot::kBytes + GraphLog::kBytes) != 0) {
    return system_error("making a session's marks", errno);
  }
  void* page = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (page == MAP_FAILED) return system_error("mapping a session's marks", errno);
  file_ = std::move(file);
  page_ = static_cast<Page*>(page);
  return {};
}

Result<Marks::Told> Marks::read(const Fd& file) {
  struct stat status {};
  // That of a build that saved no variables ends with the page, of one that saved no graphs with
  // the snapshot.
  constexpr std::array<std::size_t, 3> kSizes = {kBytes, kBytes + Snapshot::kBytes,
                                                 kBytes + Snapshot::kBytes + GraphLog::kBytes};
  const bool good = ::fstat(file.get(), &status) == 0 &&
                    std::find(kSizes.begin(), kSizes.end(),
                              static_cast<std::size_t>(status.st_size)) != kSizes.end();
  if (!good) {
    return Error{ErrorCode::kInvalid, "the session's marks are not as they were made"};
  }
  void* mapped = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return system_error("mapping a session's marks", errno);
  const auto* page = static_cast<const Page*>(mapped);
  Told told;
  told.begun = page->begun.load();
  told.work = page->work.load();
  told.done = page->done.load();
  told.spoilt = static_cast<std::uint16_t>(page->spoilt.load());
  told.fault = page->fault.load();
  told.pushes = page->pushes.load();
  const std::uint32_t unsaved = page->unsaved.load();
  told.unsaved = (unsaved & kVariables) != 0;
  told.unsaved_graphs = (unsaved & kGraphs) != 0;
  if (unsaved != 0) ++told.work;
  told.graph_names = page->graph_names.load();
  told.managed_bytes = page->managed_bytes.load();
  const std::uint64_t graphs = page->graphs.load();
  const std::uint32_t snapshots = page->snapshots.load();
  ::munmap(mapped, kBytes);
  if (told.spoilt != 0) return told;
  if (graphs != 0) {
    auto entries = GraphLog::read(file, kBytes + Snapshot::kBytes, graphs);
    if (!entries) return std::move(entries).error();
    told.graphs = std::move(*entries);
  }
  if (snapshots == 0) return told;
  auto saved = Snapshot::read(file, kBytes, snapshots % 2);
  if (!saved) return std::move(saved).error();
  told.variables = std::move(*saved);
  return told;
}

Result<MutableBytes> Marks::begin_snapshot(const std::vector<SavedVariable>& variables) {
  return snapshot_.begin((page_->snapshots.load() + 1) % 2, variables);
}

void Marks::end_snapshot() {
  std::uint32_t next = page_->snapshots.load() + 1;
  page_->snapshots.store(next == 0 ? 2 : next);
}

void Marks::end_graphs() {
  page_->graphs.store(graphs_.standing());
  graphs_.finish();
}

void Marks::spoil(std::uint16_t op) {
  if (page_ == nullptr || spoilt_for_good()) return;
  const Lock lock(spoils_mutex_);
  std::uint16_t none = 0;
  for_good_.compare_exchange_strong(none, op);
  tell_spoilt();
}

void Marks::change_spoilers(std::uint16_t op, int change) {
  const Lock lock(spoils_mutex_);
  if ((spoilers_[op] += change) == 0) spoilers_.erase(op);
  if (page_ != nullptr) tell_spoilt();
}

void Marks::tell_spoilt() {
  const std::uint16_t passing = spoilers_.empty() ? 0 : spoilers_.begin()->first;
  const std::uint16_t for_good = for_good_.load();
  page_->spoilt.store(for_good != 0 ? for_good : passing);
}

}  // namespace flyt::server
