// printf and assert-free recursion on the device.
#include <cstdio>

__device__ int factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }

__global__ void talk(int* out) {
  const int i = threadIdx.x;
  out[i] = factorial(i + 1);
  if (i == 3) printf("thread %d says %d! = %d\n", i, i + 1, out[i]);
}

int main() {
  int* device = nullptr;
  int out[8] = {};
  cudaMalloc(&device, sizeof(out));
  talk<<<1, 8>>>(device);
  cudaDeviceSynchronize();
  cudaMemcpy(out, device, sizeof(out), cudaMemcpyDeviceToHost);
  const bool right = cudaGetLastError() == cudaSuccess && out[7] == 40320 && out[3] == 24;
  std::printf("rt_printf: %s 8! = %d\n", right ? "verified" : "WRONG", out[7]);
  return right ? 0 : 1;
}
