// Adds two vectors.
#include "tests/apps/app.h"

int main() {
  constexpr int kCount = 50000;
  const app::Device device;
  app::Noise noise;
  std::vector<float> a(kCount);
  std::vector<float> b(kCount);
  for (int i = 0; i < kCount; ++i) {
    a[i] = noise.unit();
    b[i] = noise.unit();
  }
  const app::Buffer<float> device_a(a);
  const app::Buffer<float> device_b(b);
  const app::Buffer<float> device_c(kCount);
  const app::Launch launch{{(kCount + 255) / 256}, {256}};
  launch(device.kernel("vector_add"), device_a.address(), device_b.address(), device_c.address(),
         kCount);
  const auto c = device_c.read();
  bool right = true;
  for (int i = 0; i < kCount; ++i) right = right && c[i] == a[i] + b[i];
  return app::finish("vector_add", right, std::to_string(kCount) + " sums");
}
