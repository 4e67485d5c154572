// Images: a session's arrays, and what looks at them: driver objects that end only after the GPU
// has passed the work that may use them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "cuda/array_facts.h"
#include "cuda/types.h"
#include "server/handles.h"
#include "server/lease/usage_board.h"

namespace flyt::server {

class Session;

enum class ImageKind : std::uint8_t { kArray, kMipmappedArray, kTexture, kSurface };

class Images;

// One driver object. What is made of another one keeps it, as do copies that are on their way.
class ImageOwner final : public Attachment {
 public:
  ImageOwner(std::weak_ptr<Images> images, std::uint64_t id, std::uint32_t context)
      : images_(std::move(images)), id_(id), context_(context) {}
  ~ImageOwner() override;
  ImageOwner(const ImageOwner&) = delete;
  ImageOwner& operator=(const ImageOwner&) = delete;

  std::uint64_t id() const { return id_; }
  std::uint32_t context() const { return context_; }

  // Set before others know the object.
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};  // Arrays and mipmapped ones.
  cuda::ArrayExtent extent;              // Arrays.
  unsigned levels = 0;                   // Mipmapped arrays.
  std::uint64_t saved_as = 0;            // Handle of what SavedArrays knows: of a level, the whole.
  std::vector<std::shared_ptr<Attachment>> keeps;

 private:
  const std::weak_ptr<Images> images_;
  const std::uint64_t id_;  // 0: the driver's object ends with another one.
  const std::uint32_t context_;
};

// Safe from any thread.
class Images : public std::enable_shared_from_this<Images> {
 public:
  explicit Images(Session& session) : session_(session) {}
  Images(const Images&) = delete;
  Images& operator=(const Images&) = delete;

  // Arrays, textures and surfaces of a session, with those that end when the GPU has passed.
  static constexpr std::size_t kObjectsMax = 1 << 17;
  bool full() const EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return natives_.size() >= kObjectsMax;
  }

  // Looks after an object that the driver made in a context, given as its handle index, and its
  // memory's place on the board.
  std::shared_ptr<ImageOwner> own(ImageKind kind, std::uint64_t native, std::uint32_t context,
                                  UsedMemory memory = {}) EXCLUDES(mutex_);
  // A part of another object, which ends with it.
  std::shared_ptr<ImageOwner> own_part(std::shared_ptr<Attachment> whole, std::uint32_t context);

  // Texture and surface objects, under the driver's own values, and the arrays that they keep.
  void add_texture(CUtexObject texture, std::uint32_t context, std::shared_ptr<Attachment> kept)
      EXCLUDES(mutex_);
  void add_surface(CUsurfObject surface, std::uint32_t context, std::shared_ptr<Attachment> kept)
      EXCLUDES(mutex_);
  // The next one that is made in a session that goes on here has to have that value. Once.
  void aim(std::uint64_t value) EXCLUDES(mutex_);
  // 0: any will do.
  std::uint64_t take_aim() EXCLUDES(mutex_);
  // They end when the GPU has passed. False if there is none.
  bool drop_texture(CUtexObject texture) EXCLUDES(mutex_);
  bool drop_surface(CUsurfObject surface) EXCLUDES(mutex_);

  // Ends an object now. The caller holds Session::use(), the object's context is current, and its
  // work is done.
  void end(std::uint64_t id) EXCLUDES(mutex_);
  // The same later, on a worker.
  void end_later(std::uint64_t id) EXCLUDES(mutex_);

  // The context takes all its objects with it. Under Session::alone().
  void on_context_destroy(std::uint32_t context) EXCLUDES(mutex_);

 private:
  struct Native {
    ImageKind kind = ImageKind::kArray;
    std::uint64_t value = 0;
    std::uint32_t context = 0;
    UsedMemory memory = {};
  };

  using Objects = std::map<std::uint64_t, std::shared_ptr<ImageOwner>>;

  void add(Objects Images::*objects, ImageKind kind, std::uint64_t value, std::uint32_t context,
           std::shared_ptr<Attachment> kept) EXCLUDES(mutex_);
  bool drop(Objects Images::*objects, std::uint64_t value) EXCLUDES(mutex_);
  void destroy(const Native& native);

  Session& session_;
  mutable Mutex mutex_;
  std::map<std::uint64_t, Native> natives_ GUARDED_BY(mutex_);  // By id.
  std::uint64_t next_id_ GUARDED_BY(mutex_) = 1;
  Objects textures_ GUARDED_BY(mutex_);
  Objects surfaces_ GUARDED_BY(mutex_);
  std::uint64_t aim_ GUARDED_BY(mutex_) = 0;
};

}  // namespace flyt::server
