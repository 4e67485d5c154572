// Arrays and textures of the tests.
#pragma once

#include "tests/conformance/fixture.h"

namespace flyt::conformance {

// An array, destroyed at the end of its scope.
class Array {
 public:
  Array(std::size_t width, std::size_t height, std::size_t depth, CUarray_format format,
        unsigned channels, unsigned flags = 0);
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  operator CUarray() const { return array_; }

 private:
  CUarray array_ = nullptr;
};

class MipmappedArray {
 public:
  MipmappedArray(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels);
  ~MipmappedArray();
  MipmappedArray(const MipmappedArray&) = delete;
  MipmappedArray& operator=(const MipmappedArray&) = delete;
  operator CUmipmappedArray() const { return array_; }
  CUarray level(unsigned level) const;

 private:
  CUmipmappedArray array_ = nullptr;
};

// Fills all of an array from tight rows and slices, and reads them back; each waits. Unrecorded.
void write_array(CUarray array, const void* from, std::size_t row_bytes, std::size_t rows = 1,
                 std::size_t slices = 1);
void read_array(CUarray array, void* to, std::size_t row_bytes, std::size_t rows = 1,
                std::size_t slices = 1);

}  // namespace flyt::conformance
