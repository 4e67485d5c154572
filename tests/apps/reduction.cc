// Sums numbers by trees in shared memory and one 64-bit atomic a block.
#include <numeric>

#include "tests/apps/app.h"

int main() {
  constexpr int kCount = 200000;
  const app::Device device;
  app::Noise noise;
  std::vector<unsigned> values(kCount);
  for (unsigned& value : values) value = noise.next();
  const app::Buffer<unsigned> in(values);
  const app::Buffer<unsigned long long> out(1);
  out.clear();
  const app::Launch launch{{16}, {128}, 128 * sizeof(unsigned long long)};
  launch(device.kernel("reduce_sum"), in.address(), out.address(), kCount);
  const unsigned long long wanted = std::accumulate(values.begin(), values.end(), 0ull);
  return app::finish("reduction", out.read()[0] == wanted, "sum " + std::to_string(wanted));
}
