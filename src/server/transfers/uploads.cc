// Uploads: large data that clients send in pieces ahead of the command that uses it.
#include "server/transfers/uploads.h"

#include <algorithm>
#include <utility>

#include "wire/handle.h"

namespace flyt::server {

bool Uploads::admit(std::uint64_t upload, const UploadFacts& facts) {
  const Upload fresh{facts, {}};
  if (bytes_of_all_ + fresh.announced() > kBytesOfAllMax || uploads_.size() == kCountMax) {
    return false;
  }
  bytes_of_all_ += fresh.announced();
  uploads_.emplace(upload, fresh);
  return true;
}

bool Uploads::describe(std::uint64_t upload, const UploadFacts& facts) {
  if (!wire::Handle{upload}.valid_as(wire::HandleKind::kUpload)) return false;
  if (facts.total > kBytesMax || facts.packed > facts.total) return false;
  const Lock lock(mutex_);
  const auto found = uploads_.find(upload);
  if (found != uploads_.end()) {
    const UploadFacts& before = found->second.facts;
    if (!found->second.bytes.empty() || before.total != facts.total ||
        before.digest != facts.digest) {
      return false;
    }
    bytes_of_all_ -= found->second.announced();
    uploads_.erase(found);
  }
  return admit(upload, facts);
}

bool Uploads::add_piece(std::uint64_t upload, std::uint64_t total, std::uint64_t offset,
                        Bytes data) {
  if (!wire::Handle{upload}.valid_as(wire::HandleKind::kUpload)) return false;
  if (total > kBytesMax || data.size() > total || offset > total - data.size()) return false;
  const Lock lock(mutex_);
  auto found = uploads_.find(upload);
  if (found == uploads_.end()) {
    if (offset != 0 || !admit(upload, {.total = total})) return false;
    found = uploads_.find(upload);
  }
  Upload& present = found->second;
  std::vector<std::byte>& bytes = present.bytes;
  if (present.sent_total() != total || bytes.size() != offset) return false;
  const std::size_t needed = bytes.size() + data.size();
  if (needed > bytes.capacity()) {
    const std::size_t more = std::max({needed, 2 * bytes.capacity(), kReservedAtOnce});
    bytes.reserve(std::min<std::size_t>(more, total) + 1);
  }
  bytes.insert(bytes.end(), data.begin(), data.end());
  return true;
}

std::optional<Uploads::Taken> Uploads::take(std::uint64_t upload) {
  const Lock lock(mutex_);
  const auto found = uploads_.find(upload);
  if (found == uploads_.end()) return std::nullopt;
  Upload taken = std::move(found->second);
  uploads_.erase(found);
  bytes_of_all_ -= taken.announced();
  const bool complete = taken.bytes.size() == taken.sent_total();
  if (complete) taken.bytes.push_back(std::byte{0});
  return Taken{taken.facts, std::move(taken.bytes), complete};
}

std::optional<UploadFacts> Uploads::unsent(std::uint64_t upload) {
  const Lock lock(mutex_);
  const auto found = uploads_.find(upload);
  if (found == uploads_.end() || !found->second.bytes.empty() || !found->second.facts.digest) {
    return std::nullopt;
  }
  return found->second.facts;
}

}  // namespace flyt::server
