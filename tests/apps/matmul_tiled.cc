// Multiplies two matrices by tiles in shared memory.
#include <cmath>

#include "tests/apps/app.h"

int main() {
  constexpr int kSize = 96;
  const app::Device device;
  app::Noise noise;
  std::vector<float> a(kSize * kSize);
  std::vector<float> b(kSize * kSize);
  for (float& value : a) value = noise.unit();
  for (float& value : b) value = noise.unit();
  const app::Buffer<float> device_a(a);
  const app::Buffer<float> device_b(b);
  const app::Buffer<float> device_c(kSize * kSize);
  const app::Launch launch{{kSize / 16, kSize / 16}, {16, 16}};
  launch(device.kernel("matmul_tiled"), device_a.address(), device_b.address(), device_c.address(),
         kSize);
  const auto c = device_c.read();
  double worst = 0;
  for (int row = 0; row < kSize; ++row) {
    for (int column = 0; column < kSize; ++column) {
      double sum = 0;
      for (int k = 0; k < kSize; ++k) {
        sum += static_cast<double>(a[row * kSize + k]) * b[k * kSize + column];
      }
      worst = std::fmax(worst, std::fabs(sum - c[row * kSize + column]));
    }
  }
  return app::finish("matmul_tiled", worst < 1e-3,
                     "96x96 matrices, worst error " + std::to_string(worst));
}
