// Objects of the program that graphs hold.
#include "softgpu/user_object.h"

#include "softgpu/abi/graph_enter.h"

namespace flyt::softgpu {
namespace {

constexpr unsigned kReferencesMax = 2147483647;

bool good_count(unsigned count) { return count != 0 && count <= kReferencesMax; }

template <class Body>
CUresult with_object(CUuserObject handle, unsigned count, Body body) {
  return with_graphs([&](Driver& driver) -> CUresult {
    const auto object = driver.graphs().objects().find(from_handle(handle));
    return object == nullptr || !good_count(count) ? CUDA_ERROR_INVALID_VALUE
                                                   : body(driver, object);
  });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
  return with_graphs([&](Driver& driver) -> CUresult {
    // The one flag there is must be there, as CUDA says.
    if (object_out == nullptr || destroy == nullptr || !good_count(initialRefcount) ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    GraphStore& graphs = driver.graphs();
    const auto object =
        std::make_shared<UserObject>(graphs, driver.workers(), ptr, destroy, initialRefcount);
    const std::uint64_t handle = graphs.objects().add(object);
    object->set_handle(handle);
    *object_out = to_handle<CUuserObject>(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  return with_object(object, count, [&](Driver&, const std::shared_ptr<UserObject>& found) {
    found->retain(count);
    return CUDA_SUCCESS;
  });
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  return with_object(object, count, [&](Driver&, const std::shared_ptr<UserObject>& found) {
    return found->release(count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags) {
  return with_object(
      object, count, [&](Driver& driver, const std::shared_ptr<UserObject>& found) -> CUresult {
        const auto holder = driver.graphs().graphs().find(from_handle(graph));
        if (holder == nullptr || (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) != 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        // References that move were the caller's.
        if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) found->retain(count);
        holder->hold(found, count);
        return CUDA_SUCCESS;
      });
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  return with_object(
      object, count, [&](Driver& driver, const std::shared_ptr<UserObject>& found) -> CUresult {
        const auto holder = driver.graphs().graphs().find(from_handle(graph));
        return holder != nullptr && holder->let_go(found, count) ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_VALUE;
      });
}

}  // extern "C"
