// Variables of modules and libraries: asked for once, and known to the map of addresses.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "client/call.h"
#include "client/code/code_state.h"
#include "client/code/names.h"

namespace flyt::client {

using Globals = std::map<std::string, std::pair<CUdeviceptr, std::size_t>, std::less<>>;

// Makes a variable's memory known to copies and pointer queries, and unknown again. A managed one
// exists here from then on; where that cannot be this fails. Managed variables of a library belong
// to no context.
struct NewGlobal {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  bool managed = false;
};
CUresult note_global(const ContextState& context, const NewGlobal& global, bool of_library);
void forget_globals(const Globals& globals);

// A variable's address and size (either may be null), by `ask_server(reply)` the first time.
// `Reply` is the reply of get_global or of get_library_global.
template <class Reply, class Ask>
CUresult find_global(Globals& globals, const ContextState& context, bool of_library,
                     std::string_view name, CUdeviceptr* address, size_t* bytes, Ask&& ask_server) {
  if (name.size() > kNameBytesMax) return CUDA_ERROR_NOT_FOUND;
  std::pair<CUdeviceptr, std::size_t> found{};
  {
    const std::lock_guard lock(session().code().mutex);
    const auto known = globals.find(name);
    if (known != globals.end()) found = known->second;
  }
  if (found.second == 0) {
    Reply reply;
    CUresult result = ask_server(reply);
    if (result != CUDA_SUCCESS) return result;
    found = {reply.address, reply.size};
    result = note_global(context, {reply.address, reply.size, reply.managed}, of_library);
    if (result != CUDA_SUCCESS) return result;
    const std::lock_guard lock(session().code().mutex);
    globals.emplace(std::string(name), found);
  }
  if (address != nullptr) *address = found.first;
  if (bytes != nullptr) *bytes = found.second;
  return CUDA_SUCCESS;
}

}  // namespace flyt::client
