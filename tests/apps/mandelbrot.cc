// Counts the steps of the Mandelbrot iteration for every pixel, in double.
#include "tests/apps/app.h"

namespace {

int steps_at(int x, int y, int width, int height, int limit) {
  const double cr = -2.0 + 3.0 * x / width;
  const double ci = -1.0 + 2.0 * y / height;
  double zr = 0;
  double zi = 0;
  int steps = 0;
  while (steps < limit && zr * zr + zi * zi < 4.0) {
    const double next = zr * zr - zi * zi + cr;
    zi = 2 * zr * zi + ci;
    zr = next;
    ++steps;
  }
  return steps;
}

}  // namespace

int main() {
  constexpr int kWidth = 96;
  constexpr int kHeight = 64;
  constexpr int kLimit = 64;
  const app::Device device;
  const app::Buffer<unsigned short> out(kWidth * kHeight);
  const app::Launch launch{{kWidth / 16, kHeight / 8}, {16, 8}};
  launch(device.kernel("mandelbrot"), out.address(), kWidth, kHeight, kLimit);
  const auto picture = out.read();
  // The device fuses multiplications and additions, so that pixels at the border may differ.
  int different = 0;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      different += picture[y * kWidth + x] != steps_at(x, y, kWidth, kHeight, kLimit);
    }
  }
  return app::finish("mandelbrot", different < 10,
                     "96x64 pixels, " + std::to_string(different) + " at the border differ");
}
