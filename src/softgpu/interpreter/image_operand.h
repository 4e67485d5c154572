// The operands of texture and surface instructions: [handle, {coordinates}].
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "softgpu/interpreter/select.h"

namespace flyt::ptx {

struct Geometry {
  std::size_t axes = 1;  // Coordinates; three for the direction of a cube.
  bool layered = false;
};

// Takes .1d .2d .3d .a1d .a2d .cube .acube; false where there is none.
bool take_geometry(Selector& s, Geometry& geometry);

struct ImagePlace {
  Row handle;
  Row layer;  // Where the geometry is layered.
  std::array<Row, 3> coordinates;
};

// [name, {layer, x, y, z}]; vectors may be longer than the geometry wants.
bool image_place(Selector& s, const Operand& operand, const Geometry& geometry, Type coordinate,
                 ImagePlace& place);
// [name]: an address, or a register that holds a handle.
bool image_handle(Selector& s, const Operand& operand, Row& handle);
// An element of a vector, or the operand itself as the first one; null where there are fewer.
const Operand* element_of(Selector& s, const Operand& operand, std::size_t index);

// Looks handles up, mostly the same one for all lanes.
template <class Image>
class Named {
 public:
  template <class Find>
  explicit Named(Find find) : find_(find) {}
  const Image* find(std::uint64_t handle) {
    if (!known_ || handle != handle_) {
      image_ = find_(handle);
      handle_ = handle;
      known_ = true;
    }
    return image_;
  }

 private:
  const std::function<const Image*(std::uint64_t)> find_;
  const Image* image_ = nullptr;
  std::uint64_t handle_ = 0;
  bool known_ = false;
};

}  // namespace flyt::ptx
