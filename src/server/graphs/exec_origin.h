// ExecOrigin: what an executable graph was made of, so that it can be made again for other
// multiprocessors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "cuda/types.h"
#include "server/graphs/graph_copy.h"
#include "server/handles.h"
#include "server/lease/sm_part.h"
#include "server/request.h"
#include "server/streams/event_pool.h"

namespace flyt::server {

class Session;

// Drivers bind kernels of graphs to the multiprocessors of their capture for ever. So a copy of the
// graph is kept, changed as the program changes the executable one, and instantiated again when
// that is used next. What cannot be copied keeps its multiprocessors. Belongs to the main thread.
class ExecOrigin final : public Attachment {
 public:
  explicit ExecOrigin(Session& session) : session_(session) {}
  // For a graph of the client's that is going to be instantiated; null in a session whose
  // multiprocessors never change.
  static std::shared_ptr<ExecOrigin> begin(Session& session, std::uint64_t name, CUgraph graph,
                                           std::uint64_t flags);
  // For one that was instantiated of `made` in place of the client's graph, in a session that goes
  // on here. `numbers`: of its nodes, by the client's names. Null where nothing is to be known of
  // it.
  static std::shared_ptr<ExecOrigin> restored(
      Session& session, std::shared_ptr<GraphCopy> made,
      std::unordered_map<std::uint64_t, std::size_t> numbers, std::uint64_t flags);
  // What is to be instantiated: that graph, or a copy of it for the present part.
  CUgraph graph() const { return made_ != nullptr ? made_->graph() : original_; }
  // That was done.
  void instantiated();

  const std::shared_ptr<SmPart>& part() const { return part_; }
  // It cannot be made again.
  bool fixed() const { return content_ == nullptr; }

  // Before it is used: makes it again if the present part is another one, and nobody works with it.
  // `exec`: the driver's, in the client's table under `handle`.
  void renew(std::uint64_t handle, CUgraphExec& exec);
  // Which stream of the client's it is launched into, which waits for its last launch in another
  // stream if it was made again since. That stream's context is current.
  void before_launch(const Request& request, CUstream client, CUstream native);

  // How the driver knows, in the executable graph, a node that the client names.
  CUgraphNode node(std::uint64_t name);
  // The program has changed a node.
  void note_params(std::uint64_t name, CUgraphNodeParams& params, bool typed);
  void note_enabled(std::uint64_t name, bool enabled);
  // What a graph is to be so that the driver takes it for an update; null: as it is.
  std::shared_ptr<GraphCopy> for_update(std::uint64_t name, CUgraph graph);
  // The node of a graph that a node of its copy stands for; null if it is in a child.
  CUgraphNode original_of(CUgraph graph, const GraphCopy& copy, CUgraphNode node) const;
  // It has been updated to that graph.
  void note_update(CUgraph graph);

 private:
  struct Place {
    std::uint32_t context = 0;
    std::uint32_t thread = 0;
    CUstream stream = nullptr;  // The client's handle.
    bool operator==(const Place&) const = default;
  };

  std::optional<std::size_t> number_of(std::uint64_t name);
  std::optional<std::size_t> find(std::uint64_t name);
  bool make_again(std::uint64_t handle, CUgraphExec& exec);
  std::vector<std::shared_ptr<Fence>> last_launch();

  Session& session_;
  CUgraph original_ = nullptr;  // Until it is instantiated.
  std::uint64_t flags_ = 0;
  std::shared_ptr<SmPart> part_;  // In which it runs.
  // Those that its graph was made in, as long as a node may need them.
  std::vector<std::shared_ptr<SmPart>> made_in_;
  std::shared_ptr<GraphCopy> base_;     // Of the client's graph: by it nodes are found.
  std::shared_ptr<GraphCopy> made_;     // From which it was made; null: the client's graph.
  std::shared_ptr<GraphCopy> content_;  // What it does now; null: it cannot be made again.
  std::unordered_map<std::uint64_t, std::size_t> numbers_;  // Of nodes, by the client's names.
  std::set<std::size_t> disabled_;
  unsigned failures_ = 0;
  Place launched_;
  bool launches_apart_ = false;  // Made again since the last launch.
};

}  // namespace flyt::server
