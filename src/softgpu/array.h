// Array: the memory of a CUarray or CUmipmappedArray. Rows are tight, and so are slices and levels;
// kernels reach it through textures and surfaces only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/types.h"
#include "softgpu/interpreter/image.h"

namespace flyt::softgpu {

class Context;
class Device;
class Driver;

// None for a format that there is not, or not here.
std::optional<ptx::TexelFormat> texel_format(CUarray_format format, unsigned channels);
// Device memory of arrays: charged to the device, known to no region.
class ArrayMemory {
 public:
  ArrayMemory(Device& device, std::uint64_t address, std::uint64_t bytes)
      : device_(device), address_(address), bytes_(bytes) {}
  ~ArrayMemory();
  ArrayMemory(const ArrayMemory&) = delete;
  ArrayMemory& operator=(const ArrayMemory&) = delete;

  Device& device() const { return device_; }
  std::uint64_t address() const { return address_; }

 private:
  Device& device_;
  const std::uint64_t address_;
  const std::uint64_t bytes_;
};

// One level of texels under a CUarray. Immutable; textures and copies that are on their way keep
// the memory.
class Array {
 public:
  Array(std::shared_ptr<ArrayMemory> memory, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
        std::uint64_t offset, std::uint64_t context, bool of_mipmap);

  const CUDA_ARRAY3D_DESCRIPTOR& descriptor() const { return descriptor_; }
  const ptx::TexelFormat& format() const { return format_; }
  const ptx::ImageLevel& level() const { return level_; }
  ptx::ImageShape shape() const { return shape_; }
  std::uint64_t context() const { return context_; }
  // A level of a mipmapped array, which goes with it only.
  bool of_mipmap() const { return of_mipmap_; }
  const std::shared_ptr<ArrayMemory>& memory() const { return memory_; }
  std::uint64_t row_bytes() const { return std::uint64_t{level_.width} * format_.bytes(); }

 private:
  const std::shared_ptr<ArrayMemory> memory_;
  const CUDA_ARRAY3D_DESCRIPTOR descriptor_;
  const ptx::TexelFormat format_;
  const std::uint64_t context_;
  const bool of_mipmap_;
  ptx::ImageShape shape_;
  ptx::ImageLevel level_;
};

// A CUmipmappedArray: its levels have handles of their own.
class MipmappedArray {
 public:
  MipmappedArray(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, std::uint64_t context,
                 std::vector<std::shared_ptr<Array>> levels)
      : descriptor_(descriptor), context_(context), levels_(std::move(levels)) {}
  const CUDA_ARRAY3D_DESCRIPTOR& descriptor() const { return descriptor_; }
  std::uint64_t context() const { return context_; }
  const std::vector<std::shared_ptr<Array>>& levels() const { return levels_; }
  // Handles of the levels; set once, before anybody else knows the mipmapped array.
  std::vector<std::uint64_t> handles;

 private:
  const CUDA_ARRAY3D_DESCRIPTOR descriptor_;
  const std::uint64_t context_;
  const std::vector<std::shared_ptr<Array>> levels_;
};

// What cuArray3DCreate and cuMipmappedArrayCreate say of a descriptor, before they take memory.
CUresult check_descriptor(const Device& device, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                          bool mipmapped);
// CUDA_ERROR_OUT_OF_MEMORY where the device has not so much left. The descriptors are checked.
CUresult make_array(Driver& driver, Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                    std::shared_ptr<Array>& out);
CUresult make_mipmapped_array(Driver& driver, Context& context,
                              const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels,
                              std::shared_ptr<MipmappedArray>& out);

}  // namespace flyt::softgpu
