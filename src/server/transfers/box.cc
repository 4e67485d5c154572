// Box: rows and slices of device memory, and their way through staging memory in pieces.
#include "server/transfers/box.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace flyt::server {

std::optional<std::uint64_t> Box::extent() const {
  if (empty()) return 0;
  std::uint64_t bytes = width;
  std::uint64_t packed = 0;
  if (__builtin_mul_overflow(width, rows, &packed)) return std::nullopt;
  if (__builtin_mul_overflow(packed, slices, &packed)) return std::nullopt;
  if (rows > 1) {
    if (pitch < width) return std::nullopt;
    std::uint64_t before_last = 0;
    if (__builtin_mul_overflow(pitch, rows - 1, &before_last)) return std::nullopt;
    if (__builtin_add_overflow(before_last, width, &bytes)) return std::nullopt;
  }
  if (slices > 1) {
    if (slice_pitch < bytes) return std::nullopt;
    std::uint64_t before_last = 0;
    if (__builtin_mul_overflow(slice_pitch, slices - 1, &before_last)) return std::nullopt;
    if (__builtin_add_overflow(before_last, bytes, &bytes)) return std::nullopt;
  }
  return bytes;
}

Box Box::flattened() const {
  Box flat = *this;
  if (flat.rows == 1 && flat.slices > 1) {
    flat.rows = std::exchange(flat.slices, 1);
    flat.pitch = flat.slice_pitch;
  }
  if (flat.slices > 1 && flat.slice_pitch == flat.pitch * flat.rows) {
    flat.rows *= flat.slices;
    flat.slices = 1;
  }
  if (flat.rows > 1 && flat.pitch == flat.width && flat.slices == 1) {
    flat.width *= flat.rows;
    flat.rows = 1;
  }
  return flat;
}

BoxCursor::BoxCursor(const Box& box, std::uint64_t piece_bytes, bool keep_shape)
    : box_(box.empty()  ? Box{.slices = 0}
           : keep_shape ? box
                        : box.flattened()),
      piece_bytes_(piece_bytes) {
  FLYT_ASSERT(piece_bytes > 0);
}

BoxCursor::Piece BoxCursor::next() {
  FLYT_ASSERT(!done());
  Piece piece;
  piece.address = box_.address + slice_ * box_.slice_pitch + row_ * box_.pitch + column_;
  piece.pitch = box_.pitch;
  piece.offset = offset_;
  piece.column = column_;
  piece.row = row_;
  piece.slice = slice_;
  const std::uint64_t rest_of_row = box_.width - column_;
  if (column_ != 0 || rest_of_row > piece_bytes_) {
    piece.width = std::min(rest_of_row, piece_bytes_);
    piece.rows = 1;
    column_ += piece.width;
    if (column_ == box_.width) {
      column_ = 0;
      ++row_;
    }
  } else {
    piece.width = box_.width;
    piece.rows = std::min(box_.rows - row_, piece_bytes_ / box_.width);
    row_ += piece.rows;
  }
  offset_ += piece.bytes();
  if (row_ == box_.rows) {
    row_ = 0;
    ++slice_;
  }
  return piece;
}

}  // namespace flyt::server
