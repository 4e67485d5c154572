// Follows Collatz sequences: 64-bit integers and threads that diverge.
#include "tests/apps/app.h"

int main() {
  constexpr int kCount = 2000;
  const app::Device device;
  std::vector<unsigned long long> starts(kCount);
  std::vector<unsigned> wanted(kCount);
  for (int i = 0; i < kCount; ++i) {
    starts[i] = (static_cast<unsigned long long>(i) << 20) + 27;
    for (unsigned long long value = starts[i]; value != 1; ++wanted[i]) {
      value = value % 2 == 0 ? value / 2 : 3 * value + 1;
    }
  }
  const app::Buffer<unsigned long long> in(starts);
  const app::Buffer<unsigned> out(kCount);
  const app::Launch launch{{(kCount + 63) / 64}, {64}};
  launch(device.kernel("collatz"), in.address(), out.address(), kCount);
  return app::finish("collatz", out.read() == wanted, std::to_string(kCount) + " sequences");
}
