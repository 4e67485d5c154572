// Kernels around one texture or surface instruction: PTX made by the tests.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tests/conformance/fixture.h"

namespace flyt::conformance {

// What one thread gets: as %f0 ... %f7 and, the same bits, %r0 ... %r7.
using Words = std::array<std::uint32_t, 8>;
// What it gives back: %f8 ... %f11, or the bits of %r8 ... %r11.
using Answer = std::array<std::uint32_t, 4>;

std::uint32_t bits(float value);
float number(std::uint32_t bits);
Words floats(float a, float b = 0, float c = 0, float d = 0, float e = 0, float f = 0, float g = 0,
             float h = 0);

// The text of a module with one kernel, `run`. `body` finds its image's handle in %rd1 and leaves
// its answer in %f8 to %f11, or in %r8 to %r11 where `integers`. `globals`: before the kernel.
std::string image_kernel(const std::string& body, bool integers, const std::string& globals = {});

// Runs `run` of a module with a thread for each of the inputs, and waits. Unrecorded.
std::vector<Answer> run_image_kernel(CUmodule module, std::uint64_t image,
                                     const std::vector<Words>& inputs);
// All of it.
std::vector<Answer> run_image_kernel(const std::string& body, bool integers, std::uint64_t image,
                                     const std::vector<Words>& inputs);

}  // namespace flyt::conformance
