// Executable graphs that are updated while their last launch goes on.
#include <cstdlib>
#include <utility>
#include <vector>

#include "server/graphs/graph_costs.h"
#include "tests/hostile/hostile_graphs.h"

namespace flyt::sim {
namespace {

// With a driver that waits for the last launch before it updates an executable graph.
class GraphsAtWork : public HostileGraphs {
 protected:
  static void SetUpTestSuite() {
    ::setenv("FLYT_SOFTGPU_GRAPH_UPDATE_WAITS", "1", 1);
    start_server({});
    ::unsetenv("FLYT_SOFTGPU_GRAPH_UPDATE_WAITS");
  }
  // Until finish_update().
  void begin_update() {
    ASSERT_EQ(
        CUDA_SUCCESS,
        ask(commands::AddGraphNode{
            .graph = graph_, .parameters = host_parameters(), .data = host_data(), .typed = true}));
    node_ = added();
    ASSERT_EQ(CUDA_SUCCESS, ask(commands::InstantiateGraph{.exec = exec_, .graph = graph_}));
    send(commands::LaunchGraph{.exec = exec_, .stream = stream_});
    const Heard call = peer_->read_until(wire::FrameKind::kHostCall);
    ASSERT_TRUE(call.is(wire::FrameKind::kHostCall));
    call_ = call.header.argument;
    send(commands::UpdateGraphExec{.exec = exec_, .graph = graph_});
  }
  void finish_update() {
    send(commands::HostCallDone{.token = call_});
    EXPECT_EQ(CUDA_SUCCESS, answer());
  }
  Bytes host_parameters() {
    host_.type = CU_GRAPH_NODE_TYPE_HOST;
    return bytes_at(&host_, sizeof host_);
  }
  Bytes host_data() const { return bytes_at(&kFunction, sizeof kFunction); }

  static constexpr std::uint64_t kFunction = 7;
  const std::uint64_t exec_ = wire::Handle::make(wire::HandleKind::kGraphExec, 1, 1).value;
  std::uint64_t node_ = 0;
  std::uint64_t call_ = 0;
  CUgraphNodeParams host_{};
};

TEST_F(GraphsAtWork, LiveUntilTheWorkIsDone) {
  ASSERT_NO_FATAL_FAILURE(begin_update());
  // Of what is said from here on until the function has run, the update hears nothing.
  send(commands::DestroyGraphExec{.exec = exec_});
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::DestroyGraph{.graph = graph_}));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, ask(commands::GraphExecFlags{.exec = exec_}));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, ask(commands::CloneGraph{.graph = graph_}));
  finish_update();
  EXPECT_TRUE(peer_->alive());
}

// Drivers do not expect that anything else happens to a graph meanwhile.
TEST_F(GraphsAtWork, AreLeftAloneByOtherCommands) {
  ASSERT_NO_FATAL_FAILURE(begin_update());
  const CUgraphNodeParams filled = fill(address_, 16);
  const CUresult refused = CUDA_ERROR_ILLEGAL_STATE;
  EXPECT_EQ(refused, add_to(graph_, filled));
  EXPECT_EQ(refused, ask(commands::SetGraphNode{
                         .node = node_, .parameters = host_parameters(), .data = host_data()}));
  EXPECT_EQ(refused, ask(commands::DestroyGraphNode{.node = node_}));
  EXPECT_EQ(refused, ask(commands::ChangeEdges{.graph = graph_}));
  EXPECT_EQ(refused, ask(commands::TryLaunchGraph{.exec = exec_, .stream = stream_}));
  EXPECT_EQ(refused, ask(commands::UpdateGraphExec{.exec = exec_, .graph = graph_}));
  EXPECT_EQ(refused, ask(commands::GraphExecFlags{.exec = exec_}));
  const std::uint64_t other = new_graph();
  EXPECT_EQ(CUDA_SUCCESS, add_to(other, filled));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            add_to(other, child(graph_, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)));
  finish_update();
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::GraphExecFlags{.exec = exec_}));
  EXPECT_EQ(CUDA_SUCCESS, add_to(graph_, filled));
  EXPECT_TRUE(peer_->alive());
}

// What is destroyed meanwhile is there still.
TEST_F(GraphsAtWork, HaveTheSameBoundForWhatIsDestroyed) {
  ASSERT_NO_FATAL_FAILURE(begin_update());
  const std::uint64_t first = std::exchange(graph_, new_graph());
  constexpr std::size_t kEach = 8192;
  constexpr std::size_t kDense = 64;
  const std::vector<std::uint64_t> nodes = add_empty(kEach);
  for (std::size_t i = 0; i < kDense; ++i) ASSERT_EQ(CUDA_SUCCESS, add_behind(nodes)) << i;
  CUresult result = CUDA_SUCCESS;
  std::size_t made = 0;
  while (result == CUDA_SUCCESS && made < 100) {
    result = ask(commands::CloneGraph{.graph = graph_});
    if (result != CUDA_SUCCESS) break;
    commands::CloneGraph::Reply copied;
    ASSERT_TRUE(wire::decode(fields(), copied));
    ASSERT_EQ(CUDA_SUCCESS, ask(commands::DestroyGraph{.graph = copied.clone}));
    ++made;
  }
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, result);
  EXPECT_EQ(server::GraphCosts::kEdgesMax / (kEach * kDense) - 1, made);
  finish_update();
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::CloneGraph{.graph = graph_}));
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::DestroyGraph{.graph = first}));
}

}  // namespace
}  // namespace flyt::sim
