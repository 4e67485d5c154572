// Smooths a plate with held edges: 50 launches that ping-pong two buffers.
#include <cmath>
#include <utility>

#include "tests/apps/app.h"

int main() {
  constexpr int kWidth = 64;
  constexpr int kHeight = 48;
  constexpr int kSteps = 50;
  const app::Device device;
  std::vector<float> plate(kWidth * kHeight, 0.0f);
  for (int x = 0; x < kWidth; ++x) plate[x] = 100.0f;
  const app::Buffer<float> first(plate);
  const app::Buffer<float> second(plate);
  CUdeviceptr from = first.address();
  CUdeviceptr to = second.address();
  const CUfunction smooth = device.kernel("jacobi");
  const app::Launch launch{{kWidth / 16, kHeight / 8}, {16, 8}};
  for (int i = 0; i < kSteps; ++i) {
    launch(smooth, from, to, kWidth, kHeight);
    std::swap(from, to);
  }
  std::vector<float> other = plate;
  for (int i = 0; i < kSteps; ++i) {
    for (int y = 1; y < kHeight - 1; ++y) {
      for (int x = 1; x < kWidth - 1; ++x) {
        const int at = y * kWidth + x;
        other[at] =
            0.25f * (plate[at - 1] + plate[at + 1] + plate[at - kWidth] + plate[at + kWidth]);
      }
    }
    std::swap(plate, other);
  }
  const auto result = (from == first.address() ? first : second).read();
  float worst = 0;
  for (int i = 0; i < kWidth * kHeight; ++i) {
    worst = std::fmax(worst, std::fabs(result[i] - plate[i]));
  }
  return app::finish("jacobi", worst < 1e-3f, "50 steps on a 64x48 plate");
}
