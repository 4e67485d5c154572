// Matrix fragments: how the elements of a matrix lie in the registers of a warp.
#pragma once

#include <array>
#include <cstdint>

#include "softgpu/interpreter/numeric.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {

inline constexpr unsigned kMatrixSide = 32;  // Rows or columns at most.

// A matrix of one warp-wide operation; integers are exact in double.
struct Matrix {
  std::array<std::array<double, kMatrixSide>, kMatrixSide> at{};
};

enum class Element : std::uint8_t { kF16, kBF16, kTF32, kF32, kF64, kS8, kU8, kS32, kE4M3, kE5M2 };

std::optional<Element> element_named(std::uint32_t name);
std::optional<Element> take_element(Selector& s);
unsigned element_bits(Element element);  // 8, 16, 32, 64.
double decode_element(Element element, std::uint64_t bits);
std::uint64_t encode_element(Element element, double value);

struct Shape {
  unsigned m = 0;
  unsigned n = 0;
  unsigned k = 0;
};
std::optional<Shape> take_shape(Selector& s);

// Reads and writes the register `row` of a lane, 4 or 8 bytes.
std::uint64_t get_register(Warp& warp, Row row, unsigned lane);
void put_register(Warp& warp, Row row, unsigned lane, std::uint64_t value);

// All existing lanes must come; false: return `flow`.
bool whole_warp(Warp& warp, Mask lanes, Flow& flow);

// d = a * b + c, each element rounded once to `element`; integers saturate if asked for.
void multiply(const Shape& shape, const Matrix& a, const Matrix& b, const Matrix& c,
              Element element, bool saturate, Matrix& d);

bool vector_rows(Selector& s, const Operand& operand, unsigned count, unsigned bytes, bool target,
                 std::vector<Row>& rows);

bool select_wmma(Selector& s);

}  // namespace flyt::ptx
