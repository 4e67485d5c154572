// Much of the runtime API in one program; what it prints must not depend on where it runs.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

namespace cg = cooperative_groups;

#define CHECK(call)                                                                \
  do {                                                                             \
    const cudaError_t status = (call);                                             \
    if (status != cudaSuccess) {                                                   \
      std::printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(status)); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (false)

constexpr int kCount = 1 << 16;

__constant__ int factor;
__device__ unsigned long long total;

__global__ void scale(int* data, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] *= factor;
}

__global__ void add_up(const int* data, int count) {
  __shared__ unsigned long long sums[256];
  unsigned long long sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    sum += static_cast<unsigned long long>(data[i]);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(&total, sums[0]);
}

__global__ void cooperative_step(int* data, int count) {
  const cg::grid_group grid = cg::this_grid();
  const int i = static_cast<int>(grid.thread_rank());
  const int next = i < count ? data[(i + 1) % count] : 0;
  grid.sync();
  if (i < count) data[i] = next;
}

__global__ void greet(int number) { printf("kernel says %d\n", number); }

void sums_on_the_default_stream() {
  std::vector<int> host(kCount);
  std::iota(host.begin(), host.end(), 0);
  int* data = nullptr;
  CHECK(cudaMalloc(&data, kCount * sizeof(int)));
  CHECK(cudaMemcpy(data, host.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
  const int three = 3;
  CHECK(cudaMemcpyToSymbol(factor, &three, sizeof three));
  scale<<<kCount / 256, 256>>>(data, kCount);
  add_up<<<32, 256>>>(data, kCount);
  CHECK(cudaGetLastError());
  unsigned long long sum = 0;
  CHECK(cudaMemcpyFromSymbol(&sum, total, sizeof sum));
  std::printf("sum %llu\n", sum);
  CHECK(cudaFree(data));
}

void copies_between_streams() {
  cudaStream_t first, second;
  cudaEvent_t written, read;
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithPriority(&second, cudaStreamNonBlocking, -1));
  CHECK(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
  CHECK(cudaEventCreate(&read));
  int* pinned = nullptr;
  int* data = nullptr;
  CHECK(cudaMallocHost(&pinned, kCount * sizeof(int)));
  CHECK(cudaMallocAsync(&data, kCount * sizeof(int), first));
  for (int round = 1; round <= 5; ++round) {
    for (int i = 0; i < kCount; ++i) pinned[i] = i + round;
    CHECK(cudaMemcpyAsync(data, pinned, kCount * sizeof(int), cudaMemcpyDefault, first));
    scale<<<kCount / 256, 256, 0, first>>>(data, kCount);
    CHECK(cudaEventRecord(written, first));
    CHECK(cudaStreamWaitEvent(second, written, 0));
    CHECK(cudaMemcpyAsync(pinned, data, kCount * sizeof(int), cudaMemcpyDefault, second));
    CHECK(cudaEventRecord(read, second));
    while (cudaEventQuery(read) == cudaErrorNotReady) {
    }
    std::printf("round %d: %d %d\n", round, pinned[0], pinned[kCount - 1]);
  }
  CHECK(cudaFreeAsync(data, second));
  CHECK(cudaStreamSynchronize(second));
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaEventDestroy(written));
  CHECK(cudaEventDestroy(read));
  CHECK(cudaStreamDestroy(first));
  CHECK(cudaStreamDestroy(second));
}

void host_functions_and_two_dimensions() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  int calls = 0;
  for (int i = 0; i < 3; ++i) {
    CHECK(cudaLaunchHostFunc(
        stream, [](void* counter) { ++*static_cast<int*>(counter); }, &calls));
  }
  CHECK(cudaStreamSynchronize(stream));
  std::printf("host functions %d\n", calls);
  void* image = nullptr;
  std::size_t pitch = 0;
  CHECK(cudaMallocPitch(&image, &pitch, 100, 10));
  CHECK(cudaMemset2DAsync(image, pitch, 7, 100, 10, stream));
  std::vector<unsigned char> rows(100 * 10, 0);
  CHECK(cudaMemcpy2DAsync(rows.data(), 100, image, pitch, 100, 10, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::printf("bytes %d\n", std::accumulate(rows.begin(), rows.end(), 0));
  CHECK(cudaFree(image));
  CHECK(cudaStreamDestroy(stream));
}

void cooperative_launch() {
  int blocks = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, cooperative_step, 128, 0));
  std::printf("blocks fit: %s\n", blocks > 0 ? "yes" : "no");
  std::vector<int> host(1024);
  std::iota(host.begin(), host.end(), 0);
  int* data = nullptr;
  int count = 1024;
  CHECK(cudaMalloc(&data, host.size() * sizeof(int)));
  CHECK(cudaMemcpy(data, host.data(), host.size() * sizeof(int), cudaMemcpyHostToDevice));
  void* arguments[] = {&data, &count};
  CHECK(cudaLaunchCooperativeKernel(cooperative_step, 8, 128, arguments));
  CHECK(cudaMemcpy(host.data(), data, host.size() * sizeof(int), cudaMemcpyDeviceToHost));
  std::printf("shifted %d %d %d\n", host[0], host[1022], host[1023]);
  CHECK(cudaFree(data));
}

void threads_with_their_own_streams() {
  std::vector<unsigned> sums(4, 0);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < sums.size(); ++t) {
    threads.emplace_back([t, &sums] {
      cudaStream_t stream;
      int* data = nullptr;
      CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      CHECK(cudaMalloc(&data, kCount * sizeof(int)));
      std::vector<int> host(kCount, static_cast<int>(t + 1));
      for (int round = 0; round < 20; ++round) {
        CHECK(cudaMemcpyAsync(data, host.data(), kCount * sizeof(int), cudaMemcpyDefault, stream));
        scale<<<kCount / 256, 256, 0, stream>>>(data, kCount);
        CHECK(cudaMemcpyAsync(host.data(), data, kCount * sizeof(int), cudaMemcpyDefault, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (int& value : host) value %= 1000;
      }
      for (const int value : host) sums[t] += static_cast<unsigned>(value);
      CHECK(cudaFree(data));
      CHECK(cudaStreamDestroy(stream));
    });
  }
  for (auto& thread : threads) thread.join();
  for (const unsigned sum : sums) std::printf("thread sum %u\n", sum);
}

void refusals() {
  scale<<<1, 2048>>>(nullptr, 0);
  std::printf("too many threads: %s\n", cudaGetErrorName(cudaGetLastError()));
  void* pointer = nullptr;
  std::printf("too much memory: %s\n", cudaGetErrorName(cudaMalloc(&pointer, 1ull << 60)));
  std::printf("after: %s\n", cudaGetErrorName(cudaGetLastError()));
  std::printf("null copy: %s\n",
              cudaGetErrorName(cudaMemcpy(nullptr, nullptr, 16, cudaMemcpyDeviceToHost)));
  static_cast<void>(cudaGetLastError());
}

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  sums_on_the_default_stream();
  copies_between_streams();
  host_functions_and_two_dimensions();
  cooperative_launch();
  threads_with_their_own_streams();
  greet<<<1, 1>>>(42);
  CHECK(cudaDeviceSynchronize());
  refusals();
  std::printf("done\n");
  return 0;
}
