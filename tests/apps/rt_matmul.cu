// Tiled matrix multiplication as a template, timed with events.
#include <cmath>
#include <cstdio>
#include <vector>

template <int kTile>
__global__ void multiply(const float* a, const float* b, float* c, int n) {
  __shared__ float ta[kTile][kTile], tb[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < n / kTile; ++t) {
    ta[threadIdx.y][threadIdx.x] = a[row * n + t * kTile + threadIdx.x];
    tb[threadIdx.y][threadIdx.x] = b[(t * kTile + threadIdx.y) * n + column];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTile; ++k) sum += ta[threadIdx.y][k] * tb[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

int main() {
  const int n = 64;
  std::vector<float> a(n * n), b(n * n), c(n * n);
  for (int i = 0; i < n * n; ++i) {
    a[i] = (i % 17) * 0.5f;
    b[i] = (i % 13) - 6;
  }
  float* d[3];
  for (float*& p : d) cudaMalloc(&p, n * n * sizeof(float));
  cudaMemcpy(d[0], a.data(), n * n * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(d[1], b.data(), n * n * sizeof(float), cudaMemcpyHostToDevice);
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaEventRecord(begin);
  multiply<16><<<dim3(n / 16, n / 16), dim3(16, 16)>>>(d[0], d[1], d[2], n);
  cudaEventRecord(end);
  cudaEventSynchronize(end);
  float ms = -1;
  cudaEventElapsedTime(&ms, begin, end);
  cudaMemcpy(c.data(), d[2], n * n * sizeof(float), cudaMemcpyDeviceToHost);
  bool right = cudaGetLastError() == cudaSuccess && ms >= 0;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      right = right && std::fabs(sum - c[i * n + j]) < 1e-3f;
    }
  }
  std::printf("rt_matmul: %s %dx%d\n", right ? "verified" : "WRONG", n, n);
  return right ? 0 : 1;
}
