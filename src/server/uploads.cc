// Uploads: large data that clients send in pieces ahead of the command that uses it.
#include "server/uploads.h"

#include <algorithm>
#include <utility>

#include "wire/handle.h"

namespace flyt::server {

bool Uploads::add_piece(std::uint64_t upload, std::uint64_t total, std::uint64_t offset,
                        Bytes data) {
  if (!wire::Handle{upload}.valid_as(wire::HandleKind::kUpload)) return false;
  if (total > kBytesMax || data.size() > total || offset > total - data.size()) return false;
  const Lock lock(mutex_);
  auto found = uploads_.find(upload);
  if (found == uploads_.end()) {
    if (offset != 0 || bytes_of_all_ + total > kBytesOfAllMax || uploads_.size() == kCountMax) {
      return false;
    }
    found = uploads_.emplace(upload, Upload{total, {}}).first;
    bytes_of_all_ += total;
  }
  Upload& present = found->second;
  std::vector<std::byte>& bytes = present.bytes;
  if (present.total != total || bytes.size() != offset) return false;
  const std::size_t needed = bytes.size() + data.size();
  if (needed > bytes.capacity()) {
    bytes.reserve(std::min<std::size_t>(std::max(needed, 2 * bytes.capacity()), total) + 1);
  }
  bytes.insert(bytes.end(), data.begin(), data.end());
  return true;
}

std::optional<std::vector<std::byte>> Uploads::take(std::uint64_t upload) {
  const Lock lock(mutex_);
  const auto found = uploads_.find(upload);
  if (found == uploads_.end()) return std::nullopt;
  Upload taken = std::move(found->second);
  uploads_.erase(found);
  bytes_of_all_ -= taken.total;
  if (taken.bytes.size() != taken.total) return std::nullopt;
  taken.bytes.push_back(std::byte{0});
  return std::move(taken.bytes);
}

}  // namespace flyt::server
