// Counts bytes with atomics in shared and global memory.
#include "tests/apps/app.h"

int main() {
  constexpr int kCount = 300000;
  const app::Device device;
  app::Noise noise;
  std::vector<unsigned char> data(kCount);
  std::vector<unsigned> wanted(256);
  for (unsigned char& value : data) {
    value = static_cast<unsigned char>(noise.next() % 251);
    ++wanted[value];
  }
  const app::Buffer<unsigned char> in(data);
  const app::Buffer<unsigned> bins(256);
  bins.clear();
  const app::Launch launch{{8}, {256}};
  launch(device.kernel("histogram"), in.address(), bins.address(), kCount);
  return app::finish("histogram", bins.read() == wanted, std::to_string(kCount) + " bytes");
}
