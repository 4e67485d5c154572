// Graphs and captures, and what a client may not say about them.
#include <cstring>
#include <vector>

#include "tests/hostile/hostile_graphs.h"
#include "wire/graphs.h"

namespace flyt::sim {
namespace {

constexpr std::uint64_t kServersOwn = 0x400000;

TEST_F(HostileGraphs, AreKnownByTheirNumbersAlone) {
  const std::vector<std::uint64_t> wrong = {
      0,
      1,
      graph_ + 16,
      graph_ ^ (1ULL << 26),
      ~0ULL,
      kServersOwn,
      graph_ | (1ULL << 63),
      wire::Handle::make(wire::HandleKind::kGraphNode, 1, 1).value};
  for (const std::uint64_t number : wrong) {
    EXPECT_NE(CUDA_SUCCESS, ask(commands::DestroyGraph{.graph = number})) << number;
    EXPECT_NE(CUDA_SUCCESS, ask(commands::CloneGraph{.graph = number}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::ListGraph{.object = number, .what = 0}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::ListGraph{.object = number, .what = 3}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::DrawGraph{.graph = number}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::InstantiateGraph{.exec = 1, .graph = number}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::GraphNodeType{.node = number}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::GetGraphNode{.node = number, .type = 0}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::SetGraphNode{.node = number}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::DestroyGraphNode{.node = number}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::GetNodeAttribute{.node = number}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::SetNodeAttribute{.node = number}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::CopyNodeAttributes{.to = number, .from = number}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::FindInClone{.node = number, .clone = graph_}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::CreateConditional{.graph = number}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::TryLaunchGraph{.exec = number, .stream = stream_}));
    EXPECT_NE(CUDA_SUCCESS, post(commands::LaunchGraph{.exec = number, .stream = stream_}));
    EXPECT_NE(CUDA_SUCCESS, post(commands::UploadGraph{.exec = number, .stream = stream_}));
    EXPECT_NE(CUDA_SUCCESS, post(commands::DestroyGraphExec{.exec = number}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::UpdateGraphExec{.exec = number, .graph = graph_}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::ReleaseUserObject{.object = number, .count = 1}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::GraphRetainObject{.graph = graph_, .object = number}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::FreeGraphMemory{.stream = stream_, .address = number}));
    EXPECT_NE(CUDA_SUCCESS, ask(commands::FreeGraphMemory{.stream = nullptr, .address = number}));
  }
  EXPECT_NE(CUDA_SUCCESS, ask(commands::ListGraph{.object = graph_, .what = 5}));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileGraphs, NodesOfADestroyedGraphAreUnknown) {
  ASSERT_EQ(CUDA_SUCCESS, add(fill(address_, 16)));
  const std::uint64_t node = added();
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::GraphNodeType{.node = node}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::DestroyGraph{.graph = graph_}));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::GraphNodeType{.node = node}));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::DestroyGraph{.graph = graph_}));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileGraphs, ParametersOfAnotherSizeAreRefused) {
  const CUgraphNodeParams params = fill(address_, 16);
  const Bytes whole = bytes_at(&params, sizeof params);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ASSERT_NE(CUDA_SUCCESS,
              ask(commands::AddGraphNode{.graph = graph_, .parameters = whole.first(size)}));
  }
  EXPECT_EQ(CUDA_SUCCESS, add(params));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileGraphs, KindsThatThereAreNotAreRefused) {
  CUgraphNodeParams params{};
  for (const std::uint32_t type : {8U, 9U, 14U, 0x7fffffffU, 0xffffffffU}) {
    std::memcpy(static_cast<void*>(&params), &type, sizeof type);
    EXPECT_NE(CUDA_SUCCESS, add(params)) << type;
  }
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileGraphs, MemoryIsOfADeviceThatThereIs) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  params.alloc.bytesize = 4096;
  params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  EXPECT_EQ(CUDA_SUCCESS, add(params));
  const auto put = [](void* place, std::uint32_t value) {
    std::memcpy(place, &value, sizeof value);
  };
  for (const std::uint32_t number : {1000U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
    CUgraphNodeParams wrong = params;
    put(&wrong.alloc.poolProps.location.id, number);
    EXPECT_NE(CUDA_SUCCESS, add(wrong)) << number;
    wrong = params;
    put(&wrong.alloc.poolProps.location.type, number);
    EXPECT_NE(CUDA_SUCCESS, add(wrong)) << number;
    wrong = params;
    put(&wrong.alloc.poolProps.allocType, number);
    EXPECT_NE(CUDA_SUCCESS, add(wrong)) << number;
    wrong = params;
    wrong.alloc.accessDescCount = 1;
    for (const int field : {0, 1, 2}) {
      CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                             CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      void* const fields[] = {&access.location.type, &access.location.id, &access.flags};
      put(fields[field], number);
      EXPECT_NE(CUDA_SUCCESS, add(wrong, bytes_at(&access, sizeof access))) << number;
    }
  }
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileGraphs, NodesUseTheSessionsOwnMemory) {
  EXPECT_EQ(CUDA_SUCCESS, add(fill(address_, 4096)));
  EXPECT_NE(CUDA_SUCCESS, add(fill(address_, 1ULL << 40)));
  EXPECT_NE(CUDA_SUCCESS, add(fill(address_, 16, 1ULL << 40, 1ULL << 40)));
  EXPECT_NE(CUDA_SUCCESS, add(fill(address_, ~0ULL, ~0ULL, ~0ULL)));
  EXPECT_NE(CUDA_SUCCESS, add(fill(kServersOwn, 16)));
  EXPECT_EQ(CUDA_SUCCESS, add(copy(address_, address_ + 64, 64)));
  EXPECT_NE(CUDA_SUCCESS, add(copy(kServersOwn, address_, 64)));
  EXPECT_NE(CUDA_SUCCESS, add(copy(address_, kServersOwn, 64)));
  EXPECT_NE(CUDA_SUCCESS, add(copy(address_, address_, ~0ULL)));
  CUgraphNodeParams box = copy(address_, address_ + 64, 64);
  box.memcpy.copyParams.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.memcpy.copyParams.srcHost = pointer_at(kServersOwn);
  EXPECT_NE(CUDA_SUCCESS, add(box));
  box = copy(address_, address_ + 64, 64);
  box.memcpy.copyParams.srcZ = 1ULL << 50;
  EXPECT_NE(CUDA_SUCCESS, add(box));
  box.memcpy.copyParams.srcZ = 0;
  box.memcpy.copyParams.Depth = 1ULL << 50;
  EXPECT_NE(CUDA_SUCCESS, add(box));
  box = copy(address_, address_ + 64, 64);
  box.memcpy.copyParams.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  box.memcpy.copyParams.srcArray = static_cast<CUarray>(pointer_at(kServersOwn));
  EXPECT_NE(CUDA_SUCCESS, add(box));
  CUstreamBatchMemOpParams word{};
  word.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  word.writeValue.address = kServersOwn;
  CUgraphNodeParams words{};
  words.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  words.memOp.count = 1;
  EXPECT_NE(CUDA_SUCCESS, add(words, bytes_at(&word, sizeof word)));
  words.memOp.count = 1 << 20;
  EXPECT_NE(CUDA_SUCCESS, add(words, bytes_at(&word, sizeof word)));
  CUgraphNodeParams release{};
  release.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  release.free.dptr = kServersOwn;
  EXPECT_NE(CUDA_SUCCESS, add(release));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileGraphs, NodesUseTheSessionsOwnObjects) {
  CUgraphNodeParams kernel{};
  kernel.type = CU_GRAPH_NODE_TYPE_KERNEL;
  EXPECT_NE(CUDA_SUCCESS, add(kernel));
  kernel.kernel.func = static_cast<CUfunction>(pointer_at(kServersOwn));
  EXPECT_NE(CUDA_SUCCESS, add(kernel));
  kernel.kernel.func = nullptr;
  kernel.kernel.kern = static_cast<CUkernel>(pointer_at(kServersOwn));
  EXPECT_NE(CUDA_SUCCESS, add(kernel));
  CUgraphNodeParams record{};
  record.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  record.eventRecord.event = static_cast<CUevent>(pointer_at(kServersOwn));
  EXPECT_NE(CUDA_SUCCESS, add(record));
  CUgraphNodeParams child{};
  child.type = CU_GRAPH_NODE_TYPE_GRAPH;
  child.graph.graph = static_cast<CUgraph>(pointer_at(kServersOwn));
  EXPECT_NE(CUDA_SUCCESS, add(child));
  CUgraphNodeParams conditional{};
  conditional.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  conditional.conditional.handle = kServersOwn;
  conditional.conditional.size = 1;
  EXPECT_NE(CUDA_SUCCESS, add(conditional));
  conditional.conditional.size = ~0U;
  EXPECT_NE(CUDA_SUCCESS, add(conditional));
  CUgraphNodeParams wide = fill(address_, 16);
  wide.memset.ctx = static_cast<CUcontext>(pointer_at(kServersOwn));
  EXPECT_NE(CUDA_SUCCESS, add(wide));
  // A host function has a name of eight bytes, which is not 0.
  CUgraphNodeParams host{};
  host.type = CU_GRAPH_NODE_TYPE_HOST;
  const std::vector<std::byte> zeros(8);
  EXPECT_NE(CUDA_SUCCESS, add(host));
  EXPECT_NE(CUDA_SUCCESS, add(host, Bytes(zeros).first(7)));
  EXPECT_NE(CUDA_SUCCESS, add(host, zeros));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileGraphs, EdgesAreToldWholeOrNotAtAll) {
  ASSERT_EQ(CUDA_SUCCESS, add(fill(address_, 16)));
  const std::vector<std::uint64_t> one = {added()};
  ASSERT_EQ(CUDA_SUCCESS, add(fill(address_, 16)));
  const std::vector<std::uint64_t> two = {added()};
  const std::vector<std::uint64_t> both = {one[0], two[0]};
  const std::vector<std::byte> data(24);
  using List = wire::List<std::uint64_t>;
  const auto change = [&](const List& from, const List& to, Bytes edges) {
    return ask(
        commands::ChangeEdges{.graph = graph_, .add = 1, .from = from, .to = to, .edges = edges});
  };
  EXPECT_NE(CUDA_SUCCESS, change(List(both), List(one), {}));
  EXPECT_NE(CUDA_SUCCESS, change(List(one), List(two), Bytes(data).first(7)));
  EXPECT_NE(CUDA_SUCCESS, change(List(one), List(two), Bytes(data).first(16)));
  EXPECT_EQ(CUDA_SUCCESS, change(List(one), List(two), Bytes(data).first(8)));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileGraphs, ACapturedStreamTakesNothingThatDoesNotLast) {
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::BeginCapture{.stream = stream_}));
  const std::vector<std::byte> data(16);
  const CUresult refused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  EXPECT_EQ(refused,
            post(commands::CopyToDevice{.stream = stream_, .address = address_, .data = data}));
  EXPECT_EQ(refused, post(commands::PostToHost{.stream = stream_,
                                               .address = address_,
                                               .pitch = 16,
                                               .slice_pitch = 16,
                                               .width = 16,
                                               .rows = 1,
                                               .slices = 1,
                                               .delivery = 1}));
  EXPECT_EQ(refused, post(commands::HostCall{.stream = stream_, .token = 1, .kind = 0}));
  EXPECT_EQ(refused, ask(commands::PoolAllocate{.stream = stream_, .pool = 1, .bytes = 64}));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::CaptureCopy{.stream = stream_, .parameters = data}));
  CUDA_MEMCPY3D foreign = copy(kServersOwn, address_, 64).memcpy.copyParams;
  EXPECT_NE(CUDA_SUCCESS,
            ask(commands::CaptureCopy{.stream = stream_,
                                      .parameters = bytes_at(&foreign, sizeof foreign)}));
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::EndCapture{.stream = stream_}));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileGraphs, AStreamThatIsNotCapturedTakesNothingThatIsForGraphs) {
  EXPECT_NE(CUDA_SUCCESS, ask(commands::EndCapture{.stream = stream_}));
  EXPECT_NE(CUDA_SUCCESS,
            ask(commands::CaptureHostCall{.stream = stream_, .kind = 0, .function = 1}));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::CaptureAllocation{.stream = stream_, .bytes = 64}));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::CaptureDependencies{.stream = stream_}));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileGraphs, TheGraphOfAFailedCaptureIsUnknown) {
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::BeginCapture{.stream = stream_}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::CaptureInfo{.stream = stream_}));
  commands::CaptureInfo::Reply info;
  ASSERT_TRUE(wire::decode(fields(), info));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::StreamQuery{.stream = stream_}));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::EndCapture{.stream = stream_}));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::ListGraph{.object = info.graph, .what = 0}));
  EXPECT_NE(CUDA_SUCCESS, ask(commands::DestroyGraph{.graph = info.graph}));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileGraphs, ASessionMayEndInTheMiddleOfACapture) {
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::BeginCapture{.stream = stream_}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::CaptureInfo{.stream = stream_}));
  send(commands::StreamDestroy{.stream = stream_});
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::HearPosts{}));
  EXPECT_TRUE(peer_->alive());
}

// Its pieces would be nodes that write to the server's memory whenever the graph is launched.
TEST_F(HostileGraphs, ACaptureTakesNoPartOfACopyThatIsUnderWay) {
  constexpr std::uint64_t kBytes = 32 * kMiB;
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::MemAlloc{.bytes = kBytes}));
  commands::MemAlloc::Reply allocated;
  ASSERT_TRUE(wire::decode(fields(), allocated));
  send(commands::HostCall{.stream = stream_, .token = 1, .kind = 0});
  ASSERT_TRUE(peer_->read_until(wire::FrameKind::kHostCall).is(wire::FrameKind::kHostCall));
  send(commands::CopyToHost{.stream = stream_,
                            .address = allocated.address,
                            .width = kBytes,
                            .rows = 1,
                            .slices = 1,
                            .delivery = 1});
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE, ask(commands::BeginCapture{.stream = stream_}));
  send(commands::HostCallDone{.token = 1});
  EXPECT_EQ(CUDA_SUCCESS, answer());
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::BeginCapture{.stream = stream_}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::EndCapture{.stream = stream_}));
  commands::EndCapture::Reply captured;
  ASSERT_TRUE(wire::decode(fields(), captured));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::ListGraph{.object = captured.graph, .what = 0}));
  commands::ListGraph::Reply listed;
  ASSERT_TRUE(wire::decode(fields(), listed));
  EXPECT_EQ(0u, listed.total);
}

// Nor does a stream that joins one.
TEST_F(HostileGraphs, ACaptureIsNotJoinedByAStreamWithACopyUnderWay) {
  constexpr std::uint64_t kBytes = 32 * kMiB;
  const auto other = handle_as<CUstream>(wire::HandleKind::kStream, 2);
  const auto event = handle_as<CUevent>(wire::HandleKind::kEvent, 1);
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::MemAlloc{.bytes = kBytes}));
  commands::MemAlloc::Reply allocated;
  ASSERT_TRUE(wire::decode(fields(), allocated));
  send(commands::StreamCreate{.stream = other, .flags = CU_STREAM_NON_BLOCKING});
  send(commands::EventCreate{.event = event});
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::BeginCapture{.stream = other}));
  send(commands::EventRecord{.event = event, .stream = other});
  send(commands::HostCall{.stream = stream_, .token = 1, .kind = 0});
  ASSERT_TRUE(peer_->read_until(wire::FrameKind::kHostCall).is(wire::FrameKind::kHostCall));
  send(commands::CopyToHost{.stream = stream_,
                            .address = allocated.address,
                            .width = kBytes,
                            .rows = 1,
                            .slices = 1,
                            .delivery = 1});
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE,
            post(commands::StreamWaitEvent{.stream = stream_, .event = event, .flags = 0}));
  send(commands::HostCallDone{.token = 1});
  EXPECT_EQ(CUDA_SUCCESS, answer());
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::EndCapture{.stream = other}));
}

// A graph would read and write what the server has there by then.
TEST_F(HostileGraphs, HostMemoryThatACopyOfAGraphNamesIsNothingElseLater) {
  constexpr std::uint64_t kBytes = 64 * kKiB;
  const std::uint64_t exec = wire::Handle::make(wire::HandleKind::kGraphExec, 1, 1).value;
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::MapHost{.address = kHost, .bytes = kBytes}));
  EXPECT_TRUE(is_taken());
  const CUgraphNodeParams box = copy_to_host(kHost);
  ASSERT_EQ(CUDA_SUCCESS,
            ask(commands::AddGraphNode{.graph = graph_, .parameters = bytes_at(&box, sizeof box)}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::InstantiateGraph{.exec = exec, .graph = graph_}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::UnmapHost{.address = kHost}));
  EXPECT_TRUE(is_taken());
  // The client may have memory there again, of another size.
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::MapHost{.address = kHost + 4096, .bytes = 2 * kBytes}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::UnmapHost{.address = kHost + 4096}));
  EXPECT_TRUE(is_taken());
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::TryLaunchGraph{.exec = exec, .stream = stream_}));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, ask(commands::StreamSynchronize{.stream = stream_}));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileGraphs, HostMemoryThatACopyOfAGraphNamesStaysSoWhateverComesThere) {
  constexpr std::uint64_t kBytes = 8 * kKiB;
  const CUgraphNodeParams box = copy_to_host(kHost);
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::MapHost{.address = kHost, .bytes = kBytes}));
  ASSERT_EQ(CUDA_SUCCESS, add_to(graph_, box));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::UnmapHost{.address = kHost}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::MapHost{.address = kHost, .bytes = kBytes}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::UnmapHost{.address = kHost}));
  EXPECT_TRUE(is_taken());
  // What is refused leaves it as it was.
  ASSERT_NE(CUDA_SUCCESS,
            ask(commands::MapHost{.address = kHost, .bytes = kBytes, .flags = 0x800}));
  EXPECT_TRUE(is_taken());
  // Two that share a page with it, one after the other.
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::MapHost{.address = kHost, .bytes = 64}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::MapHost{.address = kHost + 64, .bytes = 64}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::UnmapHost{.address = kHost}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::UnmapHost{.address = kHost + 64}));
  EXPECT_TRUE(is_taken());
}

TEST_F(HostileGraphs, ACaptureNamesHostMemoryAsNodesDo) {
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::MapHost{.address = kHost, .bytes = 4096}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::BeginCapture{.stream = stream_}));
  EXPECT_EQ(CUDA_SUCCESS, post(commands::CopyOnDevice{
                              .stream = stream_, .to = kHost, .from = address_, .bytes = 64}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::EndCapture{.stream = stream_}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::UnmapHost{.address = kHost}));
  EXPECT_TRUE(is_taken());
}

// Another driver may take no pitch for a pitch of nothing, and begin where the base is.
TEST_F(HostileGraphs, ACopyWithoutAPitchReachesFromItsBase) {
  CUgraphNodeParams box = copy(address_, address_, 64);
  box.memcpy.copyParams.dstY = (address_ - kServersOwn) / 64;
  box.memcpy.copyParams.dstDevice = address_ - box.memcpy.copyParams.dstY * 64;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add(box));
  box = copy(address_, address_, 64);
  box.memcpy.copyParams.srcHeight = 1;
  box.memcpy.copyParams.srcZ = (address_ - kServersOwn) / 64;
  box.memcpy.copyParams.srcDevice = address_ - box.memcpy.copyParams.srcZ * 64;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add(box));
  box = copy(address_, address_, 64);
  box.memcpy.copyParams.dstY = 2;
  EXPECT_EQ(CUDA_SUCCESS, add(box));
}

TEST_F(HostileGraphs, ReferencesToAnObjectAreGivenBackByWhoHasThem) {
  const std::uint64_t object = wire::Handle::make(wire::HandleKind::kUserObject, 1, 1).value;
  const auto release = [&] {
    return ask(commands::ReleaseUserObject{.object = object, .count = 1});
  };
  const auto give = [&](std::uint32_t flags) {
    return ask(
        commands::GraphRetainObject{.graph = graph_, .object = object, .count = 1, .flags = flags});
  };
  ASSERT_EQ(CUDA_SUCCESS,
            ask(commands::CreateUserObject{.object = object,
                                           .function = 7,
                                           .references = 1,
                                           .flags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC}));
  ASSERT_EQ(CUDA_SUCCESS, give(CU_GRAPH_USER_OBJECT_MOVE));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, release());
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, give(CU_GRAPH_USER_OBJECT_MOVE));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::CloneGraph{.graph = graph_}));
  commands::CloneGraph::Reply cloned;
  ASSERT_TRUE(wire::decode(fields(), cloned));
  EXPECT_EQ(CUDA_SUCCESS,
            ask(commands::GraphReleaseObject{.graph = cloned.clone, .object = object, .count = 1}));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            ask(commands::GraphReleaseObject{.graph = cloned.clone, .object = object, .count = 1}));
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::DestroyGraph{.graph = cloned.clone}));
  // The graph still has one, and the program gets some again.
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::RetainUserObject{.object = object, .count = 1}));
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::DestroyGraph{.graph = graph_}));
  EXPECT_EQ(CUDA_SUCCESS, release());
  const Heard gone = peer_->read_until(wire::FrameKind::kHostCall);
  EXPECT_TRUE(gone.is(wire::FrameKind::kHostCall));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            ask(commands::RetainUserObject{.object = object, .count = 1}));
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileGraphs, NamesOfRunsAreTheServers) {
  EXPECT_NE(CUDA_SUCCESS,
            post(commands::HostCall{.stream = stream_, .token = wire::kGraphRun | 1, .kind = 0}));
  EXPECT_TRUE(peer_->alive());
  send(commands::HostCallDone{.token = wire::kGraphRun | 1});
  expect_ended();
}

TEST_F(HostileGraphs, AHandleOfAnExecutableGraphIsUsedOnce) {
  const std::uint64_t exec = wire::Handle::make(wire::HandleKind::kGraphExec, 1, 1).value;
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::InstantiateGraph{.exec = exec, .graph = graph_}));
  send(commands::InstantiateGraph{.exec = exec, .graph = graph_});
  expect_ended();
}

TEST_F(HostileGraphs, AHandleOfAUserObjectIsOne) {
  send(commands::CreateUserObject{.object = kServersOwn,
                                  .function = 1,
                                  .references = 1,
                                  .flags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC});
  expect_ended();
}

}  // namespace
}  // namespace flyt::sim
