// Many small launches: each counts, none is lost.
#include <chrono>

#include "tests/apps/app.h"

int main() {
  constexpr int kLaunches = 10000;
  const app::Device device;
  const app::Buffer<unsigned> counter(1);
  counter.clear();
  const CUfunction count = device.kernel("count_up");
  const app::Launch launch{{1}, {1}};
  CHECK(cuCtxSynchronize());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kLaunches; ++i) launch(count, counter.address());
  const auto issued = std::chrono::steady_clock::now();
  const bool right = counter.read()[0] == kLaunches;
  const double nanoseconds = std::chrono::duration<double, std::nano>(issued - begin).count();
  return app::finish("launch_rate", right,
                     std::to_string(kLaunches) + " launches, " +
                         std::to_string(static_cast<int>(nanoseconds / kLaunches)) + " ns each");
}
