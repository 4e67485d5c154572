// OwnImages: arrays, textures and surfaces of a program, which knows what they hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::tests {

// Answers are "ok", a CUresult in words, or what went wrong.
class OwnImages {
 public:
  explicit OwnImages(const driver::Table& cu) : cu_(cu) {}
  OwnImages(const OwnImages&) = delete;
  OwnImages& operator=(const OwnImages&) = delete;

  std::string answer(const std::string& what, std::size_t number);

 private:
  static constexpr unsigned kWidth = 32;
  static constexpr unsigned kHeight = 4;

  CUresult make_linear();
  CUresult make_array(unsigned flags);
  CUresult make_layers();
  CUresult make_mipmapped();
  // Makes and destroys so many textures.
  CUresult leave_gap(std::size_t count);
  // One that is never written to, of so many bytes.
  CUresult make_large(std::size_t bytes);
  CUresult forget_memory();
  CUresult end();
  std::string use();

  CUresult load();
  CUresult fill(CUarray array, unsigned width, unsigned height, unsigned slice,
                const std::vector<std::uint32_t>& texels) const;
  CUresult read(CUarray array, unsigned width, unsigned height, unsigned slice,
                std::vector<std::uint32_t>& texels) const;
  CUresult make_texture(const CUDA_RESOURCE_DESC& resource, CUtexObject& texture) const;
  // What a kernel finds in a texture, one word after the other.
  CUresult fetch(const char* kernel, CUtexObject texture, unsigned height,
                 std::vector<std::uint32_t>& found) const;

  struct Image {
    CUarray array = nullptr;  // None: a texture of linear memory.
    CUtexObject texture = 0;
    CUsurfObject surface = 0;
    unsigned width = kWidth;
    unsigned height = 1;
    unsigned slice = 0;
    std::vector<std::uint32_t> texels;
  };

  const driver::Table& cu_;
  CUmodule module_ = nullptr;
  CUdeviceptr linear_ = 0;
  CUarray layers_ = nullptr;
  CUarray large_ = nullptr;
  CUmipmappedArray mipmapped_ = nullptr;
  std::vector<Image> images_;
  std::uint32_t seed_ = 1;
};

}  // namespace flyt::tests
