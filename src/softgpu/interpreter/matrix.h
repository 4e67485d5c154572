// Matrix fragments: how the elements of a matrix lie in the registers of a warp.
#pragma once

#include <array>
#include <cstdint>

#include "softgpu/interpreter/numeric.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {

inline constexpr unsigned kMatrixCells = 1024;  // Of any shape.

// A matrix of one warp-wide operation; integers are exact in double.
class Matrix {
 public:
  explicit Matrix(unsigned columns) : columns_(columns) {}
  double& at(unsigned row, unsigned column) { return cells_[row * columns_ + column]; }
  double at(unsigned row, unsigned column) const { return cells_[row * columns_ + column]; }

 private:
  const unsigned columns_;
  std::array<double, kMatrixCells> cells_{};
};

// kB1 stands for 32 elements of one bit: their factors are counted together.
enum class Element : std::uint8_t {
  kF16,
  kBF16,
  kTF32,
  kF32,
  kF64,
  kS8,
  kU8,
  kS32,
  kE4M3,
  kE5M2,
  kS4,
  kU4,
  kB1
};

std::optional<Element> element_named(std::uint32_t name);
std::optional<Element> take_element(Selector& s);
unsigned element_bits(Element element);  // 4, 8, 16, 32, 64.
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

// How factors meet: as numbers; or words of bits, of whose xor or and the ones are counted.
enum class Factors : std::uint8_t { kNumbers, kXor, kAnd };
std::optional<Factors> take_factors(Selector& s, Element element);

// d = a * b + c, each element rounded once to `element`; integers saturate if asked for.
struct Product {
  Shape shape;
  Element element = Element::kF32;
  Factors factors = Factors::kNumbers;
  bool saturate = false;
  Rounding rounding = Rounding::kNearest;  // Of kF64.
};
void multiply(const Product& product, const Matrix& a, const Matrix& b, const Matrix& c, Matrix& d);

bool vector_rows(Selector& s, const Operand& operand, unsigned count, unsigned bytes, bool target,
                 std::vector<Row>& rows);

bool select_wmma(Selector& s);
bool select_quad_pairs(Selector& s);  // mma.m8n8k4 of halves
bool select_warpgroup(Selector& s);   // wgmma

}  // namespace flyt::ptx
