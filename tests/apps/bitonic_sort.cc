// Sorts by a bitonic network: 78 dependent launches in one stream.
#include <algorithm>

#include "tests/apps/app.h"

int main() {
  constexpr int kCount = 4096;
  const app::Device device;
  app::Noise noise;
  std::vector<int> values(kCount);
  for (int& value : values) value = static_cast<int>(noise.next());
  const app::Buffer<int> data(values);
  const CUfunction sort = device.kernel("bitonic_step");
  const app::Launch launch{{kCount / 256}, {256}};
  int launches = 0;
  for (int k = 2; k <= kCount; k *= 2) {
    for (int j = k / 2; j > 0; j /= 2) {
      launch(sort, data.address(), j, k);
      ++launches;
    }
  }
  std::sort(values.begin(), values.end());
  return app::finish(
      "bitonic_sort", data.read() == values,
      std::to_string(kCount) + " numbers by " + std::to_string(launches) + " launches");
}
