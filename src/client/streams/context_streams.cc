#include "client/streams/context_streams.h"

namespace flyt::client {

void ContextStreams::add(CUstream stream, unsigned int flags) {
  if ((flags & CU_STREAM_NON_BLOCKING) != 0) {
    for (auto& place : independent_) {
      CUstream none = nullptr;
      if (place.compare_exchange_strong(none, stream)) return;
    }
  }
  others_.fetch_add(1);
}

void ContextStreams::end(CUstream stream) {
  ended_.fetch_add(1);
  for (auto& place : independent_) {
    CUstream expected = stream;
    if (place.compare_exchange_strong(expected, nullptr)) return;
  }
  others_.fetch_sub(1);
}

std::span<const CUstream> ContextStreams::all(Room& room) const {
  std::size_t count = 0;
  for (const auto& place : independent_) {
    if (const CUstream stream = place.load()) room[count++] = stream;
  }
  if (others_.load() != 0 || unnamed_.load() || known_done_.load() != ended_.load()) return {};
  room[count++] = CU_STREAM_LEGACY;
  return std::span(room).first(count);
}

void ContextStreams::note_done(std::uint64_t ended) {
  std::uint64_t known = known_done_.load();
  while (known < ended && !known_done_.compare_exchange_weak(known, ended)) {
  }
}

void ContextStreams::reset() {
  for (auto& place : independent_) place.store(nullptr);
  others_.store(0);
  unnamed_.store(false);
  known_done_.store(ended_.load());
}

}  // namespace flyt::client
