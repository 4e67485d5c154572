// What a client is told about a function when it gets one.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cuda/types.h"
#include "driver/table.h"
#include "wire/fields.h"

namespace flyt::server {

// Whether an attribute of a command is one. NVIDIA's driver looks in a table for whatever it is
// given.
inline bool is_function_attribute(std::int32_t attribute) {
  return attribute >= 0 && attribute < static_cast<std::int32_t>(CU_FUNC_ATTRIBUTE_MAX);
}

struct FunctionFacts {
  std::array<std::int32_t, CU_FUNC_ATTRIBUTE_MAX> attributes{};
  std::array<std::uint8_t, CU_FUNC_ATTRIBUTE_MAX> known{};
  std::vector<std::uint32_t> offsets;
  std::vector<std::uint32_t> sizes;

  template <class Reply>
  void fill_attributes(Reply& reply) const {
    reply.attributes = wire::List<std::int32_t>(std::span<const std::int32_t>(attributes));
    reply.known = wire::List<std::uint8_t>(std::span<const std::uint8_t>(known));
  }
  template <class Reply>
  void fill_parameters(Reply& reply) const {
    reply.offsets = wire::List<std::uint32_t>(offsets);
    reply.sizes = wire::List<std::uint32_t>(sizes);
  }
};

inline constexpr std::size_t kParametersMax = 8192;

// Collects the attributes with `get(int* value, CUfunction_attribute)`.
template <class Get>
void collect_attributes(FunctionFacts& facts, Get&& get) {
  for (int i = 0; i < static_cast<int>(CU_FUNC_ATTRIBUTE_MAX); ++i) {
    int value = 0;
    if (get(&value, static_cast<CUfunction_attribute>(i)) != CUDA_SUCCESS) continue;
    facts.attributes[static_cast<std::size_t>(i)] = value;
    facts.known[static_cast<std::size_t>(i)] = 1;
  }
}

// Collects the parameters with `get(index, &offset, &size)`, which fails behind the last one.
template <class Get>
void collect_parameters(FunctionFacts& facts, Get&& get) {
  for (std::size_t index = 0; index < kParametersMax; ++index) {
    std::size_t offset = 0;
    std::size_t size = 0;
    if (get(index, &offset, &size) != CUDA_SUCCESS) return;
    facts.offsets.push_back(static_cast<std::uint32_t>(offset));
    facts.sizes.push_back(static_cast<std::uint32_t>(size));
  }
}

}  // namespace flyt::server
