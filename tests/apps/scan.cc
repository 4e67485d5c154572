// Running sums by warp shuffles, shared memory and a second pass.
#include <numeric>

#include "tests/apps/app.h"

int main() {
  constexpr int kCount = 32768;
  constexpr int kBlock = 256;
  const app::Device device;
  app::Noise noise;
  std::vector<int> values(kCount);
  for (int& value : values) value = static_cast<int>(noise.next() % 100) - 50;
  const app::Buffer<int> in(values);
  const app::Buffer<int> out(kCount);
  const app::Buffer<int> totals(kCount / kBlock);
  const app::Launch launch{{kCount / kBlock}, {kBlock}};
  launch(device.kernel("scan_blocks"), in.address(), out.address(), totals.address());
  launch(device.kernel("add_offsets"), out.address(), totals.address());
  std::partial_sum(values.begin(), values.end(), values.begin());
  return app::finish("scan", out.read() == values, std::to_string(kCount) + " running sums");
}
