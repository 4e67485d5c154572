#include "cuda/default_stream.h"

#include <utility>

#include "base/bytes.h"

namespace flyt::cuda {
namespace {

// Thread-local state of the calling convention, not of any session: it lives for one call.
thread_local bool per_thread = false;

constexpr std::uint64_t kLegacy = 1;
constexpr std::uint64_t kPerThread = 2;

}  // namespace

PerThreadDefaultStream::PerThreadDefaultStream() : before_(std::exchange(per_thread, true)) {}
PerThreadDefaultStream::~PerThreadDefaultStream() { per_thread = before_; }
bool PerThreadDefaultStream::active() { return per_thread; }

CUstream resolve_default(CUstream stream) {
  if (stream != nullptr) return stream;
  return static_cast<CUstream>(pointer_at(per_thread ? kPerThread : kLegacy));
}

}  // namespace flyt::cuda
