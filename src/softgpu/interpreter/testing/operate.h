// operate: runs one instruction on many operands at once and gives its results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "softgpu/interpreter/testing/device.h"

namespace flyt::ptx {

// A kernel that loads %a, %b, %c (registers of the sizes given, 0: none) of its thread, runs
// `body`, which sets %d, and stores that. Predicates %p and %q are declared too.
inline std::string operation_kernel(std::string_view body, std::size_t d_bytes,
                                    std::vector<std::size_t> operand_bytes) {
  const auto bits = [](std::size_t bytes) { return ".b" + std::to_string(bytes * 8); };
  const auto number = [](std::size_t value) { return std::to_string(value); };
  std::string text =
      ".version 8.6\n.target sm_90\n.address_size 64\n"
      ".visible .entry k(.param .u64 pd, .param .u64 pa, .param .u64 pb, .param .u64 pc, "
      ".param .u32 n) {\n"
      ".reg .pred %p, %q, %out; .reg .b32 %i, %n; .reg .b64 %at, %t<8>; .reg .b32 %x<8>;\n"
      ".reg " +
      bits(d_bytes) +
      " %d;\n"
      "mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %i, %i, %n, 0;\n"
      "mov.u32 %n, %tid.x; add.u32 %i, %i, %n; ld.param.u32 %n, [n];\n"
      "setp.ge.u32 %out, %i, %n; @%out ret;\n";
  const char* names = "abc";
  for (std::size_t k = 0; k < operand_bytes.size(); ++k) {
    const std::string name(1, names[k]);
    const std::size_t size = operand_bytes[k];
    text += ".reg " + bits(size < 2 ? 2 : size) + " %" + name + ";\nld.param.u64 %at, [p" + name +
            "]; mul.wide.u32 %t0, %i, " + number(size) + "; add.u64 %at, %at, %t0; ld.global" +
            bits(size) + " %" + name + ", [%at];\n";
  }
  text += std::string(body) + "\nld.param.u64 %at, [pd]; mul.wide.u32 %t0, %i, " + number(d_bytes) +
          "; add.u64 %at, %at, %t0; st.global" + bits(d_bytes) + " [%at], %d;\nret;\n}\n";
  return text;
}

template <class D, class A, class B, class C>
std::vector<D> operate(std::string_view body, const std::vector<A>& a, const std::vector<B>& b,
                       const std::vector<C>& c, std::vector<std::size_t> sizes) {
  TestDevice device(operation_kernel(body, sizeof(D), std::move(sizes)));
  EXPECT_EQ(device.error(), "") << body;
  if (!device.error().empty()) return std::vector<D>(a.size());
  const auto n = static_cast<std::uint32_t>(a.size());
  const std::uint64_t d = device.allocate(n * sizeof(D));
  device.launch.block = {64, 1, 1};
  device.launch.grid = {(n + 63) / 64, 1, 1};
  const auto fault = device.run("k", d, device.put(a), device.put(b), device.put(c), n);
  EXPECT_FALSE(fault.has_value()) << to_string(*fault);
  return device.get<D>(d, n);
}

template <class D, class A>
std::vector<D> operate(std::string_view body, const std::vector<A>& a) {
  return operate<D>(body, a, a, a, {sizeof(A)});
}
template <class D, class A, class B>
std::vector<D> operate(std::string_view body, const std::vector<A>& a, const std::vector<B>& b) {
  return operate<D>(body, a, b, b, {sizeof(A), sizeof(B)});
}
template <class D, class A, class B, class C>
std::vector<D> operate(std::string_view body, const std::vector<A>& a, const std::vector<B>& b,
                       const std::vector<C>& c) {
  return operate<D>(body, a, b, c, {sizeof(A), sizeof(B), sizeof(C)});
}

// Every pair of the values, as two lists.
template <class T>
std::pair<std::vector<T>, std::vector<T>> pairs(const std::vector<T>& values) {
  std::pair<std::vector<T>, std::vector<T>> result;
  for (const T& x : values) {
    for (const T& y : values) {
      result.first.push_back(x);
      result.second.push_back(y);
    }
  }
  return result;
}

// Numbers at the edges: zeros, subnormals, ones, the largest, infinities, NaN, and some between.
inline std::vector<float> float_edges() {
  std::vector<float> values;
  for (const std::uint32_t bits :
       {0x00000000u, 0x80000000u, 0x00000001u, 0x807fffffu, 0x00800000u, 0x3f800000u, 0xbf800000u,
        0x3f800001u, 0x40490fdbu, 0xc2c80000u, 0x4b7fffffu, 0x4f000000u, 0xcf000000u, 0x5f000000u,
        0x7f7fffffu, 0xff7fffffu, 0x7f800000u, 0xff800000u, 0x7fc00001u, 0xffa00000u, 0x33800000u,
        0x3eaaaaabu, 0x0da24260u, 0x477fe000u, 0x477fefffu, 0x477ff000u, 0x387fc000u}) {
    values.push_back(std::bit_cast<float>(bits));
  }
  return values;
}

inline std::vector<double> double_edges() {
  std::vector<double> values;
  for (const float value : float_edges()) values.push_back(value == value ? value : 0.1);
  for (const std::uint64_t bits :
       {0x0000000000000001ull, 0x8000000000000000ull, 0x000fffffffffffffull, 0x7fefffffffffffffull,
        0x7ff0000000000000ull, 0xfff0000000000000ull, 0x3ff0000000000001ull, 0x43dfffffffffffffull,
        0x41e0000000000000ull, 0xc1e0000000200000ull, 0x3fb999999999999aull, 0x7ff8000000000000ull,
        0x36a0000000000001ull, 0x47efffffefffffffull, 0x47effffff0000000ull}) {
    values.push_back(std::bit_cast<double>(bits));
  }
  return values;
}

template <class T>
std::vector<T> integer_edges() {
  std::vector<T> values;
  for (const std::uint64_t bits : {0ull,
                                   1ull,
                                   2ull,
                                   3ull,
                                   7ull,
                                   31ull,
                                   32ull,
                                   33ull,
                                   63ull,
                                   64ull,
                                   127ull,
                                   128ull,
                                   255ull,
                                   256ull,
                                   32767ull,
                                   32768ull,
                                   65535ull,
                                   65536ull,
                                   0x7fffffffull,
                                   0x80000000ull,
                                   0xffffffffull,
                                   0x100000000ull,
                                   0x123456789abcdefull,
                                   0x7fffffffffffffffull,
                                   0x8000000000000000ull,
                                   0xffffffffffffffffull,
                                   0xfffffffffffffff0ull,
                                   0xdeadbeefcafebabeull}) {
    values.push_back(static_cast<T>(bits));
  }
  return values;
}

}  // namespace flyt::ptx
