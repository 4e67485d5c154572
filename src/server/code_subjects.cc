#include "server/code_subjects.h"

#include <cstring>

#include "cuda/fatbin.h"
#include "server/session.h"

namespace flyt::server {

Link::~Link() {
  if (state != nullptr) driver.cuLinkDestroy(state);
}

bool CodeSubjects::add_piece(std::uint64_t upload, std::uint64_t total, std::uint64_t offset,
                             Bytes data) {
  if (!wire::Handle{upload}.valid_as(wire::HandleKind::kUpload)) return false;
  if (total > kUploadBytesMax || data.size() > total || offset > total - data.size()) return false;
  const Lock lock(mutex_);
  auto found = uploads_.find(upload);
  if (found == uploads_.end()) {
    if (offset != 0 || uploads_bytes_ + total > kUploadsBytesMax) return false;
    found = uploads_.emplace(upload, Upload{std::vector<std::byte>(total + 1), 0}).first;
    uploads_bytes_ += total;
  }
  Upload& present = found->second;
  if (present.bytes.size() != total + 1 || present.filled != offset) return false;
  if (!data.empty()) std::memcpy(present.bytes.data() + offset, data.data(), data.size());
  present.filled += data.size();
  return true;
}

std::optional<std::vector<std::byte>> CodeSubjects::take_upload(std::uint64_t upload) {
  const Lock lock(mutex_);
  const auto found = uploads_.find(upload);
  if (found == uploads_.end()) return std::nullopt;
  std::vector<std::byte> bytes = std::move(found->second.bytes);
  const bool complete = found->second.filled + 1 == bytes.size();
  uploads_.erase(found);
  uploads_bytes_ -= bytes.size() - 1;
  if (!complete) return std::nullopt;
  return bytes;
}

template <class Dies>
void CodeSubjects::forget_if(Dies&& dies) {
  for (const auto kind : {wire::HandleKind::kFunction, wire::HandleKind::kModule,
                          wire::HandleKind::kKernel, wire::HandleKind::kLibrary}) {
    for (const Handles::Entry& entry : session_.handles().all(kind)) {
      const auto origin = std::static_pointer_cast<CodeOrigin>(entry.attachment);
      if (!dies(entry.handle, *origin)) continue;
      forget_globals(*origin);
      session_.handles().drop(kind, entry.handle);
    }
  }
}

void CodeSubjects::on_context_destroy(std::uint32_t context) {
  forget_if([&](std::uint64_t, const CodeOrigin& origin) { return origin.context == context; });
}

void CodeSubjects::on_module_unload(std::uint64_t module) {
  forget_if([&](std::uint64_t handle, const CodeOrigin& origin) {
    return handle == module || origin.module == module;
  });
}

void CodeSubjects::on_library_unload(std::uint64_t library) {
  forget_if([&](std::uint64_t handle, const CodeOrigin& origin) {
    return handle == library || origin.library == library;
  });
}

void CodeSubjects::note_global(CodeOrigin& owner, std::uint64_t address, std::uint64_t size) {
  session_.regions().add({address, size, Regions::Kind::kGlobal});
  const Lock lock(owner.mutex);
  owner.globals.push_back(address);
}

void CodeSubjects::forget_globals(CodeOrigin& owner) {
  const Lock lock(owner.mutex);
  for (const std::uint64_t address : owner.globals) session_.regions().remove(address);
  owner.globals.clear();
}

void CodeSubjects::note_code(Bytes image) {
  if (may_print()) return;
  bool packed = false;
  if (const auto fatbin = cuda::Fatbin::parse(image)) {
    for (const cuda::FatbinFile& file : fatbin->files()) {
      packed = packed || file.packing != cuda::Packing::kNone;
    }
  }
  // What is packed is not unpacked to look: it may print.
  if (packed || text_of(image).find("vprintf") != std::string_view::npos) {
    may_print_.store(true, std::memory_order_relaxed);
  }
}

}  // namespace flyt::server
