#include "softgpu/interpreter/image_operand.h"

namespace flyt::ptx {

bool take_geometry(Selector& s, Geometry& geometry) {
  const int which = s.take_one({"1d"_n, "2d"_n, "3d"_n, "a1d"_n, "a2d"_n, "cube"_n, "acube"_n});
  if (which < 0) return false;
  constexpr std::array<Geometry, 7> kGeometries = {
      Geometry{1, false}, {2, false}, {3, false}, {1, true}, {2, true}, {3, false}, {3, true}};
  geometry = kGeometries[static_cast<std::size_t>(which)];
  return true;
}

const Operand* element_of(Selector& s, const Operand& operand, std::size_t index) {
  if (operand.kind != Operand::Kind::kVector) return index == 0 ? &operand : nullptr;
  return index < operand.count ? &s.element(operand, index) : nullptr;
}

bool image_handle(Selector& s, const Operand& operand, Row& handle) {
  std::int64_t offset = 0;
  if (operand.kind == Operand::Kind::kParameter)
    return s.refuse("names a reference as a parameter");
  if (!s.address(operand, Space::kGlobal, handle, offset)) return false;
  return offset == 0 || s.refuse("has an offset where a handle belongs");
}

bool image_place(Selector& s, const Operand& operand, const Geometry& geometry, Type coordinate,
                 ImagePlace& place) {
  if (!operand.memory || operand.kind != Operand::Kind::kVector) return s.refuse_form();
  if (operand.count != 2) return s.refuse("has a sampler of its own, which is not supported");
  Operand name = s.element(operand, 0);
  name.memory = true;
  if (!image_handle(s, name, place.handle)) return false;
  const Operand& coordinates = s.element(operand, 1);
  std::size_t next = 0;
  const auto take = [&](Type type, Row& row) {
    const Operand* each = element_of(s, coordinates, next++);
    return each == nullptr ? s.refuse("has too few coordinates") : s.source(*each, type, row);
  };
  if (geometry.layered && !take(Type::kB32, place.layer)) return false;
  for (std::size_t i = 0; i < geometry.axes; ++i) {
    if (!take(coordinate, place.coordinates[i])) return false;
  }
  return true;
}

}  // namespace flyt::ptx
