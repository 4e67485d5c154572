// The first program of every course, with the runtime API.
#include <cstdio>
#include <vector>

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

int main() {
  const int n = 20000;
  std::vector<float> a(n), b(n), c(n);
  for (int i = 0; i < n; ++i) {
    a[i] = i * 0.25f;
    b[i] = n - i;
  }
  float *da, *db, *dc;
  cudaMalloc(&da, n * sizeof(float));
  cudaMalloc(&db, n * sizeof(float));
  cudaMalloc(&dc, n * sizeof(float));
  cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(db, b.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  vector_add<<<(n + 255) / 256, 256>>>(da, db, dc, n);
  cudaMemcpy(c.data(), dc, n * sizeof(float), cudaMemcpyDeviceToHost);
  const cudaError_t error = cudaGetLastError();
  bool right = error == cudaSuccess;
  for (int i = 0; i < n; ++i) right = right && c[i] == a[i] + b[i];
  cudaFree(da);
  cudaFree(db);
  cudaFree(dc);
  std::printf("rt_vector_add: %s %d sums (%s)\n", right ? "verified" : "WRONG", n,
              cudaGetErrorString(error));
  return right ? 0 : 1;
}
