// Four streams copy in, compute and copy out side by side; events order the last step.
#include "tests/apps/app.h"

namespace {

constexpr int kStreams = 4;
constexpr int kCount = 20000;
constexpr int kRounds = 3;

// One stream with its pinned and its device memory.
struct Lane {
  CUstream stream = nullptr;
  CUevent done = nullptr;
  float* host = nullptr;
  CUdeviceptr device = 0;
};

Lane make_lane(int number) {
  Lane lane;
  void* host = nullptr;
  CHECK(cuStreamCreate(&lane.stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&lane.done, 0));
  CHECK(cuMemHostAlloc(&host, kCount * sizeof(float), 0));
  CHECK(cuMemAlloc_v2(&lane.device, kCount * sizeof(float)));
  lane.host = static_cast<float*>(host);
  for (int i = 0; i < kCount; ++i) lane.host[i] = static_cast<float>(number * 1000 + i % 1000);
  return lane;
}

}  // namespace

int main() {
  const app::Device device;
  const CUfunction scale = device.kernel("scale_and_shift");
  std::vector<Lane> lanes;
  for (int i = 0; i < kStreams; ++i) lanes.push_back(make_lane(i));
  CUevent begin = nullptr;
  CHECK(cuEventCreate(&begin, 0));
  CHECK(cuEventRecord(begin, lanes[0].stream));
  for (int round = 0; round < kRounds; ++round) {
    for (Lane& lane : lanes) {
      CHECK(cuMemcpyHtoDAsync_v2(lane.device, lane.host, kCount * sizeof(float), lane.stream));
      const app::Launch launch{{(kCount + 255) / 256}, {256}, 0, lane.stream};
      launch(scale, lane.device, kCount, 2.0f, 1.0f);
      CHECK(cuMemcpyDtoHAsync_v2(lane.host, lane.device, kCount * sizeof(float), lane.stream));
      CHECK(cuEventRecord(lane.done, lane.stream));
    }
  }
  for (Lane& lane : lanes) CHECK(cuStreamWaitEvent(lanes[0].stream, lane.done, 0));
  CUevent end = nullptr;
  CHECK(cuEventCreate(&end, 0));
  CHECK(cuEventRecord(end, lanes[0].stream));
  CHECK(cuEventSynchronize(end));
  float milliseconds = -1;
  CHECK(cuEventElapsedTime(&milliseconds, begin, end));
  bool right = milliseconds >= 0;
  for (int number = 0; number < kStreams; ++number) {
    for (int i = 0; i < kCount; ++i) {
      float wanted = static_cast<float>(number * 1000 + i % 1000);
      for (int round = 0; round < kRounds; ++round) wanted = wanted * 2.0f + 1.0f;
      right = right && lanes[number].host[i] == wanted;
    }
  }
  return app::finish("streams_events", right, "4 streams, 3 rounds of copy, kernel, copy");
}
