// Box: rows and slices of device memory, and their way through staging memory in pieces.
#pragma once

#include <cstdint>
#include <optional>

namespace flyt::server {

// `slices` times `rows` rows of `width` bytes. Numbers from a peer: nothing here overflows.
struct Box {
  std::uint64_t address = 0;
  std::uint64_t pitch = 0;
  std::uint64_t slice_pitch = 0;
  std::uint64_t width = 0;
  std::uint64_t rows = 1;
  std::uint64_t slices = 1;

  bool empty() const { return width == 0 || rows == 0 || slices == 0; }
  // From the first byte to behind the last one, gaps included; nothing if that exceeds 64 bits, or
  // if rows would overlap. 0 if empty.
  std::optional<std::uint64_t> extent() const;
  // Bytes without gaps; only meaningful if extent() has a value.
  std::uint64_t packed() const { return width * rows * slices; }
  // The same bytes in the same order with as few rows and slices as can be.
  Box flattened() const;
};

// Goes through a box in pieces of whole rows, or of parts of one row, that fit `piece_bytes`.
class BoxCursor {
 public:
  struct Piece {
    std::uint64_t address = 0;
    std::uint64_t pitch = 0;  // Unused if rows is 1.
    std::uint64_t width = 0;
    std::uint64_t rows = 0;
    std::uint64_t offset = 0;  // Where it belongs among the packed bytes.
    // Where it begins; rows and slices are the box's own only if the cursor keeps its shape.
    std::uint64_t column = 0;
    std::uint64_t row = 0;
    std::uint64_t slice = 0;
    std::uint64_t bytes() const { return width * rows; }
  };

  // The box must have an extent. Pieces never join slices if its shape is kept.
  BoxCursor(const Box& box, std::uint64_t piece_bytes, bool keep_shape = false);

  bool done() const { return slice_ == box_.slices; }
  // Not when done().
  Piece next();

 private:
  const Box box_;
  const std::uint64_t piece_bytes_;
  std::uint64_t slice_ = 0;
  std::uint64_t row_ = 0;
  std::uint64_t column_ = 0;
  std::uint64_t offset_ = 0;
};

}  // namespace flyt::server
