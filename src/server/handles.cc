#include "server/handles.h"

#include <utility>

namespace flyt::server {
namespace {

std::size_t number_of(wire::HandleKind kind) { return static_cast<std::size_t>(kind); }

}  // namespace

bool Handles::put(wire::HandleKind kind, std::uint64_t handle, void* native,
                  std::shared_ptr<Attachment> attachment) {
  const wire::Handle value{handle};
  if (!value.valid_as(kind)) return false;
  const Lock lock(mutex_);
  Table& table = tables_[number_of(kind)];
  const std::uint32_t page = value.index() / kPageEntries;
  if (page >= table.size()) table.resize(page + 1);
  if (table[page] == nullptr) table[page] = std::make_unique<Page>();
  Entry& entry = (*table[page])[value.index() % kPageEntries];
  if (entry.handle != 0) return false;
  entry = Entry{handle, native, std::move(attachment)};
  return true;
}

Handles::Entry* Handles::slot(wire::HandleKind kind, std::uint32_t index) const {
  const Table& table = tables_[number_of(kind)];
  const std::uint32_t page = index / kPageEntries;
  if (page >= table.size() || table[page] == nullptr) return nullptr;
  return &(*table[page])[index % kPageEntries];
}

Handles::Entry* Handles::locate(wire::HandleKind kind, std::uint64_t handle) const {
  Entry* entry = slot(kind, wire::Handle{handle}.index());
  return handle == 0 || entry == nullptr || entry->handle != handle ? nullptr : entry;
}

void* Handles::find(wire::HandleKind kind, std::uint64_t handle) const {
  const Lock lock(mutex_);
  const Entry* entry = locate(kind, handle);
  return entry == nullptr ? nullptr : entry->native;
}

void* Handles::find_index(wire::HandleKind kind, std::uint32_t index) const {
  const Lock lock(mutex_);
  const Entry* entry = slot(kind, index);
  return entry != nullptr && entry->handle != 0 ? entry->native : nullptr;
}

std::uint64_t Handles::handle_at(wire::HandleKind kind, std::uint32_t index) const {
  const Lock lock(mutex_);
  const Entry* found = slot(kind, index);
  return found == nullptr ? 0 : found->handle;
}

Handles::Entry Handles::entry(wire::HandleKind kind, std::uint64_t handle) const {
  const Lock lock(mutex_);
  const Entry* entry = locate(kind, handle);
  return entry == nullptr ? Entry{} : *entry;
}

Handles::Entry Handles::drop(wire::HandleKind kind, std::uint64_t handle) {
  const Lock lock(mutex_);
  Entry* entry = locate(kind, handle);
  return entry == nullptr ? Entry{} : std::exchange(*entry, Entry{});
}

Handles::Entry Handles::replace(wire::HandleKind kind, std::uint64_t handle, void* native,
                                std::shared_ptr<Attachment> attachment) {
  const Lock lock(mutex_);
  Entry* entry = locate(kind, handle);
  if (entry == nullptr) return {};
  return std::exchange(*entry, Entry{handle, native, std::move(attachment)});
}

std::vector<Handles::Entry> Handles::all(wire::HandleKind kind) const {
  const Lock lock(mutex_);
  std::vector<Entry> live;
  for (const auto& page : tables_[number_of(kind)]) {
    if (page == nullptr) continue;
    for (const Entry& entry : *page) {
      if (entry.handle != 0) live.push_back(entry);
    }
  }
  return live;
}

}  // namespace flyt::server
