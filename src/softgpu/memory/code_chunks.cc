#include "softgpu/memory/code_chunks.h"

#include <unistd.h>

#include <algorithm>

namespace flyt::softgpu {
namespace {

constexpr std::uint64_t kAlign = 256;

}  // namespace

CodeChunks::CodeChunks(DeviceMemory& memory, unsigned places)
    : memory_(memory),
      // The first that is placed there, so that it is as aligned as the memory's range is.
      base_(places == 0 ? 0 : memory.place(places * kBytes).value_or(0)),
      first_(places == 0 ? 0 : static_cast<std::uint64_t>(::getpid()) % places),
      taken_(base_ == 0 ? 0 : places) {}

std::optional<std::uint64_t> CodeChunks::allocate(std::uint64_t bytes) {
  const std::uint64_t rounded = (bytes + kAlign - 1) & ~(kAlign - 1);
  const Lock lock(mutex_);
  if (bytes == 0 || rounded < bytes || rounded > taken_.size() * kBytes) return std::nullopt;
  for (auto& [address, chunk] : chunks_) {
    if (chunk.bytes > kBytes || rounded > chunk.bytes - chunk.filled) continue;
    const std::uint64_t place = address + chunk.filled;
    chunk.filled += rounded;
    ++chunk.variables;
    return place;
  }
  const std::uint64_t places = (rounded + kBytes - 1) / kBytes;
  if (!memory_.charge(places * kBytes)) return std::nullopt;
  const auto place = take(places);
  if (!place) {
    memory_.uncharge(places * kBytes);
    return std::nullopt;
  }
  const std::uint64_t address = base_ + *place * kBytes;
  chunks_[address] = {places * kBytes, rounded, 1};
  return address;
}

std::optional<std::uint64_t> CodeChunks::take(std::uint64_t places) {
  for (std::uint64_t i = 0; i < taken_.size(); ++i) {
    const std::uint64_t place = (first_ + i) % taken_.size();
    if (places > taken_.size() - place) continue;
    const auto from = taken_.begin() + static_cast<std::ptrdiff_t>(place);
    const auto to = from + static_cast<std::ptrdiff_t>(places);
    if (std::find(from, to, true) != to) continue;
    std::fill(from, to, true);
    return place;
  }
  return std::nullopt;
}

void CodeChunks::release(std::uint64_t address) {
  const Lock lock(mutex_);
  auto chunk = chunks_.upper_bound(address);
  if (chunk == chunks_.begin() || --(--chunk)->second.variables != 0) return;
  const std::uint64_t bytes = chunk->second.bytes;
  const auto from = taken_.begin() + static_cast<std::ptrdiff_t>((chunk->first - base_) / kBytes);
  std::fill(from, from + static_cast<std::ptrdiff_t>(bytes / kBytes), false);
  // What comes there next finds zeroes.
  DeviceMemory::empty(chunk->first, bytes);
  chunks_.erase(chunk);
  memory_.uncharge(bytes);
}

}  // namespace flyt::softgpu
