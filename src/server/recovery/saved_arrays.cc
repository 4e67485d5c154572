#include "server/recovery/saved_arrays.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "commands/array.h"
#include "cuda/array_facts.h"
#include "server/faults/session_faults.h"
#include "server/recovery/moved_variables.h"
#include "server/recovery/recovery.h"
#include "server/session.h"

namespace flyt::server {
namespace {

std::uint64_t level_bytes(const cuda::ArrayExtent& extent) {
  return extent.row_bytes * extent.rows * extent.slices;
}

std::uint64_t bytes_held(const SavedArrays::Shape& shape) {
  std::uint64_t bytes = 0;
  for (unsigned level = 0; level < shape.levels; ++level) {
    bytes += level_bytes(cuda::extent_of(cuda::level_of(shape.descriptor, level)));
  }
  return bytes;
}

std::uint16_t op_of(const SavedArrays::Shape& shape) {
  return shape.kind == wire::HandleKind::kArray ? commands::CreateArray::kOp
                                                : commands::CreateMipmappedArray::kOp;
}

// Kernels write to it by surfaces, and nobody says when.
bool written_by_kernels(const SavedArrays::Shape& shape) {
  return (shape.descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST) != 0;
}

}  // namespace

SavedArrays::~SavedArrays() {
  const Lock lock(mutex_);
  while (!all_.empty()) {
    Saved& saved = all_.begin()->second;
    if (!saved.contents.empty()) ::munmap(saved.contents.data(), saved.contents.size());
    all_.erase(all_.begin());
  }
}

bool SavedArrays::wanted() const {
  return session_.recovery() != nullptr && !session_.recovery()->marks().spoilt_for_good();
}

CUresult SavedArrays::add(std::uint64_t handle, const Shape& shape) {
  if (!wanted()) return CUDA_SUCCESS;
  Recovery& recovery = *session_.recovery();
  const Lock lock(mutex_);
  Saved& saved = all_[handle];
  saved.shape = shape;
  saved.bytes = bytes_held(shape);
  if (!fits(saved.bytes)) {
    saved.spoiler = Spoiler(recovery.marks(), op_of(shape));
    return CUDA_SUCCESS;
  }
  bytes_ += saved.bytes;
  saved.file = recovery.take_array(handle);
  // Elsewhere the file tells that the session has had the array. Without one it asks for it again.
  if (!saved.file.valid()) {
    static_cast<void>(make_file(handle, saved));
    return CUDA_SUCCESS;
  }
  struct stat status {};
  const bool whole = ::fstat(saved.file.get(), &status) == 0 &&
                     status.st_size == static_cast<off_t>(saved.bytes) && map(saved);
  if (!whole) return CUDA_ERROR_INVALID_VALUE;
  // It was never written to, and holds anything.
  return status.st_blocks == 0 ? CUDA_SUCCESS : copy(handle, saved, Way::kIn);
}

CUresult SavedArrays::make_file(std::uint64_t handle, Saved& saved) {
  saved.file = Fd(::memfd_create("flyt-array", MFD_CLOEXEC));
  if (!saved.file.valid() || ::ftruncate(saved.file.get(), static_cast<off_t>(saved.bytes)) != 0 ||
      !map(saved)) {
    saved.file.close();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  session_.recovery()->keep_array(handle, saved.file);
  return CUDA_SUCCESS;
}

void SavedArrays::erase(All::iterator saved) {
  if (!saved->second.spoiler) bytes_ -= saved->second.bytes;
  if (!saved->second.contents.empty()) {
    ::munmap(saved->second.contents.data(), saved->second.contents.size());
  }
  if (saved->second.file.valid()) session_.recovery()->drop_array(saved->first);
  all_.erase(saved);
}

void SavedArrays::forget(std::uint64_t handle) {
  const Lock lock(mutex_);
  const auto found = all_.find(handle);
  if (found != all_.end()) erase(found);
}

void SavedArrays::forget_context(std::uint32_t context) {
  const Lock lock(mutex_);
  for (auto at = all_.begin(); at != all_.end();) {
    const auto next = std::next(at);
    if (at->second.shape.context == context) erase(at);
    at = next;
  }
}

void SavedArrays::touch(std::uint64_t handle) {
  const Lock lock(mutex_);
  const auto found = all_.find(handle);
  if (found != all_.end()) found->second.dirty = true;
}

void SavedArrays::touch_all() {
  const Lock lock(mutex_);
  for (auto& [handle, saved] : all_) saved.dirty = true;
}

bool SavedArrays::save(bool worked) {
  if (!wanted()) return true;
  const Lock lock(mutex_);
  for (auto& [handle, saved] : all_) {
    if (saved.spoiler && fits(saved.bytes)) {
      // Others have gone.
      bytes_ += saved.bytes;
      saved.dirty = true;
    } else if (saved.spoiler) {
      continue;
    }
    saved.dirty = saved.dirty || (worked && written_by_kernels(saved.shape));
    if (!saved.dirty) continue;
    const CUresult result = save_one(handle, saved);
    if (result == CUDA_SUCCESS) {
      saved.spoiler = {};
      saved.dirty = false;
      continue;
    }
    if (session_.faults() != nullptr && is_gpu_fault(result)) {
      session_.faults()->see(result);
      return false;
    }
    session_.recovery()->marks().spoil(op_of(saved.shape));
    session_.log().info(
        "the session cannot go on in another process",
        {{"why", "an array cannot be saved"}, {"result", static_cast<int>(result)}});
    return true;
  }
  return true;
}

bool SavedArrays::map(Saved& saved) {
  void* const mapped =
      ::mmap(nullptr, saved.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, saved.file.get(), 0);
  if (mapped == MAP_FAILED) return false;
  saved.contents = mutable_bytes_at(mapped, saved.bytes);
  return true;
}

CUresult SavedArrays::save_one(std::uint64_t handle, Saved& saved) {
  CUresult result = saved.file.valid() ? CUDA_SUCCESS : make_file(handle, saved);
  if (result == CUDA_SUCCESS) result = session_.enter(saved.shape.context);
  return result == CUDA_SUCCESS ? copy(handle, saved, Way::kOut) : result;
}

CUresult SavedArrays::copy(std::uint64_t handle, const Saved& saved, Way way) {
  const driver::Table& driver = session_.driver();
  const Handles::Entry entry = session_.handles().entry(saved.shape.kind, handle);
  if (!entry) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = CUDA_SUCCESS;
  MutableBytes place = saved.contents;
  for (unsigned level = 0; level < saved.shape.levels && result == CUDA_SUCCESS; ++level) {
    auto* array = static_cast<CUarray>(entry.native);
    if (saved.shape.kind == wire::HandleKind::kMipmappedArray) {
      result = driver.cuMipmappedArrayGetLevel(&array, static_cast<CUmipmappedArray>(entry.native),
                                               level);
    }
    if (result == CUDA_SUCCESS) result = copy_level(array, saved.shape, level, place, way);
  }
  const CUresult done = driver.cuStreamSynchronize(CU_STREAM_LEGACY);
  return result == CUDA_SUCCESS ? done : result;
}

CUresult SavedArrays::copy_level(CUarray array, const Shape& shape, unsigned level,
                                 MutableBytes& place, Way way) const {
  const cuda::ArrayExtent extent = cuda::extent_of(cuda::level_of(shape.descriptor, level));
  for (std::uint64_t slice = 0; slice < extent.slices; ++slice) {
    CUDA_MEMCPY3D copy{};
    copy.WidthInBytes = extent.row_bytes;
    copy.Height = extent.rows;
    copy.Depth = 1;
    if (way == Way::kOut) {
      copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
      copy.srcArray = array;
      copy.srcZ = slice;
      copy.dstMemoryType = CU_MEMORYTYPE_HOST;
      copy.dstHost = place.data();
      copy.dstPitch = extent.row_bytes;
      copy.dstHeight = extent.rows;
    } else {
      copy.srcMemoryType = CU_MEMORYTYPE_HOST;
      copy.srcHost = place.data();
      copy.srcPitch = extent.row_bytes;
      copy.srcHeight = extent.rows;
      copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
      copy.dstArray = array;
      copy.dstZ = slice;
    }
    const CUresult result = session_.driver().cuMemcpy3DAsync_v2(&copy, CU_STREAM_LEGACY);
    if (result != CUDA_SUCCESS) return result;
    place = place.subspan(extent.row_bytes * extent.rows);
  }
  return CUDA_SUCCESS;
}

bool SavedArrays::any_holds(const MovedVariables& moved) {
  const Lock lock(mutex_);
  for (const auto& [handle, saved] : all_) {
    if (!saved.contents.empty() && moved.any_in(0, saved.contents)) return true;
  }
  return false;
}

}  // namespace flyt::server
