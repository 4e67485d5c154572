// Constant and global symbols, atomics of several kinds, and device properties.
#include <cstdio>
#include <vector>

__constant__ int weights[16];
__device__ unsigned long long total;
__device__ int smallest = 1 << 30;

__global__ void weigh(const int* values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(&total, static_cast<unsigned long long>(values[i]) * weights[i % 16]);
  atomicMin(&smallest, values[i]);
}

int main() {
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  const int n = 4096;
  std::vector<int> values(n);
  int chosen[16];
  unsigned long long wanted = 0;
  for (int i = 0; i < 16; ++i) chosen[i] = i * i + 1;
  for (int i = 0; i < n; ++i) {
    values[i] = 5 + (i * 37) % 1009;
    wanted += static_cast<unsigned long long>(values[i]) * chosen[i % 16];
  }
  int* device = nullptr;
  cudaMalloc(&device, n * sizeof(int));
  cudaMemcpy(device, values.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  cudaMemcpyToSymbol(weights, chosen, sizeof(chosen));
  const unsigned long long zero = 0;
  cudaMemcpyToSymbol(total, &zero, sizeof(zero));
  weigh<<<n / 128, 128>>>(device, n);
  unsigned long long sum = 0;
  int least = 0;
  cudaMemcpyFromSymbol(&sum, total, sizeof(sum));
  cudaMemcpyFromSymbol(&least, smallest, sizeof(least));
  const bool right =
      cudaGetLastError() == cudaSuccess && sum == wanted && least == 5 && properties.warpSize == 32;
  std::printf("rt_constant: %s %llu on %s\n", right ? "verified" : "WRONG", sum, properties.name);
  return right ? 0 : 1;
}
