// A discrete Fourier transform: sines and cosines of the device's own.
#include <cmath>

#include "tests/apps/app.h"

namespace {
struct Float2 {
  float x, y;
};
}  // namespace

int main() {
  constexpr int kCount = 256;
  const app::Device device;
  app::Noise noise;
  std::vector<float> signal(kCount);
  for (float& value : signal) value = noise.unit() - 0.5f;
  const app::Buffer<float> in(signal);
  const app::Buffer<Float2> out(kCount);
  const app::Launch launch{{kCount / 64}, {64}};
  launch(device.kernel("fourier"), in.address(), out.address(), kCount);
  const auto spectrum = out.read();
  double worst = 0;
  for (int k = 0; k < kCount; ++k) {
    double re = 0;
    double im = 0;
    for (int i = 0; i < kCount; ++i) {
      const double angle = -2 * M_PI * ((k * i) % kCount) / kCount;
      re += signal[i] * std::cos(angle);
      im += signal[i] * std::sin(angle);
    }
    worst = std::fmax(worst, std::hypot(spectrum[k].x - re, spectrum[k].y - im));
  }
  return app::finish("fourier", worst < 1e-3,
                     "256 frequencies, worst error " + std::to_string(worst));
}
