#include "server/handles.h"

#include <utility>

namespace flyt::server {
namespace {

std::size_t number_of(wire::HandleKind kind) { return static_cast<std::size_t>(kind); }

}  // namespace

Handles::Slot* Handles::slot(wire::HandleKind kind, std::uint32_t index) const {
  const std::uint32_t page = index / kPageSlots;
  if (page >= kFolders * kFolderPages) return nullptr;
  const Folder* folder = tables_[number_of(kind)].folders[page / kFolderPages].load();
  if (folder == nullptr) return nullptr;
  Page* found = folder->pages[page % kFolderPages].load();
  return found == nullptr ? nullptr : &found->slots[index % kPageSlots];
}

Handles::Slot& Handles::make_slot(wire::HandleKind kind, std::uint32_t index) {
  const std::uint32_t page = index / kPageSlots;
  std::atomic<Folder*>& folder = tables_[number_of(kind)].folders[page / kFolderPages];
  if (folder.load() == nullptr) {
    folder.store(folders_.emplace_back(std::make_unique<Folder>()).get());
  }
  std::atomic<Page*>& slots = folder.load()->pages[page % kFolderPages];
  if (slots.load() == nullptr) slots.store(pages_.emplace_back(std::make_unique<Page>()).get());
  return slots.load()->slots[index % kPageSlots];
}

Handles::Slot* Handles::locate(wire::HandleKind kind, std::uint64_t handle) const {
  Slot* found = slot(kind, wire::Handle{handle}.index());
  return handle == 0 || found == nullptr || found->handle.load() != handle ? nullptr : found;
}

bool Handles::put(wire::HandleKind kind, std::uint64_t handle, void* native,
                  std::shared_ptr<Attachment> attachment) {
  const wire::Handle value{handle};
  if (!value.valid_as(kind)) return false;
  const Lock lock(mutex_);
  Slot& slot = make_slot(kind, value.index());
  if (slot.handle.load() != 0) return false;
  slot.attachment = std::move(attachment);
  slot.native.store(native);
  slot.handle.store(handle);
  return true;
}

void* Handles::find(wire::HandleKind kind, std::uint64_t handle) const {
  const Slot* slot = locate(kind, handle);
  if (slot == nullptr) return nullptr;
  void* native = slot->native.load();
  return slot->handle.load() == handle ? native : nullptr;
}

void* Handles::find_index(wire::HandleKind kind, std::uint32_t index) const {
  const Slot* found = slot(kind, index);
  return found == nullptr ? nullptr : find(kind, found->handle.load());
}

std::uint64_t Handles::handle_at(wire::HandleKind kind, std::uint32_t index) const {
  const Slot* found = slot(kind, index);
  return found == nullptr ? 0 : found->handle.load();
}

Handles::Entry Handles::entry(wire::HandleKind kind, std::uint64_t handle) const {
  const Lock lock(mutex_);
  const Slot* slot = locate(kind, handle);
  return slot == nullptr ? Entry{} : Entry{handle, slot->native.load(), slot->attachment};
}

Handles::Entry Handles::drop(wire::HandleKind kind, std::uint64_t handle) {
  const Lock lock(mutex_);
  Slot* slot = locate(kind, handle);
  if (slot == nullptr) return {};
  slot->handle.store(0);
  return {handle, slot->native.load(), std::exchange(slot->attachment, nullptr)};
}

Handles::Entry Handles::replace(wire::HandleKind kind, std::uint64_t handle, void* native,
                                std::shared_ptr<Attachment> attachment) {
  const Lock lock(mutex_);
  Slot* slot = locate(kind, handle);
  if (slot == nullptr) return {};
  return {handle, slot->native.exchange(native),
          std::exchange(slot->attachment, std::move(attachment))};
}

std::vector<Handles::Entry> Handles::all(wire::HandleKind kind) const {
  const Lock lock(mutex_);
  std::vector<Entry> live;
  for (const auto& folder : tables_[number_of(kind)].folders) {
    if (folder.load() == nullptr) continue;
    for (const auto& page : folder.load()->pages) {
      if (page.load() == nullptr) continue;
      for (const Slot& slot : page.load()->slots) {
        const std::uint64_t handle = slot.handle.load();
        if (handle != 0) live.push_back({handle, slot.native.load(), slot.attachment});
      }
    }
  }
  return live;
}

}  // namespace flyt::server
