// Moves bodies that attract each other; the host computes the same in double.
#include <cmath>
#include <utility>

#include "tests/apps/app.h"

namespace {

constexpr int kBodies = 256;
constexpr int kSteps = 4;
constexpr float kDt = 0.01f;

struct Float4 {
  float x, y, z, w;
};
struct Float3 {
  float x, y, z;
};
struct Body {
  double x, y, z, vx, vy, vz, mass;
};

void step(std::vector<Body>& bodies) {
  std::vector<Body> next = bodies;
  for (Body& body : next) {
    double ax = 0;
    double ay = 0;
    double az = 0;
    for (const Body& other : bodies) {
      const double dx = other.x - body.x;
      const double dy = other.y - body.y;
      const double dz = other.z - body.z;
      const double inverse = 1 / std::sqrt(dx * dx + dy * dy + dz * dz + 0.01);
      const double pull = other.mass * inverse * inverse * inverse;
      ax += dx * pull;
      ay += dy * pull;
      az += dz * pull;
    }
    body.vx += ax * kDt;
    body.vy += ay * kDt;
    body.vz += az * kDt;
    body.x += body.vx * kDt;
    body.y += body.vy * kDt;
    body.z += body.vz * kDt;
  }
  bodies = next;
}

}  // namespace

int main() {
  const app::Device device;
  app::Noise noise;
  std::vector<Float4> positions(kBodies);
  std::vector<Body> bodies(kBodies);
  for (int i = 0; i < kBodies; ++i) {
    positions[i] = {noise.unit(), noise.unit(), noise.unit(), 0.01f + 0.01f * noise.unit()};
    bodies[i] = {positions[i].x, positions[i].y, positions[i].z, 0, 0, 0, positions[i].w};
  }
  const app::Buffer<Float4> first(positions);
  const app::Buffer<Float4> second(kBodies);
  const app::Buffer<Float3> velocity(kBodies);
  velocity.clear();
  CUdeviceptr from = first.address();
  CUdeviceptr to = second.address();
  const app::Launch launch{{kBodies / 64}, {64}, 64 * sizeof(Float4)};
  for (int i = 0; i < kSteps; ++i) {
    launch(device.kernel("nbody_step"), from, to, velocity.address(), kBodies, kDt);
    std::swap(from, to);
    step(bodies);
  }
  const auto moved = (from == first.address() ? first : second).read();
  double worst = 0;
  for (int i = 0; i < kBodies; ++i) {
    worst = std::fmax(worst, std::fabs(moved[i].x - bodies[i].x));
    worst = std::fmax(worst, std::fabs(moved[i].y - bodies[i].y));
    worst = std::fmax(worst, std::fabs(moved[i].z - bodies[i].z));
  }
  return app::finish("nbody", worst < 1e-4, "256 bodies, worst error " + std::to_string(worst));
}
