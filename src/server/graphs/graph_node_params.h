// GraphNodeParams: what a node of a graph does, from the client's words to the driver's and back.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "cuda/types.h"
#include "server/request.h"

namespace flyt::server {

class ClientNames;

// What a client says of a node, checked, with the driver's handles in place of its own. A value
// type for one call of the driver, which copies what it points to.
class GraphNodeParams {
 public:
  // CUDA_ERROR_INVALID_VALUE for what is malformed or names memory that is not the client's,
  // CUDA_ERROR_INVALID_HANDLE for handles that are none, CUDA_ERROR_NOT_SUPPORTED for kinds that
  // are not remoted.
  CUresult take(Request& request, Bytes parameters, Bytes data);

  // Names the current context where the client left it to the driver, which would else refuse
  // memory that belongs to none, as a session's does. For copies and fills by the calls of their
  // kind.
  void name_context(const Request& request);

  CUgraphNodeType type() const { return type_; }
  CUgraphNodeParams& native() { return params_; }
  // Of a child: the client's number.
  std::uint64_t child() const { return child_; }

 private:
  CUresult take_kind(Request& request, Bytes data);
  CUresult take_kernel(const Request& request, Bytes data);
  CUresult lay_out(const driver::Table& driver, Bytes data);
  CUresult take_memset(const Request& request);
  CUresult take_host(Request& request, Bytes data);
  CUresult take_words(const Request& request, Bytes data);
  CUresult take_allocation(Request& request, Bytes data);
  CUresult take_child(const Request& request);

  CUgraphNodeType type_ = CU_GRAPH_NODE_TYPE_EMPTY;
  CUgraphNodeParams params_{};
  std::uint64_t child_ = 0;
  std::size_t kernel_bytes_ = 0;
  std::array<void*, 5> extra_{};
  std::vector<void*> separate_;
  std::vector<CUstreamBatchMemOpParams> words_;
  std::vector<CUmemAccessDesc> access_;
};

// A copy as the client says it: arrays resolved, and all memory its own.
CUresult admit_copy(const Request& request, CUDA_MEMCPY3D& copy);

// What a node of the driver's does, in the client's words; `type` as the client expects it, else
// CUDA_ERROR_INVALID_VALUE. A child gets a name if it has none.
CUresult describe_node(Session& session, const ClientNames& names, CUgraphNode node,
                       std::int32_t type, CUgraphNodeParams& params, std::vector<std::byte>& data);

}  // namespace flyt::server
