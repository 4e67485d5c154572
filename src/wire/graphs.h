// Graphs: what lists of a graph a client may ask for.
#pragma once

#include <cstdint>

namespace flyt::wire {

enum class GraphList : std::uint32_t {
  kNodes = 0,  // Of a graph, as are the next two.
  kRoots = 1,
  kEdges = 2,         // `nodes` are where they begin, `others` where they end.
  kDependencies = 3,  // Of a node.
  kDependents = 4,
};
inline constexpr std::uint32_t kGraphListMax = 4;

// What of a list travels at once, and what all of it may hold: a session's graphs have no more
// edges together.
inline constexpr std::uint64_t kGraphListPart = 16 * 1024;
inline constexpr std::uint64_t kGraphListLengthMax = 4 * 1024 * 1024;

// What a drawing of a graph may hold.
inline constexpr std::uint64_t kGraphDrawingBytesMax = 1024 * 1024 * 1024;

// Names of runs of a graph's host functions, which the server chooses, have this bit; names of
// other host functions, which the client chooses, have not.
inline constexpr std::uint64_t kGraphRun = std::uint64_t{1} << 63;

}  // namespace flyt::wire
