#include "server/memory/images.h"

#include <utility>

#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server {

ImageOwner::~ImageOwner() {
  if (id_ == 0) return;
  if (const auto images = images_.lock()) images->end_later(id_);
}

std::shared_ptr<ImageOwner> Images::own(ImageKind kind, std::uint64_t native, std::uint32_t context,
                                        UsedMemory memory) {
  const Lock lock(mutex_);
  const std::uint64_t id = next_id_++;
  natives_.emplace(id, Native{kind, native, context, std::move(memory)});
  return std::make_shared<ImageOwner>(weak_from_this(), id, context);
}

std::shared_ptr<ImageOwner> Images::own_part(std::shared_ptr<Attachment> whole,
                                             std::uint32_t context) {
  auto owner = std::make_shared<ImageOwner>(weak_from_this(), 0, context);
  owner->keeps.push_back(std::move(whole));
  return owner;
}

void Images::add(Objects Images::*objects, ImageKind kind, std::uint64_t value,
                 std::uint32_t context, std::shared_ptr<Attachment> kept) {
  auto owner = own(kind, value, context);
  if (kept != nullptr) owner->keeps.push_back(std::move(kept));
  std::shared_ptr<ImageOwner> before;  // Let go of without the lock.
  const Lock lock(mutex_);
  before = std::exchange((this->*objects)[value], std::move(owner));
}

bool Images::drop(Objects Images::*objects, std::uint64_t value) {
  std::shared_ptr<ImageOwner> dropped;
  const Lock lock(mutex_);
  const auto found = (this->*objects).find(value);
  if (found == (this->*objects).end()) return false;
  dropped = std::move(found->second);
  (this->*objects).erase(found);
  return true;
}

void Images::add_texture(CUtexObject texture, std::uint32_t context,
                         std::shared_ptr<Attachment> kept) {
  add(&Images::textures_, ImageKind::kTexture, texture, context, std::move(kept));
}

void Images::add_surface(CUsurfObject surface, std::uint32_t context,
                         std::shared_ptr<Attachment> kept) {
  add(&Images::surfaces_, ImageKind::kSurface, surface, context, std::move(kept));
}

void Images::aim(std::uint64_t value) {
  const Lock lock(mutex_);
  aim_ = value;
}

std::uint64_t Images::take_aim() {
  const Lock lock(mutex_);
  return std::exchange(aim_, 0);
}

bool Images::drop_texture(CUtexObject texture) { return drop(&Images::textures_, texture); }
bool Images::drop_surface(CUsurfObject surface) { return drop(&Images::surfaces_, surface); }

void Images::end(std::uint64_t id) {
  Native native;
  {
    const Lock lock(mutex_);
    const auto found = natives_.find(id);
    if (found == natives_.end()) return;
    native = std::move(found->second);
    natives_.erase(found);
  }
  destroy(native);
}

void Images::end_later(std::uint64_t id) {
  std::uint32_t context = 0;
  {
    const Lock lock(mutex_);
    const auto found = natives_.find(id);
    if (found == natives_.end()) return;
    context = found->second.context;
  }
  session_.memory().reaper.add(context, [images = weak_from_this(), id, context] {
    const auto alive = images.lock();
    if (alive == nullptr) return;
    // A context that is gone has taken its objects with it.
    const auto using_context = alive->session_.use();
    if (alive->session_.enter(context) == CUDA_SUCCESS) alive->end(id);
  });
}

void Images::on_context_destroy(std::uint32_t context) {
  std::vector<std::shared_ptr<ImageOwner>> dropped;  // Let go of without the lock.
  const Lock lock(mutex_);
  std::erase_if(natives_, [&](const auto& item) { return item.second.context == context; });
  for (Objects* objects : {&textures_, &surfaces_}) {
    std::erase_if(*objects, [&](auto& item) {
      if (item.second->context() != context) return false;
      dropped.push_back(std::move(item.second));
      return true;
    });
  }
}

void Images::destroy(const Native& native) {
  const driver::Table& driver = session_.driver();
  switch (native.kind) {
    case ImageKind::kArray:
      driver.cuArrayDestroy(static_cast<CUarray>(pointer_at(native.value)));
      break;
    case ImageKind::kMipmappedArray:
      driver.cuMipmappedArrayDestroy(static_cast<CUmipmappedArray>(pointer_at(native.value)));
      break;
    case ImageKind::kTexture:
      driver.cuTexObjectDestroy(native.value);
      break;
    case ImageKind::kSurface:
      driver.cuSurfObjectDestroy(native.value);
      break;
  }
}

}  // namespace flyt::server
