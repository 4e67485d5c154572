// Handles: the driver's objects, by the handle values that the client chose.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "wire/handle.h"

namespace flyt::server {

// What a subject keeps beside a native object.
struct Attachment {
  virtual ~Attachment() = default;
};

// Client values are data of a peer: every one is checked for kind, index and generation. Safe from
// any thread; find() and find_index() take no lock.
class Handles {
 public:
  struct Entry {
    std::uint64_t handle = 0;  // 0: none.
    void* native = nullptr;
    std::shared_ptr<Attachment> attachment;
    explicit operator bool() const { return handle != 0; }
  };

  // False if the value is no well-formed handle of `kind`, or its slot is taken.
  [[nodiscard]] bool put(wire::HandleKind kind, std::uint64_t handle, void* native,
                         std::shared_ptr<Attachment> attachment = {}) EXCLUDES(mutex_);
  // Gives a live handle another native object; returns what it had, none if it is not live.
  Entry replace(wire::HandleKind kind, std::uint64_t handle, void* native,
                std::shared_ptr<Attachment> attachment) EXCLUDES(mutex_);
  // The native object; null if there is none.
  void* find(wire::HandleKind kind, std::uint64_t handle) const;
  // Whatever lives under an index (contexts in headers); null if nothing does.
  void* find_index(wire::HandleKind kind, std::uint32_t index) const;
  // Its handle; 0 if nothing does.
  std::uint64_t handle_at(wire::HandleKind kind, std::uint32_t index) const EXCLUDES(mutex_);
  Entry entry(wire::HandleKind kind, std::uint64_t handle) const EXCLUDES(mutex_);
  // Takes the entry out.
  Entry drop(wire::HandleKind kind, std::uint64_t handle) EXCLUDES(mutex_);
  // A copy of all live entries of a kind.
  std::vector<Entry> all(wire::HandleKind kind) const EXCLUDES(mutex_);

 private:
  // Where an object lives. Its handle is there from after the native object was until another one
  // comes, so who finds it before and after he has read the object has read the right one.
  struct Slot {
    std::atomic<std::uint64_t> handle{0};  // 0: none.
    std::atomic<void*> native{nullptr};
    std::shared_ptr<Attachment> attachment;  // Under mutex_.
  };
  // A client chooses its indices, so a table is made in pages: one handle with the highest index
  // must not cost as much as all those below it. Pages stay.
  static constexpr std::uint32_t kPageSlots = 64;
  static constexpr std::uint32_t kFolderPages = 1024;
  static constexpr std::uint32_t kFolders =
      (wire::kHandleIndexMax + 1) / (kPageSlots * kFolderPages);
  struct Page {
    std::array<Slot, kPageSlots> slots;
  };
  struct Folder {
    std::array<std::atomic<Page*>, kFolderPages> pages{};
  };
  struct Table {
    std::array<std::atomic<Folder*>, kFolders> folders{};
  };

  Slot* slot(wire::HandleKind kind, std::uint32_t index) const;
  Slot& make_slot(wire::HandleKind kind, std::uint32_t index) REQUIRES(mutex_);
  // The slot where a handle lives; null if it does not.
  Slot* locate(wire::HandleKind kind, std::uint64_t handle) const;

  mutable Mutex mutex_;  // Of whoever changes something, or looks at attachments.
  // By kind, then by index.
  std::array<Table, wire::kHandleKindMax + 1> tables_;
  std::vector<std::unique_ptr<Folder>> folders_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Page>> pages_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
