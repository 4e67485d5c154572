// Handles: the driver's objects, by the handle values that the client chose.
#pragma once

#include <array>
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
// any thread; a lookup takes a lock that is hardly ever contended.
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
  void* find(wire::HandleKind kind, std::uint64_t handle) const EXCLUDES(mutex_);
  // Whatever lives under an index (contexts in headers); null if nothing does.
  void* find_index(wire::HandleKind kind, std::uint32_t index) const EXCLUDES(mutex_);
  // Its handle; 0 if nothing does.
  std::uint64_t handle_at(wire::HandleKind kind, std::uint32_t index) const EXCLUDES(mutex_);
  Entry entry(wire::HandleKind kind, std::uint64_t handle) const EXCLUDES(mutex_);
  // Takes the entry out.
  Entry drop(wire::HandleKind kind, std::uint64_t handle) EXCLUDES(mutex_);
  // A copy of all live entries of a kind.
  std::vector<Entry> all(wire::HandleKind kind) const EXCLUDES(mutex_);

 private:
  // A client chooses its indices, so a table is made in pages: one handle with the highest index
  // must not cost as much as all those below it.
  static constexpr std::uint32_t kPageEntries = 64;
  using Page = std::array<Entry, kPageEntries>;
  using Table = std::vector<std::unique_ptr<Page>>;

  Entry* slot(wire::HandleKind kind, std::uint32_t index) const REQUIRES(mutex_);
  Entry* locate(wire::HandleKind kind, std::uint64_t handle) const REQUIRES(mutex_);

  mutable Mutex mutex_;
  // By kind, then by index.
  std::array<Table, wire::kHandleKindMax + 1> tables_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
