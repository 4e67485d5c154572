// UserObject: who holds references to an object of the program that graphs keep.
#pragma once

#include <cstdint>
#include <map>

#include "server/handles.h"

namespace flyt::server {

class Graphs;

// A driver takes a reference for the caller's without looking whether it is, and the object goes
// with the last one, perhaps on a thread of the driver's. So what the client has is counted here,
// and of what it has none of it names nothing. Main thread.
class UserObject final : public Attachment {
 public:
  explicit UserObject(std::uint64_t references) { counts_[kProgram] = references; }

  // Whether the program or a graph that is there has any.
  bool held(const Graphs& graphs);
  // Of a graph, by its name, or of the program itself.
  bool has(std::uint64_t count, std::uint64_t graph = kProgram) const;
  void add(std::uint64_t count, std::uint64_t graph = kProgram) { counts_[graph] += count; }
  // Not more than there are.
  void remove(std::uint64_t count, std::uint64_t graph = kProgram);
  // A copy of a graph holds what that one does.
  void copy(std::uint64_t clone, std::uint64_t graph);

 private:
  static constexpr std::uint64_t kProgram = 0;  // No graph has that name.

  std::map<std::uint64_t, std::uint64_t> counts_;  // None is 0.
};

}  // namespace flyt::server
