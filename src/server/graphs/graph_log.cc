#include "server/graphs/graph_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace flyt::server {
namespace {

constexpr std::uint64_t kHeaderBytes = 24;  // Kind, whether it is gone, name, bytes.
// So much out of date is left to lie.
constexpr std::uint64_t kSlackBytes = 4 * kMiB;
constexpr std::uint64_t kOtherHalf = std::uint64_t{1} << 63;

Error damaged() { return {ErrorCode::kInvalid, "what graphs were is not as it was written"}; }

std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

bool read_all(const Fd& file, std::uint64_t offset, MutableBytes bytes) {
  while (!bytes.empty()) {
    const auto got = ::pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return true;
}

}  // namespace

GraphLog::~GraphLog() {
  if (mapped_ != nullptr) ::munmap(mapped_, kBytes);
}

Status GraphLog::begin() {
  if (mapped_ == nullptr) {
    void* const mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                                file_.get(), static_cast<off_t>(offset_));
    if (mapped == MAP_FAILED) return system_error("mapping what graphs are", errno);
    mapped_ = static_cast<std::byte*>(mapped);
  }
  // All that may come now fits behind it.
  if (end_ > 2 * live_bytes_ + kSlackBytes || end_ > kHalfBytes - kLiveBytesMax - kSlackBytes) {
    compact();
  }
  return {};
}

void GraphLog::compact() {
  const MutableBytes before = half();
  half_ = 1 - half_;
  end_ = 0;
  for (auto& [key, place] : live_) {
    const Bytes content = before.subspan(place.offset, place.bytes);
    write(key, 0, content);
    place.offset = end_ - padded(place.bytes);
  }
  other_is_left_ = true;
}

void GraphLog::write(Key key, std::uint32_t gone, Bytes content) {
  Writer writer(half().subspan(end_, kHeaderBytes + padded(content.size())));
  writer.write(static_cast<std::uint32_t>(key.first));
  writer.write(gone);
  writer.write(key.second);
  writer.write(static_cast<std::uint64_t>(content.size()));
  writer.write_bytes(content);
  end_ += kHeaderBytes + padded(content.size());
}

Status GraphLog::put(Key key, Bytes content) {
  const std::uint64_t bytes = kHeaderBytes + padded(content.size());
  const auto known = live_.find(key);
  const std::uint64_t before =
      known == live_.end() ? 0 : kHeaderBytes + padded(known->second.bytes);
  if (bytes > kLiveBytesMax - (live_bytes_ - before) || bytes > kHalfBytes - end_) {
    drop(key);
    return Error{ErrorCode::kLimit, "more graphs than are saved"};
  }
  live_bytes_ -= before;
  write(key, 0, content);
  live_[key] = {end_ - padded(content.size()), content.size()};
  live_bytes_ += bytes;
  return {};
}

void GraphLog::drop(Key key) {
  const auto found = live_.find(key);
  if (found == live_.end()) return;
  live_bytes_ -= kHeaderBytes + padded(found->second.bytes);
  live_.erase(found);
  // Where there is no room left for that, nothing else will be told either before all moves.
  if (kHeaderBytes <= kHalfBytes - end_) write(key, 1, {});
}

std::uint64_t GraphLog::standing() const { return half_ * kOtherHalf | end_; }

void GraphLog::finish() {
  if (!other_is_left_) return;
  other_is_left_ = false;
  ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(offset_ + (1 - half_) * kHalfBytes),
              static_cast<off_t>(kHalfBytes));
}

std::vector<Bytes> GraphLog::contents() const {
  std::vector<Bytes> found;
  for (const auto& [key, place] : live_) {
    found.push_back(half().subspan(place.offset, place.bytes));
  }
  return found;
}

Result<std::vector<GraphLog::Entry>> GraphLog::read(const Fd& file, std::uint64_t offset,
                                                    std::uint64_t standing) {
  const std::uint64_t half = standing / kOtherHalf;
  const std::uint64_t bytes = standing % kOtherHalf;
  if (bytes > kHalfBytes) return damaged();
  std::vector<std::byte> all(bytes);
  if (!read_all(file, offset + half * kHalfBytes, all)) return damaged();
  std::map<Key, Bytes> live;
  Reader reader(all);
  while (reader.ok() && !reader.finished()) {
    const auto kind = reader.take<std::uint32_t>();
    const auto gone = reader.take<std::uint32_t>();
    const auto name = reader.take<std::uint64_t>();
    const auto size = reader.take<std::uint64_t>();
    if (kind < 1 || kind > 2 || gone > 1 || size > kLiveBytesMax) return damaged();
    const Bytes content = reader.take_bytes(padded(size));
    if (!reader.ok()) return damaged();
    const Key key{static_cast<Kind>(kind), name};
    live.erase(key);
    if (gone == 0) live[key] = content.first(size);
  }
  if (!reader.finished()) return damaged();
  std::vector<Entry> entries;
  for (const auto& [key, content] : live) {
    entries.push_back({key, {content.begin(), content.end()}});
  }
  return entries;
}

}  // namespace flyt::server
