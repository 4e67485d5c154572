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
  auto& table = tables_[number_of(kind)];
  // Clients take indices from the bottom, so a table is about as large as its live handles.
  if (value.index() >= table.size()) table.resize(value.index() + 1);
  Entry& entry = table[value.index()];
  if (entry.handle != 0) return false;
  entry = Entry{handle, native, std::move(attachment)};
  return true;
}

const Handles::Entry* Handles::locate(wire::HandleKind kind, std::uint64_t handle) const {
  const auto& table = tables_[number_of(kind)];
  const std::uint32_t index = wire::Handle{handle}.index();
  if (handle == 0 || index >= table.size() || table[index].handle != handle) return nullptr;
  return &table[index];
}

void* Handles::find(wire::HandleKind kind, std::uint64_t handle) const {
  const Lock lock(mutex_);
  const Entry* entry = locate(kind, handle);
  return entry == nullptr ? nullptr : entry->native;
}

void* Handles::find_index(wire::HandleKind kind, std::uint32_t index) const {
  const Lock lock(mutex_);
  const auto& table = tables_[number_of(kind)];
  return index < table.size() && table[index].handle != 0 ? table[index].native : nullptr;
}

Handles::Entry Handles::entry(wire::HandleKind kind, std::uint64_t handle) const {
  const Lock lock(mutex_);
  const Entry* entry = locate(kind, handle);
  return entry == nullptr ? Entry{} : *entry;
}

Handles::Entry Handles::drop(wire::HandleKind kind, std::uint64_t handle) {
  const Lock lock(mutex_);
  if (locate(kind, handle) == nullptr) return {};
  return std::exchange(tables_[number_of(kind)][wire::Handle{handle}.index()], Entry{});
}

std::vector<Handles::Entry> Handles::all(wire::HandleKind kind) const {
  const Lock lock(mutex_);
  std::vector<Entry> live;
  for (const Entry& entry : tables_[number_of(kind)]) {
    if (entry.handle != 0) live.push_back(entry);
  }
  return live;
}

}  // namespace flyt::server
